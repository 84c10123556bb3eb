//! Default lengths of the log and its segments. Pure.
//!
//! The default is four times the limit of memtables. A keyspace with few writes pins the log of
//! everything that other keyspaces have flushed since. These flush about eight memtables of half
//! the limit before the keyspace is flushed too, nearly empty.

/// Maximum of the default of [`Options::log_segment_bytes`](crate::Options::log_segment_bytes).
pub const DEFAULT_LOG_SEGMENT_BYTES: u64 = 32 << 20;
/// Maximum of the default of [`Options::log_bytes_max`](crate::Options::log_bytes_max).
pub const DEFAULT_LOG_BYTES_MAX: u64 = 256 << 20;

const LOG_OVER_MEMTABLES: u64 = 4;

/// Minimum default: creating shorter segments would cost more than flushes.
const LOG_BYTES_LEAST: u64 = 32 << 20;

/// Number of segments in a log of default length. Flushes free the disk one segment at a time.
const SEGMENTS: u64 = 8;

pub(crate) const LOG_SEGMENT_BYTES_MIN: u64 = 4 << 10;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogLimits {
    pub(crate) bytes_max: Option<u64>,
    pub(crate) segment_bytes: Option<u64>,
}

impl LogLimits {
    /// Returns the length at which keyspaces are flushed, in bytes, for a limit of memtables.
    pub(crate) fn bytes_max(&self, memtable_bytes_max: u64) -> u64 {
        self.bytes_max.unwrap_or_else(|| {
            let of_memtables = memtable_bytes_max.saturating_mul(LOG_OVER_MEMTABLES);
            // Configured segments must fit, up to the clamp.
            let of_segments = self.segment_bytes.map_or(0, |bytes| bytes.saturating_mul(2));
            of_memtables.max(of_segments).clamp(LOG_BYTES_LEAST, DEFAULT_LOG_BYTES_MAX)
        })
    }

    /// Returns the length at which a segment is sealed, in bytes.
    pub(crate) fn segment_bytes(&self, memtable_bytes_max: u64) -> u64 {
        self.segment_bytes.unwrap_or_else(|| {
            let share = self.bytes_max(memtable_bytes_max) / SEGMENTS;
            share.clamp(LOG_SEGMENT_BYTES_MIN, DEFAULT_LOG_SEGMENT_BYTES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_log_is_as_long_as_its_memtables_need() {
        let unset = LogLimits::default();
        let log = |bytes| LogLimits { bytes_max: Some(bytes), ..unset };
        let segments = |bytes| LogLimits { segment_bytes: Some(bytes), ..unset };
        let both = LogLimits { bytes_max: Some(64 * KIB), segment_bytes: Some(20 * KIB) };
        let cases = [
            ("default", unset, 64 * MIB, [256 * MIB, 32 * MIB]),
            ("a small budget", unset, 4 * MIB, [32 * MIB, 4 * MIB]),
            ("one between", unset, 12 * MIB, [48 * MIB, 6 * MIB]),
            ("a large one", unset, 16 << 30, [256 * MIB, 32 * MIB]),
            ("the largest", unset, u64::MAX, [256 * MIB, 32 * MIB]),
            ("a long log", log(4 << 30), 4 * MIB, [4 << 30, 32 * MIB]),
            ("a short log", log(MIB), 64 * MIB, [MIB, 128 * KIB]),
            ("the shortest", log(8 * KIB), 64 * MIB, [8 * KIB, 4 * KIB]),
            ("short segments", segments(4 * KIB), 4 * MIB, [32 * MIB, 4 * KIB]),
            ("long segments", segments(32 * MIB), 4 * MIB, [64 * MIB, 32 * MIB]),
            ("too long segments", segments(u64::MAX), 4 * MIB, [256 * MIB, u64::MAX]),
            ("both", both, 64 * MIB, [64 * KIB, 20 * KIB]),
        ];
        for (name, limits, memtables, want) in cases {
            let found = [limits.bytes_max(memtables), limits.segment_bytes(memtables)];
            assert_eq!(found, want, "{name}");
        }
    }
}
