//! Waits until an engine's background work is done, in the same way for all: until the process sleeps.

use std::{
    thread,
    time::{Duration, Instant},
};

use sievedb_workload::clock::{now, process_cpu_time};

/// Between two looks at the process's CPU time.
const WINDOW: Duration = Duration::from_millis(200);

/// CPU time within a window that counts as rest.
const CPU_MAX: Duration = Duration::from_millis(4);

/// Windows of rest in a row that are enough.
const WINDOWS: u32 = 3;

/// After this time nothing is waited for.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Waits until all threads are at rest. Returns how long that took, without the rest itself.
pub(crate) fn settle() -> Duration {
    let start: Instant = now();
    let mut rest = 0;
    while rest < WINDOWS && start.elapsed() < WAIT_MAX {
        let before = process_cpu_time();
        thread::sleep(WINDOW);
        let cpu = process_cpu_time().saturating_sub(before);
        rest = if cpu <= CPU_MAX { rest + 1 } else { 0 };
    }
    start.elapsed().saturating_sub(WINDOW * rest)
}
