//! Bugs that a test can plant, to show that it would catch them.

/// A bug that a test can plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "planted-bugs"),
    expect(unreachable_pub, reason = "public with the feature")
)]
pub enum PlantedBug {
    /// A flush is installed before the logs are synced up to its largest sequence number.
    InstallFlushBeforeLogSync,
    /// Orphans are deleted before the recovered manifest is persisted.
    DeleteOrphansEarly,
    /// Recovery goes on with a manifest of which nobody knows whether it is on the disk.
    KeepAnyManifest,
    /// A compaction drops tombstones that still hide older versions below.
    DropTombstoneEarly,
    /// A filter is installed before its file is synced.
    InstallFilterBeforeSync,
    /// A filter that another one replaces is deleted before the manifest knows.
    DeleteFilterEarly,
    /// Recovery looks for the predecessor of an unnamed log segment below the floor of the log, and
    /// a close after a full disk leaves the manifest as it is. Without that edit, which notes the
    /// ids that were given out, no id is used twice after a clean close.
    AdoptSegmentBelowFloor,
    /// A close after a full disk does not vouch for the log.
    LeaveEndedLogUnvouched,
}
