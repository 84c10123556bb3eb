//! Waits until an engine's background work is done, in the same way for all: until the process
//! sleeps.

use std::{
    thread,
    time::{Duration, Instant},
};

use sievedb_workload::clock::{now, process_cpu_time};

/// Share of a window that a resting process may be busy for: 1 in 50.
const CPU_SHARE: u32 = 50;

/// Windows of rest in a row that are enough.
const WINDOWS: u32 = 3;

/// After this time nothing is waited for.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Waits until all threads are at rest. Returns how long that took, without the rest itself.
pub(crate) fn settle(window_ms: u64) -> Duration {
    let window = Duration::from_millis(window_ms);
    let start: Instant = now();
    let mut rest = 0;
    while rest < WINDOWS && start.elapsed() < WAIT_MAX {
        let before = process_cpu_time();
        thread::sleep(window);
        let cpu = process_cpu_time().saturating_sub(before);
        rest = if cpu <= window / CPU_SHARE { rest + 1 } else { 0 };
    }
    start.elapsed().saturating_sub(window * rest)
}
