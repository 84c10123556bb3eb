//! The load: all keys in random order into an empty store.

use sievedb_workload::random::Random;

use super::meter::Meter;
use crate::{
    contestant::{Engine, Reader as _},
    failure::Result,
    keys::{Entry, Keys},
    task::Task,
};

/// Keys that are looked up after the load, of either kind.
const CHECKS: u64 = 1000;

/// Writes all keys in batches, then flushes. The flush is part of the time.
pub(crate) fn load<E: Engine>(engine: &E, task: &Task, meter: &mut Meter) -> Result<()> {
    let settings = &task.settings;
    let keys = Keys::new(settings.seed);
    meter.start()?;
    let mut entries: Vec<Entry> = Vec::with_capacity(settings.load_batch);
    for start in (0..settings.keys).step_by(settings.load_batch) {
        let end = settings.keys.min(start + settings.load_batch as u64);
        entries.clear();
        entries.extend((start..end).map(|index| keys.entry(index)));
        meter.batch(entries.len(), || engine.write(&entries))?;
    }
    meter.together(0, || engine.flush())
}

/// Fails unless the store holds what was loaded.
pub(crate) fn check<E: Engine>(engine: &E, task: &Task) -> Result<()> {
    let settings = &task.settings;
    let keys = Keys::new(settings.seed);
    let entries = engine.scan()?;
    if entries != settings.keys {
        return Err(format!("{entries} entries after a load of {} keys", settings.keys).into());
    }
    let mut reader = engine.reader()?;
    let mut random = Random::new(settings.seed);
    for _ in 0..CHECKS {
        let index = random.below(settings.keys);
        let (key, want) = keys.entry(index);
        let mut value = [0; _];
        if !reader.get(&key, &mut value)? || value != want {
            return Err(format!("key {} was lost", key.escape_ascii()).into());
        }
        let key = keys.absent(index);
        if reader.get(&key, &mut value)? {
            return Err(format!("key {} was invented", key.escape_ascii()).into());
        }
    }
    Ok(())
}
