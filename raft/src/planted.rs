//! Bugs that tests plant, to show that they catch them.

/// A bug that a test can plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "planted-bugs"),
    expect(unreachable_pub, reason = "public with the feature")
)]
pub enum PlantedBug {
    /// A vote is saved without a sync.
    UnsyncedVote,
    /// A vote is lost when the store is opened.
    ForgetVote,
    /// A committed vote of an earlier opening is read as committed.
    KeepLeadership,
    /// Entries count as flushed before their sync.
    UnsyncedEntries,
    /// Entries are applied by one commit, and their id by another.
    ApplyWithoutId,
    /// The installation of a snapshot begins without a record.
    UnrecordedInstallation,
    /// A received snapshot is installed before its files are synced.
    UnsyncedSnapshot,
    /// The installation of a snapshot omits the first entry of each keyspace.
    OmitEntryOfSnapshot,
}
