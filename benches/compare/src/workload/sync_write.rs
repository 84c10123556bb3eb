//! Synced writes by several threads, one at a time in each.

use std::thread;

use sievedb_workload::clock::now;

use super::{
    digest::{self, Digest},
    meter::Meter,
};
use crate::{
    contestant::{Engine, Order},
    failure::Result,
    keys::Keys,
    settings::Settings,
};

/// Numbers set aside for the keys of one thread.
const THREAD_KEYS: u64 = 1 << 32;

/// Writes of one thread, at least.
const WRITES_MIN: u64 = 10;

/// Writes with `threads` threads until time is up, and checks that all entries are present.
pub(crate) fn run<E: Engine>(
    engine: &E,
    threads: usize,
    settings: &Settings,
    meter: &mut Meter,
) -> Result<()> {
    meter.start()?;
    let numbers: Vec<u64> = (0..threads as u64).collect();
    let results: Vec<_> = thread::scope(|scope| {
        let writers = numbers
            .iter()
            .map(|&number| scope.spawn(move || write(engine, number * THREAD_KEYS, settings)));
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    meter.stop()?;
    let mut want = Vec::new();
    for (number, result) in numbers.into_iter().zip(results) {
        let of_thread = result.map_err(|_| "a writer has panicked")??;
        meter.join(&of_thread);
        let first = number * THREAD_KEYS;
        want.extend(first..first + of_thread.operations_all());
    }
    let keys = Keys::new(settings.seed);
    let want = Digest::of(want.into_iter().map(|index| keys.entry(index)));
    digest::check(engine, Order::Ascending, want)
}

/// Writes the keys from number `first` on.
fn write<E: Engine>(engine: &E, first: u64, settings: &Settings) -> Result<Meter> {
    let keys = Keys::new(settings.seed);
    let mut meter = Meter::new();
    let start = now();
    for number in 0..settings.lookups {
        let entry = keys.entry(first + number);
        // The clock is cheap compared with the disk, so each write counts for mean and percentiles.
        meter.batch(1, || engine.write_synced(&entry))?;
        if number + 1 >= WRITES_MIN && start.elapsed().as_secs_f64() > settings.seconds_max {
            break;
        }
    }
    Ok(meter)
}
