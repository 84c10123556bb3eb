//! Waits until an engine's background work is done, by the same test for all engines: an idle
//! process.

use std::{
    thread,
    time::{Duration, Instant},
};

use sievedb_workload::clock::{now, process_cpu_time};

/// Maximum busy share of a window of an idle process: 1 in 50.
const CPU_SHARE: u32 = 50;

/// Required number of consecutive idle windows.
const WINDOWS: u32 = 3;

/// Maximum time to wait.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Waits until all threads are idle. Returns the time until then, without the idle windows.
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
