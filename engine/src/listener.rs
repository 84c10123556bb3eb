//! What a store tells its owner.

use std::{
    fmt::Debug,
    panic::{self, AssertUnwindSafe},
};

use crate::{Error, filter_role::FilterRole};

/// Something that happened inside a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Event {
    /// Recovery cut off the end of a log: the last writes before a crash, none of them synced.
    TornTail { log_id: u64, offset: u64 },
    /// Recovery cut off the last `bytes` bytes of a manifest, which are no record: an edit that a
    /// crash broke off before it was acknowledged, or the last one, damaged since. Then the change
    /// of the store that it held is undone, such as the last `set_filter_policy`.
    TornManifest { manifest_id: u64, offset: u64, bytes: u64 },
    /// The filter of a table cannot be used, so every lookup in its range asks the table itself.
    FilterUnusable { keyspace: String, table_id: u64, reason: String },
    /// A filter of a table was rebuilt, or removed if the options want none.
    FilterRebuilt { keyspace: String, table_id: u64, role: FilterRole, reason: FilterRebuildReason },
    /// A filter of a table was to be rebuilt, and that failed. It is not tried again before the
    /// store is opened the next time or its memory budget changes, unless the table is compacted
    /// first.
    FilterNotRebuilt { keyspace: String, table_id: u64, role: FilterRole, error: Error },
    /// A memtable became `bytes` bytes of tables on level 0.
    Flushed { keyspace: String, bytes: u64 },
    /// A compaction into `level` read `bytes_read` and wrote `bytes_written` bytes; both are 0 if
    /// tables only changed their level.
    Compacted { keyspace: String, level: u8, bytes_read: u64, bytes_written: u64 },
    /// A compaction could not read a table, because of damage or a lasting read error, and
    /// quarantined it: compactions do not read it, everything else continues. `error` has the file
    /// and the offset.
    ///
    /// [`Stats::quarantined`](crate::Stats::quarantined) lists these tables.
    /// [`QuarantinedTable`](crate::QuarantinedTable) says when compactions read them again.
    /// `docs/operations.md`, "When a table is damaged", says how to rescue their data.
    TableQuarantined { keyspace: String, table_id: u64, error: Error },
    /// Background work was postponed because the disk is full, no file descriptor is left, or the
    /// system is short of memory.
    NoSpace { error: Error },
    /// The system refused `membarrier`, which it allowed when the store was opened, as under a
    /// seccomp filter. Reported once. Lookups pass a memory fence instead, which costs some
    /// nanoseconds each. The memtables that a keyspace has at this time stay in memory until each
    /// thread that has read the keyspace reads it again.
    BarriersRefused,
    /// The store became read-only.
    ReadOnly { cause: Error },
}

/// Why a filter was rebuilt, or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRebuildReason {
    /// It was damaged, missing, of an unknown kind, or made with another hash.
    Unusable,
    /// The table had none, and the options want one.
    NoFilter,
    /// It was another one than the options want, or they want none.
    OffPlan,
    /// A prefix filter: its prefixes were those of another extractor.
    OtherExtractor,
}

/// Receives the events of a store.
///
/// Called on the thread where the event happens, sometimes with a lock held: it must be quick and
/// must not call the store. If it panics, the panic hook tells, and the store goes on.
pub trait EventListener: Debug + Send + Sync {
    /// Takes notice of `event`.
    fn on_event(&self, event: &Event);
}

/// Tells `listener` of `event`.
pub(crate) fn notify(listener: &dyn EventListener, event: &Event) {
    // A panic would leave undone what others wait for: a write, or a step of background work.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| listener.on_event(event)));
}
