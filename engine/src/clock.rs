//! Clocks, injected so that tests control time: monotonic, and wall clock.

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::sync::Mutex;

/// A monotonic clock, and the wall clock.
pub trait Clock: Debug + Send + Sync {
    /// Returns the time since a fixed point of the clock's choice. Never decreases. May or may not
    /// advance while the machine is suspended.
    fn now(&self) -> Duration;

    /// Returns the time since the Unix epoch by the wall clock; zero before the epoch. May jump in
    /// either direction. Read when a store is opened, and when a backup is created.
    fn unix_time(&self) -> Duration;

    /// Waits until [`now`](Self::now) has grown by at least `duration`.
    fn sleep(&self, duration: Duration);
}

/// The clock of the machine, zero at its creation.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Returns a clock at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is injected")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that is injected")]
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// A clock for tests that advances only by [`advance`](Self::advance) and [`sleep`](Clock::sleep).
/// Zero at its creation, and so is its wall clock.
#[derive(Debug, Default)]
pub struct ManualClock {
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    now: Duration,
    unix: Duration,
}

impl ManualClock {
    /// Returns a clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock and its wall clock.
    ///
    /// # Panics
    ///
    /// If the sum does not fit a [`Duration`].
    pub fn advance(&self, by: Duration) {
        let mut times = self.times.lock();
        times.now += by;
        times.unix += by;
    }

    /// Sets the wall clock alone, to a time since the Unix epoch.
    pub fn set_unix_time(&self, time: Duration) {
        self.times.lock().unix = time;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.times.lock().now
    }

    fn unix_time(&self) -> Duration {
        self.times.lock().unix
    }

    /// Advances the clock by `duration` and returns at once, so a single-threaded test never
    /// blocks.
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_grow_by_what_they_slept() {
        let step = Duration::from_millis(2);
        let clocks: [&dyn Clock; 2] = [&SystemClock::new(), &ManualClock::new()];
        for clock in clocks {
            let before = clock.now();
            clock.sleep(step);
            assert!(clock.now() >= before + step, "{clock:?}");
        }
    }

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        clock.advance(Duration::from_secs(3));
        clock.sleep(Duration::from_secs(4));
        assert_eq!(clock.now(), Duration::from_secs(7));
        assert_eq!(clock.unix_time(), Duration::from_secs(7));
        clock.set_unix_time(Duration::from_secs(2));
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Duration::from_secs(8));
        assert_eq!(clock.unix_time(), Duration::from_secs(3));
    }
}
