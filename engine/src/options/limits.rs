//! Options that limit memory, log and open files.

use super::Options;
#[cfg(doc)]
use super::{
    DEFAULT_LOG_BYTES_MAX, DEFAULT_LOG_SEGMENT_BYTES, DEFAULT_MEMORY_BUDGET_MAX,
    DEFAULT_MEMORY_BUDGET_MIN, DEFAULT_OPEN_FILES_MAX, FALLBACK_MEMORY_BUDGET, MEMORY_BUDGET_MIN,
    MEMORY_BUDGET_PER_WORKER_MIN,
};
use crate::ChangeRetention;
#[cfg(doc)]
use crate::Error;
use crate::memory_pool::MemoryPool;

/// Limits of memory, log and open files.
impl Options {
    /// Memory of all keyspaces together, in bytes. Can be changed while the store is open:
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget).
    ///
    /// At least 8 MiB ([`MEMORY_BUDGET_MIN`]), or 4 MiB ([`MEMORY_BUDGET_PER_WORKER_MIN`]) for each
    /// worker thread if that is more. Default ([`None`]): 1/8 of the memory of the machine, from 64
    /// MiB ([`DEFAULT_MEMORY_BUDGET_MIN`]) to 1 GiB ([`DEFAULT_MEMORY_BUDGET_MAX`]). The default is
    /// at least the minimum for the worker threads.
    ///
    /// The memory of the machine is the physical memory, or the memory limit of a control group
    /// (cgroup) of the process if that is less; `memory.high` is not read. Both are read from
    /// `/proc` and `/sys/fs/cgroup` at each open, and by
    /// [`set_memory_budget(None)`](crate::Db::set_memory_budget). If they are unknown, as on
    /// systems other than Linux, the default is 256 MiB ([`FALLBACK_MEMORY_BUDGET`]). The budget
    /// and its source are in [`MemoryStats`](crate::stats::MemoryStats).
    ///
    /// The budget is one pool. Memtables (up to 1/4), filters (1/4), buffers of flushes and
    /// compactions (1/8), indexes and bookkeeping take what they use. The block cache has the rest
    /// at any time: it shrinks when they grow, and grows when they shrink. The limit of memtables
    /// adapts between 1/16 and 1/4. It is lowered while the block cache would save more I/O with
    /// that memory, and restored for write bursts. After 2 s without a write, worker threads flush
    /// memtables that take more than 1/64 of the budget, if the block cache is nearly full.
    ///
    /// Not in the budget: values and blocks that callers hold, and batches before their commit.
    ///
    /// The budget holds if entries are at most 1/64 of it, and if bookkeeping leaves room for the
    /// block cache. Indexes and bookkeeping take 2 to 4 KiB for each small table. Bookkeeping takes
    /// about 2 KB for each keyspace without writes
    /// ([`bookkeeping_bytes`](crate::stats::MemoryStats::bookkeeping_bytes)). Longer entries are
    /// accepted, up to 3/4 of the limit of memtables: their values go to blob files. Flushes and
    /// compactions of longer keys, merge operands and values that expire exceed the budget, one at
    /// a time: see [`writing_bytes`](crate::stats::MemoryStats::writing_bytes).
    ///
    /// `memtable_bytes_max`, `filter_bytes_max` and `block_cache_bytes` set limits by hand. With a
    /// budget, these limits must leave 1/16 of it to the block cache, unless its limit is set too.
    /// Otherwise the open fails with [`Error::BudgetTooSmall`]. Without a budget, each limit
    /// replaces that part of the default: `memtable_bytes_max` of 160 MiB turns a default of 256
    /// MiB into 352 MiB.
    pub fn memory_budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory.bytes = bytes.into();
        self
    }

    /// Memory shared with other stores of this process, instead of
    /// [`memory_budget`](Self::memory_budget); default none.
    ///
    /// Opening fails with [`Error::InvalidOption`] if `memory_budget` or
    /// [`block_cache_bytes`](Self::block_cache_bytes) is set too, and with
    /// [`Error::BudgetTooSmall`] if the pool is too small for one more store. `memtable_bytes_max`
    /// and `filter_bytes_max` limit this store alone.
    pub fn memory_pool(mut self, pool: &MemoryPool) -> Self {
        self.memory_pool = Some(pool.clone());
        self
    }

    /// Memory for memtables of all keyspaces together, in bytes.
    ///
    /// At least 512 KiB; default 1/4 of [`memory_budget`](Self::memory_budget). The default adapts;
    /// a limit set here does not. When active memtables take more than 1/2 of the limit, the
    /// largest is frozen. Writes are delayed above 3/4 of the limit, and wait for flushes at the
    /// limit.
    pub fn memtable_bytes_max(mut self, bytes: u64) -> Self {
        self.memory.memtable_bytes_max = Some(bytes);
        self
    }

    /// Memory for filters of tables, of all keyspaces together, in bytes. Can be changed while the
    /// store is open: [`Db::set_filter_bytes_max`](crate::Db::set_filter_bytes_max). For one
    /// keyspace: [`FilterPolicy::memory_bytes_max`](crate::FilterPolicy::memory_bytes_max).
    ///
    /// Filters that do not fit are reduced or dropped where that costs the fewest reads. Lookups of
    /// absent keys then read more blocks; results are the same.
    ///
    /// From 0; default 1/4 of [`memory_budget`](Self::memory_budget).
    pub fn filter_bytes_max(mut self, bytes: u64) -> Self {
        self.memory.filter_bytes_max = Some(bytes);
        self
    }

    /// Memory for data blocks, index partitions and indexes of tables, in bytes. Indexes have
    /// priority. Filters are not included.
    ///
    /// From 0 (every block is read from its file); default the rest of
    /// [`memory_budget`](Self::memory_budget). If it is set without a budget, the other parts are
    /// added to it.
    pub fn block_cache_bytes(mut self, bytes: u64) -> Self {
        self.memory.block_cache_bytes = Some(bytes);
        self
    }

    /// Length at which a log segment is sealed and the next one begins, in bytes. A group of writes
    /// that are logged together may exceed it.
    ///
    /// At least 4 KiB; default 1/8 of [`log_bytes_max`](Self::log_bytes_max), at most 32 MiB
    /// ([`DEFAULT_LOG_SEGMENT_BYTES`]). With a budget of 256 MiB, the default is from 8 to 32 MiB;
    /// with 1 GiB or more, it is 32 MiB.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.log.segment_bytes = Some(bytes);
        self
    }

    /// Compresses the log records of batches by LZ4, in memory, before they are queued. Records
    /// below 1 KiB or above 4 MiB stay uncompressed, as do those that would shrink by less than
    /// 1/8, and writes of one entry. Default `true`.
    ///
    /// A load of 1 million values in batches of 1,000 wrote 18 % fewer bytes to log and tables, for
    /// 3 % more CPU time. The values had 100 bytes, half of each compressible. Set `false` if
    /// values are compressed or encrypted. A later open reads the log with or without this option.
    pub fn log_compression(mut self, compress: bool) -> Self {
        self.log_compression = compress;
        self
    }

    /// Retention of changes for [`Db::changes`](crate::Db::changes). The store records it: a later
    /// open without this option keeps it. Default for a new store: [`ChangeRetention::none`], which
    /// costs nothing.
    ///
    /// The retention begins at the open that sets it: older changes are not in the stream. Costs
    /// disk space, and one sync for each log segment. Long values of keyspaces with
    /// [`blob_value_bytes`](crate::KeyspaceOptions::blob_value_bytes) are written twice: to the
    /// log, and to blob files. Other writes take no longer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use sievedb::{ChangeRetention, Options};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// let retention = ChangeRetention::bytes(1 << 30).age_max(week);
    /// let db = Options::new().retain_changes(retention).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn retain_changes(mut self, retention: ChangeRetention) -> Self {
        self.change_retention = Some(retention);
        self
    }

    /// Length of the log, in bytes, at which the keyspaces that pin its oldest segment are flushed.
    /// Bounds the time of recovery, and the disk space pinned by keyspaces with few writes.
    ///
    /// At least 8 KiB, and at least twice [`log_segment_bytes`](Self::log_segment_bytes) if that is
    /// set.
    ///
    /// Default: 4 times the present limit of memtables, from 32 MiB to 256 MiB
    /// ([`DEFAULT_LOG_BYTES_MAX`]). That limit [adapts](Self::memory_budget): with a budget of 256
    /// MiB, the default is from 64 to 256 MiB; with 1 GiB or more, it is 256 MiB. In a
    /// [pool](Self::memory_pool) it may be less. The default is at least twice `log_segment_bytes`,
    /// for segments up to 128 MiB: set this option for longer segments. The default changes with
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget); a value set here does not.
    pub fn log_bytes_max(mut self, bytes: u64) -> Self {
        self.log.bytes_max = Some(bytes);
        self
    }

    /// Maximum number of open table files. Filters and indexes of tables stay in memory regardless.
    ///
    /// Keep it below the limit of open files of the process (`ulimit -n`). A store that reaches the
    /// limit of the process closes half of its table files, so that flushes and the log can open
    /// files. It lowers this maximum to the rest. Reads then open and close more files. After 1,000
    /// opens of files that were not open, the maximum doubles again. Each further doubling takes
    /// twice as many opens, up to about a million.
    ///
    /// Stores of a [`memory_pool`](Self::memory_pool) close files for one another. Other stores of
    /// the process do not: keep the sum of their maxima below the limit.
    ///
    /// From 1; default 512 ([`DEFAULT_OPEN_FILES_MAX`]).
    pub fn open_files_max(mut self, files: usize) -> Self {
        self.open_files_max = files;
        self
    }
}
