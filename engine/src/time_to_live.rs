//! Time to live of a value, and its conversion to an expiry, in milliseconds of the
//! [store clock](crate::store_clock).

use std::time::{Duration, SystemTime};

/// Remaining time until a value expires. [`Keyspace::ttl`](crate::Keyspace::ttl) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeToLive {
    /// The value does not expire.
    Unlimited,
    /// The value expires after this time: whole milliseconds, more than zero.
    Remaining(Duration),
}

impl TimeToLive {
    /// Returns the time to live at `clock_ms` of a value that expires at `expiry_ms`; never with
    /// `None` or `u64::MAX`.
    pub(crate) fn at(clock_ms: u64, expiry_ms: Option<u64>) -> Self {
        match expiry_ms {
            None | Some(u64::MAX) => Self::Unlimited,
            Some(expiry_ms) => {
                Self::Remaining(Duration::from_millis(expiry_ms.saturating_sub(clock_ms)))
            }
        }
    }
}

/// Returns the expiry of a value written at `clock_ms`, in milliseconds of the store clock. Rounds
/// up. An expiry beyond 64 bits is `u64::MAX`, which is never reached.
pub(crate) fn expiry_after(clock_ms: u64, ttl: Duration) -> u64 {
    let ttl_ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    clock_ms.saturating_add(ttl_ms)
}

/// Returns `time` in milliseconds since the Unix epoch, rounded up; 0 for a time before it.
pub(crate) fn expiry_at(time: SystemTime) -> u64 {
    expiry_after(0, time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_rounded_up_and_never_overflow() {
        let cases = [
            ("zero", 1000, Duration::ZERO, 1000),
            ("a nanosecond", 1000, Duration::from_nanos(1), 1001),
            ("a millisecond", 1000, Duration::from_millis(1), 1001),
            ("the most", 1000, Duration::MAX, u64::MAX),
            ("at the end", u64::MAX, Duration::from_secs(1), u64::MAX),
        ];
        for (name, clock_ms, ttl, want) in cases {
            assert_eq!(expiry_after(clock_ms, ttl), want, "{name}");
        }
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(expiry_at(epoch + Duration::from_micros(2_001)), 3);
        assert_eq!(expiry_at(epoch - Duration::from_secs(9)), 0);
        let remaining = TimeToLive::Remaining(Duration::from_millis(5));
        assert_eq!(TimeToLive::at(10, Some(15)), remaining);
        for never in [None, Some(u64::MAX)] {
            assert_eq!(TimeToLive::at(10, never), TimeToLive::Unlimited, "{never:?}");
        }
    }
}
