//! Retention of changes for the change stream.

use std::time::Duration;

/// Limits of the changes that a store keeps for [`Db::changes`](crate::Db::changes): an argument of
/// [`Options::retain_changes`](crate::Options::retain_changes).
///
/// Log segments that no memtable requires are kept instead of unlinked. Both limits count whole
/// segments ([`Options::log_segment_bytes`](crate::Options::log_segment_bytes)) and are applied
/// when a flush ends and when the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a retention does nothing until `Options::retain_changes`"]
pub struct ChangeRetention {
    /// Maximum bytes; 0: no changes are kept.
    pub(crate) bytes_max: u64,
    /// Maximum age; 0: unlimited.
    pub(crate) age_ms_max: u64,
}

impl ChangeRetention {
    /// Keeps no changes, the default of a new store. Drops changes that a store has kept.
    pub const fn none() -> Self {
        Self { bytes_max: 0, age_ms_max: 0 }
    }

    /// Keeps segments of at most `bytes` bytes, in addition to the log that the store requires; 0
    /// is [`none`](Self::none). A longer segment is dropped as soon as no memtable requires it.
    pub const fn bytes(bytes: u64) -> Self {
        Self { bytes_max: bytes, age_ms_max: 0 }
    }

    /// Also drops a segment when `age` has passed since the flush of the last memtable that
    /// required it. So each change is kept for at least `age`, unless the bytes are exceeded. At
    /// least 1 ms, in whole milliseconds of the store clock; default: no limit.
    pub fn age_max(mut self, age: Duration) -> Self {
        self.age_ms_max = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Returns `true` if no changes are kept.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.bytes_max == 0
    }
}
