//! A thread that writes new keys at a fixed rate while another one reads.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use sievedb_workload::clock::now;

use crate::{
    contestant::{Engine, Reader as _},
    failure::Result,
    keys::{Entry, Keys},
    settings::Settings,
};

/// Entries per write.
const BATCH: u64 = 100;

/// Name of the figure: entries written per second.
pub(crate) const WRITES_PER_SECOND: &str = "writes_per_second";

/// Writes keys that were not loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    keys: Keys,
    first: u64,
    per_second: u64,
}

impl Writer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Settings { keys: first, writes_per_second: per_second, seed, .. } = *settings;
        Self { keys: Keys::new(seed), first, per_second }
    }

    /// Writes from the barrier `begun` until `stop`, then checks the last writes. Returns the
    /// entries written per second.
    pub(crate) fn run<E: Engine>(
        self,
        engine: &E,
        begun: &Barrier,
        stop: &AtomicBool,
    ) -> Result<f64> {
        begun.wait();
        let start = now();
        let mut entries: Vec<Entry> = Vec::new();
        let mut written = 0;
        while !stop.load(Relaxed) {
            entries.clear();
            entries.extend((0..BATCH).map(|at| self.keys.entry(self.first + written + at)));
            engine.write(&entries)?;
            written += BATCH;
            let due = Duration::from_secs_f64(written as f64 / self.per_second.max(1) as f64);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        let per_second = written as f64 / start.elapsed().as_secs_f64();
        let mut reader = engine.reader()?;
        for (key, want) in entries {
            let mut value = [0; _];
            if !reader.get(&key, &mut value)? || value != want {
                return Err(format!("key {} was lost", key.escape_ascii()).into());
            }
        }
        Ok(per_second)
    }
}
