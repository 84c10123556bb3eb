//! Length of the history of a keyspace.

use std::{fmt, time::Duration};

use sievedb_format::SequenceNumber;

/// Length of the history of old versions of a keyspace:
/// [`KeyspaceOptions::keep_history`](crate::KeyspaceOptions::keep_history).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryLength {
    /// This number of the newest sequence numbers of the store, at least 1. Every entry written to
    /// any keyspace takes one sequence number.
    Sequences(u64),
    /// This duration before the present, at least 1 ms, rounded up to whole milliseconds of the
    /// store clock: see [`Keyspace::insert_with_ttl`](crate::Keyspace::insert_with_ttl).
    Time(Duration),
}

/// The start of a history, which includes each later sequence number and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryStart {
    pub(crate) sequence: SequenceNumber,
    /// Store clock of the oldest reader, in milliseconds. Values that expired earlier may be
    /// missing.
    pub(crate) clock_ms: u64,
}

impl HistoryStart {
    /// Returns the later of two starts, by sequence number and by clock.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            sequence: self.sequence.max(other.sequence),
            clock_ms: self.clock_ms.max(other.clock_ms),
        }
    }
}

impl From<Duration> for HistoryLength {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl HistoryLength {
    /// Returns the kind and the amount for storage.
    pub(crate) fn encode(self) -> [u64; 2] {
        match self {
            Self::Sequences(count) => [1, count],
            Self::Time(time) => [2, milliseconds(time)],
        }
    }

    /// Returns the stored length; `None` for an unknown kind.
    pub(crate) fn decode([kind, amount]: [u64; 2]) -> Option<Self> {
        match kind {
            1 => Some(Self::Sequences(amount.max(1))),
            2 => Some(Self::Time(Duration::from_millis(amount.max(1)))),
            _ => None,
        }
    }

    /// Returns the length in whole milliseconds, or unchanged.
    pub(crate) fn rounded(self) -> Self {
        match self {
            Self::Time(time) => Self::Time(Duration::from_millis(milliseconds(time))),
            Self::Sequences(_) => self,
        }
    }

    /// Returns the length in milliseconds; `u64::MAX` if it is not a time.
    pub(crate) fn ms(self) -> u64 {
        match self {
            Self::Time(time) => milliseconds(time),
            Self::Sequences(_) => u64::MAX,
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        self.encode()[1] > 0
    }
}

impl fmt::Display for HistoryLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequences(count) => write!(f, "{count} sequence numbers"),
            Self::Time(time) => write!(f, "{time:?}"),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
