//! What a store holds and what it did.

mod counters;
mod lookup_sample;

use std::fmt;

pub(crate) use counters::{Counters, LevelCounters, ThreadCounters};
pub(crate) use lookup_sample::Sampled;

/// What a store holds and what it did since it was opened.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The newest sequence number that readers see.
    pub last_sequence: u64,
    /// Point lookups, over all keyspaces.
    pub lookups: LookupStats,
    /// Level 0 first.
    pub levels: Vec<LevelStats>,
    /// Reads of table files, whoever asked: lookups, scans, compactions, opening of tables.
    pub table_reads: IoStats,
    /// What is in memory.
    pub memory: MemoryStats,
    /// Sorted runs that a lookup of an absent key searches in vain, on average, as the last plan of the
    /// filters predicts; 0 before there is one.
    pub false_positives_planned: f64,
    /// Tables whose filter cannot be used at present, or not all of it.
    pub filters_unusable: u64,
    /// Tables of whose filter only a part is in memory, or nothing: for want of room, or because newer tables
    /// need the bits of the policy more.
    pub filters_not_whole: u64,
    /// Flushes, compactions, trivial moves and filters rebuilt.
    pub background: BackgroundStats,
    /// Log segments that exist.
    pub log_segments: u64,
    /// Length of all log segments, in bytes.
    pub log_bytes: u64,
    /// Present delay of each write by back-pressure, in microseconds.
    pub write_delay_us: u64,
    /// Why the store is read-only, if it is.
    pub read_only: Option<String>,
    /// Each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
}

/// What lookups did before they came to tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStats {
    /// Keys that were asked for: by `get`, `contains_key` and `may_contain` one a call.
    pub lookups: u64,
    /// Lookups that a memtable answered.
    pub found_in_memtables: u64,
    /// Questions to memtable filters.
    pub memtable_probes: u64,
    /// Memtable filters that said no.
    pub memtable_negatives: u64,
}

/// What a level holds, and what lookups did there.
///
/// `candidates` is the sum of `filter_negatives`, `true_positives` and `false_positives`, where a
/// table without a usable filter counts as a positive.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Sorted runs at present.
    pub runs: u64,
    /// Tables at present.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub bytes: u64,
    /// Entries in the tables, tombstones and old versions included.
    pub entries: u64,
    /// Tombstones in the tables.
    pub tombstones: u64,
    /// Memory of the filters, in bytes.
    pub filter_bytes: u64,
    /// Expected false-positive rate of the filters: the mean over tables by their keys, from 0 to 1.
    pub filter_fpr_expected: f64,
    /// Tables whose range held the key looked up.
    pub candidates: u64,
    /// Candidates that their filter ruled out.
    pub filter_negatives: u64,
    /// Candidates asked that had the key.
    pub true_positives: u64,
    /// Candidates asked in vain.
    pub false_positives: u64,
    /// Candidates asked because their filter could not be used.
    pub filter_unusable: u64,
    /// Candidates asked because memory had no room for their filter.
    pub filter_not_resident: u64,
    /// Prefix filters that scans asked.
    pub prefix_probes: u64,
    /// Tables that their prefix filter ruled out for a scan.
    pub prefix_negatives: u64,
    /// Tables that a scan could not ask because their prefix filter could not be used: damaged, of
    /// another extractor than the present one, or of one whose function is missing.
    pub prefix_unusable: u64,
    /// Range filters that scans asked: of tables with keys on both sides of the bounds.
    pub range_probes: u64,
    /// Tables that their range filter ruled out for a scan.
    pub range_negatives: u64,
    /// Tables that a scan could not ask because their range filter is damaged.
    pub range_unusable: u64,
    /// Data blocks that lookups asked the cache for.
    pub data_block_requests: u64,
    /// Index partitions that lookups asked the cache for.
    pub index_block_requests: u64,
    /// Blocks that the cache did not have, so that they were read from the file.
    pub blocks_read: u64,
    /// Length of those blocks in the file, in bytes.
    pub bytes_read: u64,
}

impl LevelStats {
    /// Measured false-positive rate: false positives over all absent answers, from 0 to 1.
    #[must_use]
    pub fn filter_fpr_measured(&self) -> f64 {
        let absent = self.filter_negatives + self.false_positives;
        if absent == 0 { 0.0 } else { self.false_positives as f64 / absent as f64 }
    }
}

/// Calls to the file system and the bytes they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoStats {
    /// Number of calls.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// What is in memory, in bytes, with the limits of [`Options::memory_budget`](crate::Options::memory_budget).
///
/// The parts but `pinned_bytes` are together at most the budget, but for fixed structures of a few
/// megabytes: threads, counters, the manifest, the buffer of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Memtables with their filters, active and frozen.
    pub memtable_bytes: u64,
    /// Bound of the memtables.
    pub memtable_bytes_max: u64,
    /// Filters of tables, with what is free in the chunks that they lie in.
    pub filter_bytes: u64,
    /// Bound of the filters.
    pub filter_bytes_max: u64,
    /// Top indexes of tables. They take what they need, out of the block cache's part.
    pub index_bytes: u64,
    /// Tables that are being written, about.
    pub writing_bytes: u64,
    /// Bound of the tables that are being written.
    pub writing_bytes_max: u64,
    /// Blocks in the cache.
    pub block_cache_bytes: u64,
    /// Bound of the block cache, which gives way to the indexes.
    pub block_cache_bytes_max: u64,
    /// What only callers still hold, by iterators, values and writes that wait: memtables that were
    /// flushed since, batches that were in such ones, and blocks that are not in the cache. Beyond the
    /// budget.
    pub pinned_bytes: u64,
}

/// Background work done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Compactions that only moved tables to another level.
    pub trivial_moves: u64,
    /// Filters built anew for tables that there were already, or removed.
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
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
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
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "sequence {}, {} log segments of {} bytes",
            self.last_sequence, self.log_segments, self.log_bytes
        )?;
        let memory = &self.memory;
        writeln!(
            f,
            "memory: memtables {} of {} bytes, filters {} of {}, indexes {}, block cache {} of {}, \
             writing {} of {}; pinned by readers {}",
            memory.memtable_bytes,
            memory.memtable_bytes_max,
            memory.filter_bytes,
            memory.filter_bytes_max,
            memory.index_bytes,
            memory.block_cache_bytes,
            memory.block_cache_bytes_max,
            memory.writing_bytes,
            memory.writing_bytes_max,
            memory.pinned_bytes
        )?;
        for (level, stats) in self.levels.iter().enumerate().filter(|(_, l)| l.tables > 0) {
            writeln!(
                f,
                "level {level}: {} runs, {} tables, {} bytes, {} entries; {} candidates, \
                 {} ruled out, {} found, {} false positives ({:.3} %, {:.3} % expected)",
                stats.runs,
                stats.tables,
                stats.bytes,
                stats.entries,
                stats.candidates,
                stats.filter_negatives,
                stats.true_positives,
                stats.false_positives,
                stats.filter_fpr_measured() * 100.0,
                stats.filter_fpr_expected * 100.0
            )?;
            if stats.range_probes + stats.range_unusable > 0 {
                writeln!(
                    f,
                    "level {level}: {} range filters asked by scans, {} tables ruled out, {} filters \
                     of no use",
                    stats.range_probes, stats.range_negatives, stats.range_unusable
                )?;
            }
            if stats.prefix_probes + stats.prefix_unusable > 0 {
                writeln!(
                    f,
                    "level {level}: {} prefix filters asked by scans, {} tables ruled out, {} filters \
                     of no use",
                    stats.prefix_probes, stats.prefix_negatives, stats.prefix_unusable
                )?;
            }
        }
        for keyspace in &self.keyspaces {
            writeln!(
                f,
                "keyspace {:?}: {} runs, {} tables, {} bytes, {} entries",
                keyspace.name,
                keyspace.runs,
                keyspace.tables,
                keyspace.table_bytes,
                keyspace.entries
            )?;
        }
        if self.filters_unusable > 0 {
            writeln!(f, "{} filters cannot be used", self.filters_unusable)?;
        }
        if self.filters_not_whole > 0 {
            writeln!(f, "{} filters are not whole in memory", self.filters_not_whole)?;
        }
        if let Some(cause) = &self.read_only {
            writeln!(f, "read-only: {cause}")?;
        }
        Ok(())
    }
}
