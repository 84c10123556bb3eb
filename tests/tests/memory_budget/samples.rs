//! Samples of all memory of a store: allocations and pages of cached blocks.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use sievedb::{
    Db,
    clock::{Clock as _, SystemClock},
    stats::MemoryStats,
};

use crate::counting::live_bytes;

/// Returns the allocated bytes plus block pages, with the statistics of that time.
pub(crate) fn bytes_now(db: &Db) -> (usize, MemoryStats) {
    // Memory may move between the two during the sample.
    let before = live_bytes();
    let memory = db.stats().memory;
    (before.min(live_bytes()) + memory.block_page_bytes as usize, memory)
}

/// Longest time of a sample: its parts are read one after another, and memory moves between them.
const SAMPLE_TIME_MAX: Duration = Duration::from_millis(2);

/// Attempts to read the last sample in that time.
const LAST_TRIES_MAX: usize = 1_000;

/// Returns [`bytes_now`], or `None` if the thread was interrupted meanwhile.
fn sample(db: &Db, clock: &SystemClock) -> Option<(usize, MemoryStats)> {
    let begun = clock.now();
    let sample = bytes_now(db);
    (clock.now() - begun <= SAMPLE_TIME_MAX).then_some(sample)
}

/// Sets a flag on drop, also in a panic.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `work`, and passes samples to `see` during it and at its end. Ignores interrupted samples.
pub(crate) fn sample_while<T>(
    db: &Db,
    mut see: impl FnMut(usize, &MemoryStats) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let clock = SystemClock::new();
            while !is_done.load(Relaxed) {
                if let Some((bytes, memory)) = sample(db, &clock) {
                    see(bytes, &memory);
                }
                thread::sleep(Duration::from_millis(1));
            }
            let last = (0..LAST_TRIES_MAX).find_map(|_| sample(db, &clock));
            let (bytes, memory) = last.unwrap_or_else(|| bytes_now(db));
            see(bytes, &memory);
        });
        let _done = Done(&is_done);
        work()
    })
}

/// Runs `work`. Returns the largest sample.
pub(crate) fn most_bytes_while(db: &Db, work: impl FnOnce()) -> usize {
    let mut most = 0;
    sample_while(db, |bytes, _| most = most.max(bytes), work);
    most
}
