//! What a store holds and what it did.

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

/// What a store holds and what it did since it was opened.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Time since the store was opened, by its clock.
    pub open_for: Duration,
    /// The newest sequence number that readers see.
    pub last_sequence: u64,
    /// Point lookups, over all keyspaces.
    pub lookups: LookupStats,
    /// Levels, over all keyspaces: level 0 first. What each keyspace holds on them is in
    /// [`KeyspaceStats::levels`].
    pub levels: Vec<LevelStats>,
    /// What writes did.
    pub writes: WriteStats,
    /// Reads of table files, whoever asked: lookups, scans, compactions, opening of tables.
    pub table_reads: IoStats,
    /// What is in memory.
    pub memory: MemoryStats,
    /// Moves of memory between the block cache and the other parts.
    pub moves: MemoryMoves,
    /// Sorted runs that a lookup of an absent key searches in vain, on average, as the last plan of
    /// the filters predicts; 0 before there is one.
    pub false_positives_planned: f64,
    /// Tables whose filter cannot be used at present, or not all of it.
    pub tables_with_unusable_filters: u64,
    /// Tables of whose filter only a part is in memory, or nothing: for want of room, or because
    /// newer tables need the bits of the policy more.
    pub filters_not_whole: u64,
    /// Number of quarantined tables: compactions do not read them.
    pub tables_quarantined: u64,
    /// The quarantined tables, each with its file and the cause. Not in the file `STATS`
    /// ([`Options::stats_file_interval`](crate::Options::stats_file_interval)).
    pub quarantined: Vec<QuarantinedTable>,
    /// Flushes, compactions, trivial moves and filters rebuilt.
    pub background: BackgroundStats,
    /// Log segments that exist.
    pub log_segments: u64,
    /// Length of all log segments, in bytes.
    pub log_bytes: u64,
    /// Present delay of each write by back-pressure, in microseconds.
    pub write_delay_us: u64,
    /// Snapshots that are open: [`Db::snapshot`](crate::Db::snapshot).
    pub snapshots: u64,
    /// How long there has been a snapshot of the oldest state that is held, without a break, in
    /// microseconds; 0 without any. What it sees cannot be compacted away.
    pub oldest_snapshot_us: u64,
    /// Why the store became read-only, if it did. Not that it was opened so.
    pub read_only: Option<String>,
    /// Each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// What the opening of the store took.
    pub opening: OpeningStats,
}

/// What the opening of a store took, by its clock: the parts in the order in which they come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OpeningStats {
    /// From the lock to the start of the workers.
    pub total: Duration,
    /// Reading the manifest, and replaying the log behind it into memtables.
    pub log: Duration,
    /// Rewriting the replayed log as one segment; close to zero after a clean close.
    pub replayed: Duration,
    /// Opening the tables.
    pub tables: Duration,
    /// Reading their filters into memory.
    pub filters: Duration,
    /// Making the recovered manifest durable: two files and their names, by four syncs.
    pub manifest: Duration,
    /// Threads that opened the tables, the caller's included.
    pub threads: usize,
    /// Bytes that were cut off behind the last good record of the log, in its segment and in those
    /// behind it, without room that no record was written to: see
    /// [`Event::TornTail`](crate::Event::TornTail).
    pub log_bytes_cut: u64,
    /// Bytes at the end of the manifest that were cut off: see
    /// [`Event::TornManifest`](crate::Event::TornManifest).
    pub manifest_bytes_cut: u64,
}

/// What lookups did before they came to tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LookupStats {
    /// Keys that were asked for: by `get`, `contains_key` and `may_contain` one a call, by
    /// `get_many` and `contains_many` one for each key, by `insert_if_absent` one for a key that is
    /// there, and two or more for a new one, which is looked for again when its turn to be written
    /// has come.
    pub lookups: u64,
    /// Lookups that a memtable answered.
    pub found_in_memtables: u64,
    /// Questions to memtable filters.
    pub memtable_probes: u64,
    /// Memtable filters that said no.
    pub memtable_negatives: u64,
}

/// What writes did, whichever call made them. What was refused or failed is not counted, but for
/// its stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteStats {
    /// Batches, a single write being one.
    pub batches: u64,
    /// Entries of these batches.
    pub entries: u64,
    /// Their length in the log, without the headers of records, in bytes.
    pub bytes: u64,
    /// Syncs of log segments: for writes with [`Durability::Disk`](crate::Durability::Disk), for
    /// [`Db::persist`](crate::Db::persist), before a flush is installed, and at the end. Writers
    /// that come at the same time share one.
    pub log_syncs: u64,
    /// How often a write was delayed, or waited, for flushes and compactions. One write may be
    /// several times.
    pub stalls: u64,
    /// How long that took, added up over all threads, in microseconds.
    pub stalled_us: u64,
}

/// Calls to the file system and the bytes they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoStats {
    /// Number of calls.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// What is in memory, in bytes, with the limits of
/// [`Options::memory_budget`](crate::Options::memory_budget).
///
/// Memtables, filters, indexes, bookkeeping, writing and block cache together take at most the
/// budget. Not included: fixed structures of a few megabytes (threads, counters), and what
/// `docs/memory.md` of the repository lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// Limit of all parts together. If limits of parts were set and no budget, the default with
    /// these limits in place of its own. [`u64::MAX`] if no budget was set, but
    /// [`block_cache_bytes`](crate::Options::block_cache_bytes) was.
    pub budget_bytes: u64,
    /// Source of the budget. If parts were set and no budget, the source of the default that the
    /// other parts are shares of. `None` if not known: in a file `STATS` of another release.
    pub budget_source: Option<BudgetSource>,
    /// Memtables with their filters, active and frozen.
    pub memtable_bytes: u64,
    /// Bound of the memtables at present: it [adapts](MemoryMoves::memtable_limit_lowered). Not of
    /// those of a store that is opened [read-only](crate::Options::read_only).
    pub memtable_bytes_max: u64,
    /// Filters of tables, with what is free in the chunks that they lie in and was not given back
    /// to the system.
    pub filter_bytes: u64,
    /// Bound of the filters. They are within it, but for what lookups hold for some seconds or
    /// longer when it is cut.
    pub filter_bytes_max: u64,
    /// Top indexes of tables. They take what they need.
    pub index_bytes: u64,
    /// What must be known of keyspaces and tables besides, their bounds among it, and the buffers
    /// of log and manifest.
    pub bookkeeping_bytes: u64,
    /// Tables that are being written, and what is read for that.
    pub writing_bytes: u64,
    /// Bound of the tables that are being written and of what is read for them. Entries that are
    /// long for it take more, one worker at a time; the block cache then gives way to that.
    pub writing_bytes_max: u64,
    /// Blocks in the cache; those of all stores of a [pool](crate::MemoryPool).
    pub block_cache_bytes: u64,
    /// Bound of the block cache: what the other parts leave of the budget at this moment, in steps
    /// of 1/64 of it and at most 1 MiB.
    pub block_cache_bytes_max: u64,
    /// Resident pages that hold contents of blocks, and those that are kept for the next blocks.
    /// These bytes come from the system, not from the allocator. They are a part of
    /// `block_cache_bytes` and `pinned_bytes`, not in addition to them. 0 where blocks lie on the
    /// heap: on systems other than Linux, and with pages of another size than 4 KiB. If the kernel
    /// takes no page back (`mlockall`), all pages that were mapped for blocks.
    pub block_page_bytes: u64,
    /// Memory that only callers hold, by values and iterators: flushed memtables, blocks that are
    /// not in the cache, and read-ahead of iterators. The memtables are part of the budget: the
    /// block cache shrinks by them. The rest is beyond the budget.
    pub pinned_bytes: u64,
    /// Length of the table files that are mapped, with [`ReadMode::Map`](crate::ReadMode::Map).
    /// Beyond the budget: which of their pages are in memory is the operating system's choice, and
    /// it takes them back. Blocks of a map that the cache holds count in `block_cache_bytes` as
    /// others do.
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
    /// Filters rebuilt for tables that there were already, or removed.
    pub filters_rebuilt: u64,
    /// Bytes of tables written by flushes.
    pub flush_bytes_written: u64,
    /// Bytes of tables read by compactions.
    pub compaction_bytes_read: u64,
    /// Bytes of tables written by compactions.
    pub compaction_bytes_written: u64,
}

/// What a keyspace holds.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its present [options](crate::Keyspace::options).
    pub options: KeyspaceOptions,
    /// Memory of its memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub frozen_memtables: u64,
    /// Sorted runs, all levels.
    pub runs: u64,
    /// Tables, all levels.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub table_bytes: u64,
    /// Entries in tables, tombstones and old versions included.
    pub entries: u64,
    /// The levels that have tables, level 0 first.
    pub levels: Vec<LevelShape>,
}
