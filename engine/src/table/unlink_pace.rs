//! The pace at which obsolete files are unlinked.
//!
//! A file system frees the blocks of an unlinked file at once, and may discard them on the device.
//! After a large compaction, hundreds of such unlinks would delay reads and syncs. With a pace,
//! each unlink waits for the time that the bytes of the previous file take. A file is the unit.

use std::time::Duration;

use crate::sync::Mutex;

/// [`Options::unlink_bytes_per_second`](crate::Options::unlink_bytes_per_second).
#[derive(Debug)]
pub(crate) struct UnlinkPace {
    bytes_per_second: Option<u64>,
    /// Time of the next unlink, by the clock of the options.
    next: Mutex<Duration>,
}

impl UnlinkPace {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, next: Mutex::default() }
    }

    /// Returns `true` if there is a pace.
    pub(crate) fn is_set(&self) -> bool {
        self.bytes_per_second.is_some()
    }

    /// Returns the wait of the next unlink at `now`.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        if self.is_set() { self.next.lock().saturating_sub(now) } else { Duration::ZERO }
    }

    /// Records an unlink of a file of `bytes` bytes at `now`.
    pub(super) fn note(&self, bytes: u64, now: Duration) {
        let Some(bytes_per_second) = self.bytes_per_second else { return };
        let taken = Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
        let mut next = self.next.lock();
        *next = now.max(*next).saturating_add(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlink_waits_for_the_bytes_of_those_before() {
        let ms = Duration::from_millis;
        let pace = UnlinkPace::new(Some(1000));
        assert_eq!(pace.wait(ms(5)), ms(0), "the first");
        pace.note(200, ms(5));
        assert_eq!([pace.wait(ms(5)), pace.wait(ms(105))], [ms(200), ms(100)]);
        pace.note(50, ms(105));
        assert_eq!(pace.wait(ms(105)), ms(150), "by two threads");
        assert_eq!(pace.wait(ms(300)), ms(0));
        pace.note(10, ms(300));
        assert_eq!(pace.wait(ms(300)), ms(10), "unused time is not saved");
        let none = UnlinkPace::new(None);
        none.note(u64::MAX, ms(0));
        assert_eq!(none.wait(ms(0)), ms(0));
    }
}
