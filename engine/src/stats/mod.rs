//! Statistics of a store.

/// Lists fields with their names, each after the prefix of its group.
macro_rules! named {
    ($($prefix:literal $of:expr => $($field:ident)+;)+) => {
        vec![$($((concat!($prefix, stringify!($field)), &mut $of.$field),)+)+]
    };
}

mod counters;
mod difference;
pub(crate) mod file;
mod level;
mod lookup_sample;
mod memory_moves;
mod text;

use std::time::Duration;

pub(crate) use counters::{Counters, LevelCounters, ThreadCounters};
pub use file::read_stats_file;
pub use level::{LevelShape, LevelStats};
pub(crate) use lookup_sample::Sampled;
pub use memory_moves::{CacheMoves, MemoryMoves};
pub(crate) use memory_moves::{CacheRivals, MoveCounter};

pub use crate::default_budget::BudgetSource;
use crate::{KeyspaceOptions, QuarantinedTable};

/// State of a store, and its counters since it was opened.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Time since the store was opened, by its clock.
    pub open_for: Duration,
    /// Time at which the store was opened, by the store clock, in milliseconds. Differs after each
    /// open.
    pub opened_ms: u64,
    /// Newest visible sequence number.
    pub last_sequence: u64,
    /// Point lookups, all keyspaces.
    pub lookups: LookupStats,
    /// Levels, all keyspaces, level 0 first. [`KeyspaceStats::levels`] has those of one keyspace.
    pub levels: Vec<LevelStats>,
    /// Writes.
    pub writes: WriteStats,
    /// Reads of table files by lookups, scans, compactions and opening of tables.
    pub table_reads: IoStats,
    /// Memory in use.
    pub memory: MemoryStats,
    /// Moves of memory between the block cache and the other parts.
    pub moves: MemoryMoves,
    /// Expected number of false positives of a lookup of an absent key, predicted by the last
    /// filter plan; 0 before the first plan.
    pub false_positives_planned: f64,
    /// Tables whose filter cannot be used, in whole or in part.
    pub tables_with_unusable_filters: u64,
    /// Tables whose filter is not, or only partly, in memory: for lack of room, or because the
    /// filter plan assigns the bits to newer tables.
    pub filters_not_whole: u64,
    /// Number of quarantined tables, which compactions do not read.
    pub tables_quarantined: u64,
    /// The quarantined tables, with file and cause. Not in the file `STATS`
    /// ([`Options::stats_file_interval`](crate::Options::stats_file_interval)).
    pub quarantined: Vec<QuarantinedTable>,
    /// Flushes, compactions, trivial moves and filter rebuilds.
    pub background: BackgroundStats,
    /// Number of log segments.
    pub log_segments: u64,
    /// Length of all log segments, in bytes.
    pub log_bytes: u64,
    /// Length of the log segments that are kept only for [`Db::changes`](crate::Db::changes), in
    /// bytes.
    pub retained_log_bytes: u64,
    /// Sequence number after which all changes are kept; `None` if none are
    /// ([`Options::retain_changes`](crate::Options::retain_changes)).
    pub changes_kept_after: Option<u64>,
    /// Present delay of each write by back-pressure, in microseconds.
    pub write_delay_us: u64,
    /// Number of open [snapshots](crate::Db::snapshot) and [transactions](crate::Transaction).
    pub snapshots: u64,
    /// Time since the oldest open snapshot or transaction was opened, in microseconds; 0 if none is
    /// open. One at the sequence number of another has the age of that one. Compactions keep the
    /// versions visible to all of them.
    pub oldest_snapshot_us: u64,
    /// Least input of compactions that wait until the disk has space, in bytes; 0 if none waits.
    pub compaction_bytes_refused: u64,
    /// Reason why the store became read-only. `None` if it is writable, or was opened read-only.
    pub read_only: Option<String>,
    /// Keyspaces, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Duration of opening the store.
    pub opening: OpeningStats,
}

/// Duration of opening a store, by its clock: the steps in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OpeningStats {
    /// From the lock to the start of the workers.
    pub total: Duration,
    /// Reading the manifest, and replaying the log into memtables.
    pub log: Duration,
    /// Rewriting the replayed log as one segment; near 0 after a clean close.
    pub replayed: Duration,
    /// Opening the tables.
    pub tables: Duration,
    /// Loading filters into memory.
    pub filters: Duration,
    /// Making the recovered manifest durable: two files and their names, by four syncs.
    pub manifest: Duration,
    /// Threads that opened the tables, the caller's included.
    pub threads: usize,
    /// Bytes truncated after the last good record of the log, without space reserved and never
    /// written: see [`Event::TornTail`](crate::Event::TornTail).
    pub log_bytes_cut: u64,
    /// Bytes truncated at the end of the manifest: see
    /// [`Event::TornManifest`](crate::Event::TornManifest).
    pub manifest_bytes_cut: u64,
}

/// Lookups before they reach tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LookupStats {
    /// Keys looked up. `get`, `contains_key` and `may_contain` count one per call, `get_many` and
    /// `contains_many` one per key. Conditional writes, such as `insert_if_absent`, count one for
    /// each attempt. They need one attempt, unless another write comes in between.
    pub lookups: u64,
    /// Lookups answered by a memtable.
    pub found_in_memtables: u64,
    /// Probes of memtable filters.
    pub memtable_probes: u64,
    /// Negative probes of memtable filters.
    pub memtable_negatives: u64,
}

/// Writes by all calls. Refused and failed writes count only in stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteStats {
    /// Batches. A single write is a batch of one.
    pub batches: u64,
    /// Entries of these batches.
    pub entries: u64,
    /// Length of these batches in the log, without record headers, in bytes.
    pub bytes: u64,
    /// Syncs of log segments, by writes with [`Durability::Disk`](crate::Durability::Disk),
    /// asynchronous commits, [`Db::persist`](crate::Db::persist),
    /// [`Db::wait_durable`](crate::Db::wait_durable), change streams, checkpoints, ingests, changes
    /// of keyspaces, flushes, and the close. Concurrent callers share one.
    pub log_syncs: u64,
    /// Delays and waits of writes for flushes and compactions. A write may count several times.
    pub stalls: u64,
    /// Total duration of stalls over all threads, in microseconds.
    pub stalled_us: u64,
}

/// Calls of the file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoStats {
    /// Number of calls.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// Memory in use, in bytes, with the limits of
/// [`Options::memory_budget`](crate::Options::memory_budget).
///
/// Memtables, filters, indexes, bookkeeping, writing and block cache together take at most the
/// budget. Not included: fixed structures of a few megabytes (threads, counters), and what
/// `docs/memory.md` of the repository lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// Limit of all parts together. If parts were set and no budget: the default with these parts
    /// replaced. [`u64::MAX`] if [`block_cache_bytes`](crate::Options::block_cache_bytes) was set
    /// and no budget.
    pub budget_bytes: u64,
    /// Source of the budget, or of the default for parts that were not set. `None` if unknown: in a
    /// file `STATS` of another release.
    pub budget_source: Option<BudgetSource>,
    /// Memtables with their filters, active and frozen.
    pub memtable_bytes: u64,
    /// Present limit of memtables: it [adapts](MemoryMoves::memtable_limit_lowered). Does not bind
    /// a store that is opened [read-only](crate::Options::read_only).
    pub memtable_bytes_max: u64,
    /// Filters of tables, with free space in their chunks that was not returned to the system.
    pub filter_bytes: u64,
    /// Limit of filters. Exceeded only by filters that lookups hold when the limit is lowered.
    pub filter_bytes_max: u64,
    /// Top indexes of tables. No limit of their own.
    pub index_bytes: u64,
    /// Metadata of keyspaces and tables, such as bounds, and buffers of log and manifest.
    pub bookkeeping_bytes: u64,
    /// Buffers of flushes and compactions.
    pub writing_bytes: u64,
    /// Limit of `writing_bytes`. Long entries exceed it, for one flush and one other job at a time;
    /// the block cache shrinks by the excess.
    pub writing_bytes_max: u64,
    /// Blocks in the cache; in a [pool](crate::MemoryPool) those of all stores.
    pub block_cache_bytes: u64,
    /// Limit of the block cache: the part of the budget that the other parts leave. Changes in
    /// steps of 1/64 of the budget, at most 1 MiB.
    pub block_cache_bytes_max: u64,
    /// Resident pages for contents of blocks, including free pages kept for the next blocks. They
    /// are mapped, not allocated, and are part of `block_cache_bytes` and `pinned_bytes`. With
    /// `mlockall`, all pages mapped for blocks. Zero if blocks are on the heap: on systems other
    /// than Linux, and with pages of another size than 4 KiB.
    pub block_page_bytes: u64,
    /// Memory held only by values and iterators of callers: flushed memtables, blocks that are not
    /// in the cache, and read-ahead. The budget includes only the memtables.
    pub pinned_bytes: u64,
    /// Length of mapped table files, with [`ReadMode::Map`](crate::ReadMode::Map). Not in the
    /// budget: the operating system decides which pages are in memory. Cached blocks of a map count
    /// in `block_cache_bytes` too.
    pub mapped_bytes: u64,
}

/// Background work done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Compactions that only moved tables to another level.
    pub trivial_moves: u64,
    /// Tables that compactions unlinked without a read: all their entries had expired, or they were
    /// the oldest of a keyspace with [`CompactionStyle::Fifo`](crate::CompactionStyle::Fifo).
    pub tables_unlinked_unread: u64,
    /// Compactions aborted because the disk was full. Compactions with as much input wait until
    /// space is freed, or for a pause that doubles from 0.5 s to 60 s.
    pub compactions_without_space: u64,
    /// Filters of existing tables rebuilt or removed.
    pub filters_rebuilt: u64,
    /// Bytes of tables written by flushes.
    pub flush_bytes_written: u64,
    /// Bytes of tables read by compactions.
    pub compaction_bytes_read: u64,
    /// Bytes of tables written by compactions.
    pub compaction_bytes_written: u64,
}

/// State of a keyspace.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Name of the keyspace.
    pub name: String,
    /// Present [options](crate::Keyspace::options).
    pub options: KeyspaceOptions,
    /// Memory of memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memtables that await their flush.
    pub frozen_memtables: u64,
    /// Sorted runs on all levels.
    pub runs: u64,
    /// Tables on all levels.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub table_bytes: u64,
    /// Blob files, which hold [long values](KeyspaceOptions::blob_value_bytes).
    pub blob_files: u64,
    /// Length of the blob files, in bytes. `table_bytes` does not include it.
    pub blob_bytes: u64,
    /// Stored values in blob files that no table refers to, in bytes.
    pub blob_garbage_bytes: u64,
    /// Maximum number of blob files that alternate in the key order of a table: see
    /// [`blob_depth_max`](KeyspaceOptions::blob_depth_max).
    pub blob_depth: u64,
    /// Entries in tables, tombstones and old versions included.
    pub entries: u64,
    /// Merge operands in tables.
    pub merge_operands: u64,
    /// Range tombstones in tables, included in `entries`. One that extends over several tables
    /// counts once for each.
    pub range_tombstones: u64,
    /// Keys whose operands a flush or a compaction kept because the operator failed.
    pub merges_failed: u64,
    /// Levels with tables, level 0 first.
    pub levels: Vec<LevelShape>,
}
