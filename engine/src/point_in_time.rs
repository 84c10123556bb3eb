//! A point in the history of a store.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// A point in the history of a store, for [`Db::snapshot_at`](crate::Db::snapshot_at).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointInTime {
    /// After the write with this sequence number, such as [`Snapshot::sequence`] returned. The
    /// entries of a batch have consecutive numbers: one between them shows a part of the batch.
    /// Values are shown if they had not expired at the time of the write. That time is known to a
    /// second or 1 % of its age: a value that expired so shortly before may be shown. If it is
    /// later, the time of the beginning of the history or of an older open snapshot counts. After
    /// the newest write, the present time counts.
    ///
    /// [`Snapshot::sequence`]: crate::Snapshot::sequence
    Sequence(u64),
    /// At this time of the [store clock](crate::Db::store_time), which may differ from Unix time. A
    /// time in the future is the present.
    /// Accurate to a second or 1 % of its age, whichever is larger: the snapshot may see later
    /// writes within that time. After a crash, times since the last flush are one point. In a
    /// [follower](crate::Options::follow), a write since the last flush counts from the refresh
    /// that showed it.
    Time(SystemTime),
}

impl PointInTime {
    /// Returns the point `ms` after the Unix epoch.
    pub(crate) fn of_ms(ms: u64) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    }
}

impl From<u64> for PointInTime {
    fn from(sequence: u64) -> Self {
        Self::Sequence(sequence)
    }
}

impl From<SystemTime> for PointInTime {
    fn from(time: SystemTime) -> Self {
        Self::Time(time)
    }
}

impl fmt::Display for PointInTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequence(sequence) => write!(f, "sequence number {sequence}"),
            Self::Time(time) => {
                let unix = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                write!(f, "Unix time {}.{:03}", unix.as_secs(), unix.subsec_millis())
            }
        }
    }
}
