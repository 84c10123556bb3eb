//! Bugs that tests plant, to show that they catch them.

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
    /// Recovery continues a manifest that may not be durable.
    KeepAnyManifest,
    /// A compaction drops tombstones that still hide older versions below.
    DropTombstoneEarly,
    /// A filter is installed before its file is synced.
    InstallFilterBeforeSync,
    /// A replaced filter is deleted before the manifest records the new one.
    DeleteFilterEarly,
    /// Recovery accepts a predecessor of an unnamed log segment below the floor of the log, and a
    /// close after a full disk does not write the manifest. That edit records the ids in use,
    /// without which a clean close would let ids be reused.
    AdoptSegmentBelowFloor,
    /// A close after a full disk does not vouch for the log.
    LeaveEndedLogUnvouched,
    /// The commit of a transaction ignores writes to the ranges that it has read.
    SkipRangeValidation,
    /// The commit of a transaction ignores writes in flight.
    SkipInFlightValidation,
    /// A change stream returns some batches twice.
    RepeatChanges,
    /// A change stream skips the first entry of each further segment.
    SkipChanges,
    /// A change stream returns batches that are not durable yet.
    ReturnUnsyncedChanges,
    /// A compaction shows versions that snapshots see to its filter.
    FilterVersionsOfSnapshots,
    /// A checkpoint lacks a table.
    OmitTableFromCheckpoint,
    /// A checkpoint lacks writes that only the log's buffer in the process has.
    CheckpointWithoutLogBuffer,
    /// A checkpoint counts before the log segments that it links are synced.
    CheckpointWithoutLogSync,
    /// A follower shows the first half of a batch.
    ShowHalfBatch,
    /// The log counts writes as durable before their sync returns.
    CountUnsyncedWrites,
    /// A sync of the log omits the blob files with values of its records.
    SyncLogWithoutValues,
    /// Tables are ingested by two edits of the manifest.
    IngestInParts,
    /// An ingest does not sync the log before it is recorded in the manifest.
    IngestBeforeLogSync,
    /// The number of an ingest becomes visible before readers see its tables.
    PublishIngestEarly,
    /// Encryption uses a nonce twice.
    RepeatNonces,
    /// The record of a backup is stored before its files.
    RecordBackupEarly,
    /// An archive omits a part of the log.
    OmitArchivedPart,
    /// A blob file is deleted although another table refers to it.
    DeleteBlobFileEarly,
    /// A compaction writes a wrong offset for each value in a blob file.
    MisplaceBlobs,
    /// A size-tiered merge omits a run between two others.
    MergeApartRuns,
    /// A FIFO removal takes the newest tables.
    UnlinkNewestTables,
    /// A checkpoint lacks a blob file.
    OmitBlobFileFromCheckpoint,
}
