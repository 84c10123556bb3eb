//! The result of a checkpoint.

use std::time::Duration;

#[cfg(doc)]
use crate::Snapshot;

/// The content and the cost of a [checkpoint](crate::Db::checkpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Sequence number of the newest write in the checkpoint, as of [`Snapshot::sequence`]. Every
    /// write up to it is in the checkpoint, and no later one.
    pub sequence: u64,
    /// Number of files shared with the store by hard links.
    pub files_linked: u64,
    /// Number of files copied because they cannot be linked.
    pub files_copied: u64,
    /// Length of the copied files, in bytes.
    pub bytes_copied: u64,
    /// Time for which no writer could append to the log.
    pub writers_paused: Duration,
}
