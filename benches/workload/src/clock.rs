//! The two clocks of a measurement.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the real time, from an arbitrary start.
#[expect(clippy::disallowed_methods, reason = "a measurement needs the real clock")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time used by the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    duration_of(ClockId::ThreadCPUTime)
}

/// Returns the CPU time used by all threads of the process.
#[must_use]
pub fn process_cpu_time() -> Duration {
    duration_of(ClockId::ProcessCPUTime)
}

/// Returns the monotonic time, in ns since a start that all processes share.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = duration_of(ClockId::Monotonic);
    u64::try_from(time.as_nanos()).expect("the machine is younger than 500 years")
}

fn duration_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks are not negative");
    let ns = u32::try_from(time.tv_nsec).expect("a second has fewer ns than u32 holds");
    Duration::new(seconds, ns)
}
