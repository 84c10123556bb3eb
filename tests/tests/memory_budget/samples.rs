//! Samples of all memory of a store: allocations and pages of cached blocks.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use sievedb::{Db, stats::MemoryStats};

use crate::counting::live_bytes;

/// Returns the allocated bytes plus block pages, with the statistics of that time.
pub(crate) fn bytes_now(db: &Db) -> (usize, MemoryStats) {
    // Memory may move between the two during the sample.
    let before = live_bytes();
    let memory = db.stats().memory;
    (before.min(live_bytes()) + memory.block_page_bytes as usize, memory)
}

/// Sets a flag on drop, also in a panic.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `work`, and passes samples to `see` during it and at its end.
pub(crate) fn sample_while<T>(
    db: &Db,
    mut see: impl FnMut(usize, &MemoryStats) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let is_last = is_done.load(Relaxed);
                let (bytes, memory) = bytes_now(db);
                see(bytes, &memory);
                if is_last {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
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
