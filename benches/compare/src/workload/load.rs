//! The load in batches: all keys in random order into an empty store.

use super::{
    digest::{self, Digest},
    meter::Meter,
};
use crate::{
    contestant::{Engine, Order, Reader as _},
    failure::Result,
    keys::{Entry, Keys},
    settings::Settings,
};

/// Number of absent keys looked up after the load.
const CHECKS: u64 = 1000;

/// Writes all keys in batches, then flushes. The time includes the flush.
pub(crate) fn load<E: Engine>(engine: &E, settings: &Settings, meter: &mut Meter) -> Result<()> {
    meter.start()?;
    write(engine, settings, settings.keys, meter)?;
    meter.together(0, || engine.flush())
}

/// Writes the first `count` keys in batches.
pub(crate) fn write<E: Engine>(
    engine: &E,
    settings: &Settings,
    count: u64,
    meter: &mut Meter,
) -> Result<()> {
    let keys = Keys::new(settings.seed);
    let mut entries: Vec<Entry> = Vec::with_capacity(settings.load_batch);
    for start in (0..count).step_by(settings.load_batch) {
        let end = count.min(start + settings.load_batch as u64);
        entries.clear();
        entries.extend((start..end).map(|index| keys.entry(index)));
        meter.batch(entries.len(), || engine.write(&entries))?;
    }
    Ok(())
}

/// Fails unless the store holds exactly the loaded entries.
pub(crate) fn check<E: Engine>(engine: &E, settings: &Settings) -> Result<()> {
    let keys = Keys::new(settings.seed);
    let want = Digest::of((0..settings.keys).map(|index| keys.entry(index)));
    digest::check(engine, Order::Ascending, want)?;
    let mut reader = engine.reader()?;
    for index in 0..CHECKS {
        let key = keys.absent(index);
        if reader.get(&key, &mut [0; _])? {
            return Err(format!("key {} was invented", key.escape_ascii()).into());
        }
    }
    Ok(())
}
