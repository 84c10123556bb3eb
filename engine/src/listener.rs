//! Events of a store.

use std::{
    fmt::Debug,
    panic::{self, AssertUnwindSafe},
};

use crate::{Error, filter_role::FilterRole};

/// An event inside a store. Releases may add fields to variants: match their fields with `..`.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Event {
    /// The log `log_id` ends at `offset` with bytes that are no valid record. Recovery truncates
    /// them; a read-only open skips them. Either a crash interrupted writes that were not synced,
    /// or the last records were damaged later. In that case synced writes are lost.
    #[non_exhaustive]
    TornTail { log_id: u64, offset: u64 },
    /// Recovery truncated the manifest by its last `bytes` bytes, which are not a valid record.
    /// Either a crash interrupted an edit that was not acknowledged, or the last record was damaged
    /// later. In that case the last change of the store is lost, such as a `set_filter_policy`.
    #[non_exhaustive]
    TornManifest { manifest_id: u64, offset: u64, bytes: u64 },
    /// The filter of a table cannot be used, so every lookup in its range searches the table.
    #[non_exhaustive]
    FilterUnusable { keyspace: String, table_id: u64, reason: String },
    /// A filter of a table was rebuilt, or removed if the options require none.
    #[non_exhaustive]
    FilterRebuilt { keyspace: String, table_id: u64, role: FilterRole, reason: FilterRebuildReason },
    /// A rebuild of a filter of a table failed. It is retried when the store is opened or its
    /// memory budget changes.
    #[non_exhaustive]
    FilterNotRebuilt { keyspace: String, table_id: u64, role: FilterRole, error: Error },
    /// A memtable was written as `bytes` bytes of tables on level 0.
    #[non_exhaustive]
    Flushed { keyspace: String, bytes: u64 },
    /// Tables with `entries` entries, `bytes` bytes in all, were
    /// [ingested](crate::Keyspace::ingest).
    #[non_exhaustive]
    Ingested { keyspace: String, entries: u64, bytes: u64 },
    /// A compaction into `level` read `bytes_read` and wrote `bytes_written` bytes. Both are 0 if
    /// tables only changed their level.
    #[non_exhaustive]
    Compacted { keyspace: String, level: u8, bytes_read: u64, bytes_written: u64 },
    /// A compaction quarantined a table that it could not read, because of damage or a persistent
    /// read error. Compactions skip the table; all other work continues. `error` has the file and
    /// the offset.
    ///
    /// [`Stats::quarantined`](crate::Stats::quarantined) lists these tables.
    /// [`QuarantinedTable`](crate::QuarantinedTable) has the time of the next attempt.
    /// `docs/operations.md`, "When a table is damaged", describes how to rescue their data.
    #[non_exhaustive]
    TableQuarantined { keyspace: String, table_id: u64, error: Error },
    /// A flush or a compaction could not apply merge operands, because the operator failed or
    /// panicked: `error` is [`Error::MergeFailed`]. The operands are kept. Reported once for each
    /// keyspace of an open store; [`KeyspaceStats`](crate::stats::KeyspaceStats) counts all.
    #[non_exhaustive]
    MergeFailed { keyspace: String, error: Error },
    /// A [compaction filter](crate::CompactionFilter) failed: `error` is
    /// [`Error::CompactionFilterFailed`]. Compactions of the keyspace run without it.
    #[non_exhaustive]
    CompactionFilterFailed { keyspace: String, error: Error },
    /// Background work was postponed: the disk is full, no file descriptor is left, the system is
    /// short of memory, or the key provider failed. `error` names the cause.
    #[non_exhaustive]
    NoSpace { error: Error },
    /// The system refused `membarrier`, which it allowed when the store was opened, for example
    /// because of a seccomp filter. Reported once. Lookups then use a memory fence, which costs
    /// some nanoseconds each. Present memtables of a keyspace stay in memory until each thread that
    /// has read the keyspace reads it again.
    BarriersRefused,
    /// The store became read-only.
    #[non_exhaustive]
    ReadOnly { cause: Error },
}

/// Reason for rebuilding or removing a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRebuildReason {
    /// The filter was damaged, missing, of an unknown kind, or built with another hash.
    Unusable,
    /// The table had none, and the options require one.
    NoFilter,
    /// The filter differed from the one that the options require, or they require none.
    OffPlan,
    /// A prefix filter of another extractor.
    OtherExtractor,
}

/// Receives the events of a store.
///
/// Called on the thread where the event happens, sometimes with a lock held. So a listener must be
/// quick and must not call the store; it may drop handles. If it panics, the panic hook runs, and
/// the store continues.
pub trait EventListener: Debug + Send + Sync {
    /// Handles `event`.
    fn on_event(&self, event: &Event);
}

pub(crate) fn notify(listener: &dyn EventListener, event: &Event) {
    // A panic would leave a write or background work unfinished.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| listener.on_event(event)));
}
