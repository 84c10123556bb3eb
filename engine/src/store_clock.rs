//! The store clock, by which values expire.
//!
//! It counts milliseconds. At the first opening of a store it is at Unix time. While the store is
//! open, it advances with the monotonic clock: a jump of the wall clock changes nothing. At each
//! later opening it continues at the larger of the stored time and Unix time. So it never runs
//! backwards: once it has followed a wall clock that was set forward, it does not go back.
//!
//! Each edit of the manifest stores it, and so does a close if a value expires. After a crash it
//! may return to the time of the last edit, if the wall clock was set back too.
//!
//! A follower has a clock of its own. A refresh moves it forward to the last edit of the writer.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Last time of the clock, at which it stops. A later expiry is never reached.
const LAST_MS: u64 = u64::MAX - 1;

/// The clock of an open store.
#[derive(Debug)]
pub(crate) struct StoreClock {
    clock: Arc<dyn Clock>,
    /// Time of the open, by `clock`.
    opened_at: Duration,
    /// Time of the open, by the store clock.
    at_open_ms: u64,
    /// Milliseconds by which refreshes have moved the clock forward.
    added_ms: AtomicU64,
    /// Set for a store opened read-only: it does not change, and neither does its clock.
    stands_still: bool,
}

impl StoreClock {
    /// Returns the clock of a store that is opened now, whose manifest has `stored_ms`.
    pub(crate) fn open(clock: Arc<dyn Clock>, stored_ms: u64, is_read_only: bool) -> Self {
        let (opened_at, unix_ms) = (clock.now(), milliseconds(clock.unix_time()));
        let at_open_ms = stored_ms.max(unix_ms).min(LAST_MS);
        let added_ms = AtomicU64::new(0);
        Self { at_open_ms, added_ms, clock, opened_at, stands_still: is_read_only }
    }

    /// Moves the clock forward to `stored_ms`, which a refresh has read, unless it is later.
    pub(crate) fn raise(&self, stored_ms: u64) {
        debug_assert!(!self.stands_still, "a store without refreshes");
        let unraised_ms = self.unraised_ms(self.clock.now());
        self.added_ms.fetch_max(stored_ms.min(LAST_MS).saturating_sub(unraised_ms), Relaxed);
    }

    /// Returns when the store was opened, by the clock of the options.
    pub(crate) const fn opened_at(&self) -> Duration {
        self.opened_at
    }

    /// Returns when the store was opened, by the store clock, in milliseconds.
    pub(crate) const fn opened_ms(&self) -> u64 {
        self.at_open_ms
    }

    /// Returns the time of the store clock, in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.at_ms(self.clock.now())
    }

    /// Returns the time of the store clock at `now`, by the clock of the options.
    pub(crate) fn at_ms(&self, now: Duration) -> u64 {
        if self.stands_still {
            return self.at_open_ms;
        }
        let added_ms = self.added_ms.load(Relaxed);
        self.unraised_ms(now).saturating_add(added_ms).min(LAST_MS)
    }

    /// Returns the time at `now` without refreshes.
    fn unraised_ms(&self, now: Duration) -> u64 {
        let passed_ms = milliseconds(now.saturating_sub(self.opened_at));
        self.at_open_ms.saturating_add(passed_ms)
    }

    /// Returns `true` if a value that expires at `expiry_ms` has expired; never with `None`.
    pub(crate) fn has_passed(&self, expiry_ms: Option<u64>) -> bool {
        expiry_ms.is_some_and(|expiry_ms| expiry_ms <= self.now_ms())
    }

    /// Returns the time, by the clock of the options, when the store clock will be at `time_ms`.
    /// Returns `None` if that is never.
    pub(crate) fn time_of(&self, time_ms: u64) -> Option<Duration> {
        let from_ms = self.at_open_ms.saturating_add(self.added_ms.load(Relaxed));
        let passed = Duration::from_millis(time_ms.saturating_sub(from_ms));
        self.opened_at.checked_add(passed).filter(|_| !self.stands_still)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn the_clock_follows_the_wall_clock_forward_at_an_opening_only() {
        let clock = Arc::new(ManualClock::new());
        let open = |stored_ms| StoreClock::open(Arc::clone(&clock) as _, stored_ms, false);
        clock.set_unix_time(Duration::from_secs(50));
        let first = open(0);
        assert_eq!(first.now_ms(), 50_000, "Unix time");
        clock.advance(Duration::from_millis(7));
        assert_eq!(first.now_ms(), 50_007);
        clock.set_unix_time(Duration::from_secs(1_000));
        assert_eq!(first.now_ms(), 50_007, "a jump forward while it is open");
        clock.set_unix_time(Duration::ZERO);
        assert_eq!(first.now_ms(), 50_007, "a jump back while it is open");
        assert_eq!(open(50_007).now_ms(), 50_007, "back while it is closed");
        clock.set_unix_time(Duration::from_secs(90));
        assert_eq!(open(50_007).now_ms(), 90_000, "forward while it is closed");
        let last = open(u64::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(last.now_ms(), u64::MAX - 1, "no overflow");
    }

    #[test]
    fn the_clock_of_a_read_only_store_stands_still() {
        let clock = Arc::new(ManualClock::new());
        let open = |is_read_only| StoreClock::open(Arc::clone(&clock) as _, 500, is_read_only);
        let (read_only, open) = (open(true), open(false));
        clock.advance(Duration::from_secs(3));
        assert_eq!((read_only.now_ms(), read_only.time_of(501)), (500, None));
        assert_eq!(open.now_ms(), 3_500);
        assert_eq!(open.time_of(3_700), Some(Duration::from_millis(3_200)));
        assert_eq!(open.time_of(0), Some(open.opened_at()));
    }

    #[test]
    fn a_refresh_moves_the_clock_forward_only() {
        let clock = Arc::new(ManualClock::new());
        let follower = StoreClock::open(Arc::clone(&clock) as _, 500, false);
        clock.advance(Duration::from_millis(100));
        for (stored_ms, want_ms) in [(400, 600), (900, 900), (700, 900), (u64::MAX, u64::MAX - 1)] {
            follower.raise(stored_ms);
            assert_eq!(follower.now_ms(), want_ms, "{stored_ms}");
            assert_eq!(follower.time_of(want_ms), Some(Duration::from_millis(100)));
            assert_eq!(follower.opened_ms(), 500);
        }
    }
}
