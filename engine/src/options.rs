//! How a store is opened.

mod read_mode;
mod validate;

use std::{sync::Arc, time::Duration};

#[cfg(doc)]
use crate::Error;
use crate::{
    Durability, KeyspaceOptions,
    clock::{Clock, SystemClock},
    fs::{Fs, RealFs},
    listener::EventListener,
    log_limits::LogLimits,
    memory_budget::MemoryBudget,
    memory_pool::MemoryPool,
    planted::PlantedBug,
};
use sievedb_sstable::PrefixFunction;

pub use self::read_mode::ReadMode;
pub use crate::{
    default_budget::{
        DEFAULT_MEMORY_BUDGET_MAX, DEFAULT_MEMORY_BUDGET_MIN, DEFAULT_MEMORY_BUDGET_SHARE,
        FALLBACK_MEMORY_BUDGET,
    },
    log_limits::{DEFAULT_LOG_BYTES_MAX, DEFAULT_LOG_SEGMENT_BYTES},
    memory_budget::{MEMORY_BUDGET_MIN, MEMORY_BUDGET_PER_WORKER_MIN},
};

/// Default of [`Options::open_files_max`].
pub const DEFAULT_OPEN_FILES_MAX: usize = 512;
/// Default of [`Options::worker_threads`].
pub const DEFAULT_WORKER_THREADS: usize = 2;

/// How a store is opened. [`Options::default`] is complete and meant for a small server.
///
/// What a keyspace keeps for itself is in [`KeyspaceOptions`], and stored with it: an existing
/// store may be opened without knowing them. [`Options::keyspace`] sets those of the default
/// keyspace.
#[derive(Debug, Clone)]
#[must_use = "options do nothing until `open`"]
pub struct Options {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) durability: Durability,
    pub(crate) memory: MemoryBudget,
    pub(crate) memory_pool: Option<MemoryPool>,
    pub(crate) log: LogLimits,
    pub(crate) open_files_max: usize,
    pub(crate) worker_threads: usize,
    pub(crate) read_mode: ReadMode,
    pub(crate) stats_file_interval: Option<Duration>,
    /// `None` if nobody said: the default keyspace keeps its own then.
    pub(crate) keyspace: Option<KeyspaceOptions>,
    pub(crate) create_if_missing: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) background_rewrites: bool,
    pub(crate) idle_compactions: bool,
    pub(crate) warms_up: bool,
    pub(crate) prefix_functions: Vec<Arc<dyn PrefixFunction>>,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted_bug: Option<PlantedBug>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs: Arc::new(RealFs),
            clock: Arc::new(SystemClock::default()),
            listener: None,
            durability: Durability::default(),
            memory: MemoryBudget::default(),
            memory_pool: None,
            log: LogLimits::default(),
            open_files_max: DEFAULT_OPEN_FILES_MAX,
            worker_threads: DEFAULT_WORKER_THREADS,
            read_mode: ReadMode::default(),
            stats_file_interval: None,
            keyspace: None,
            create_if_missing: true,
            create_new: false,
            read_only: false,
            background_rewrites: true,
            idle_compactions: true,
            warms_up: true,
            prefix_functions: Vec::new(),
            #[cfg(feature = "planted-bugs")]
            planted_bug: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the file system is; default [`RealFs`].
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// What tells the time; default [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Who is told what happens inside; default nobody.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Durability of writes that do not name one; default [`Durability::OsBuffer`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Memory of all keyspaces together, in bytes. May be changed while the store is open:
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget).
    ///
    /// At least 8 MiB ([`MEMORY_BUDGET_MIN`]), or 4 MiB ([`MEMORY_BUDGET_PER_WORKER_MIN`]) for each
    /// worker thread if that is more. Default ([`None`]): 1/8 of the memory of the machine, from 64
    /// MiB ([`DEFAULT_MEMORY_BUDGET_MIN`]) to 1 GiB ([`DEFAULT_MEMORY_BUDGET_MAX`]), or the least
    /// budget for the worker threads if that is more.
    ///
    /// The memory of the machine is the physical memory, or the memory limit of a control group
    /// (cgroup) that the process is in, if that is less. It is read at each open, since a limit may
    /// change, and by [`set_memory_budget(None)`](crate::Db::set_memory_budget), from `/proc` and
    /// `/sys/fs/cgroup`. On other systems than Linux, and if neither can be read, the default is
    /// 256 MiB ([`FALLBACK_MEMORY_BUDGET`]). The budget and its source are in
    /// [`MemoryStats`](crate::stats::MemoryStats).
    ///
    /// The budget is one pool. Memtables (at most a quarter of it), filters (a quarter), buffers of
    /// flushes and compactions (an eighth), indexes and bookkeeping take what they use, and the
    /// block cache has the rest at any time. It shrinks when they grow, and grows when they shrink.
    /// The limit of memtables adapts between a sixteenth and a quarter: it is lowered while the
    /// block cache would spare more I/O with that memory, and restored for write bursts. After 2
    /// seconds without a write to the store, worker threads flush memtables if these take more than
    /// 1/64 of the budget and the block cache is nearly full.
    ///
    /// Values and blocks that callers hold, and a batch before it is committed, come on top: see
    /// [`MemoryStats`](crate::stats::MemoryStats).
    ///
    /// The sum is not exceeded as long as entries are at most 1/64 of the budget, and what must be
    /// known of tables and keyspaces
    /// ([`bookkeeping_bytes`](crate::stats::MemoryStats::bookkeeping_bytes), some 4 KB for each)
    /// leaves something for the block cache. Longer entries are taken, up to 3/4 of the memtables'
    /// part; flushes and compactions then have more in memory than the budget allows, one at a
    /// time, and [`writing_bytes`](crate::stats::MemoryStats::writing_bytes) tells how much.
    ///
    /// The next three set bounds by hand. With a budget that was set they have to leave the block
    /// cache a sixteenth of it, unless that was set too: else opening the store is an
    /// [`Error::BudgetTooSmall`]. Without one, each takes the place of that part of the default:
    /// `memtable_bytes_max` of 160 MiB alone makes a budget of 352 MiB where the default is 256
    /// MiB.
    pub fn memory_budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory.bytes = bytes.into();
        self
    }

    /// Memory shared with other stores of this process, instead of
    /// [`memory_budget`](Self::memory_budget); default none.
    ///
    /// Not together with `memory_budget`, nor with [`block_cache_bytes`](Self::block_cache_bytes):
    /// opening fails with [`Error::InvalidOption`]. It fails with [`Error::BudgetTooSmall`] if the
    /// pool is too small for the stores that have joined it and this one. `memtable_bytes_max` and
    /// `filter_bytes_max` stay bounds of the store.
    pub fn memory_pool(mut self, pool: &MemoryPool) -> Self {
        self.memory_pool = Some(pool.clone());
        self
    }

    /// Memory for memtables, active and frozen, of all keyspaces together, in bytes.
    ///
    /// From 512 KiB; default a quarter of [`memory_budget`](Self::memory_budget), which says what
    /// becomes of the other parts. The default adapts; a limit that was set does not. When active
    /// memtables take more than half of it, the largest is frozen; writes are slowed from 3/4 on,
    /// and wait for flushes when it is full.
    pub fn memtable_bytes_max(mut self, bytes: u64) -> Self {
        self.memory.memtable_bytes_max = Some(bytes);
        self
    }

    /// Memory for the filters of tables, of all keyspaces together, in bytes.
    ///
    /// What does not fit is in memory in part or not at all, where that costs the fewest reads: an
    /// absent key then reads more, never wrongly. May be changed while the store is open:
    /// [`Db::set_filter_bytes_max`](crate::Db::set_filter_bytes_max). For one keyspace:
    /// [`FilterPolicy::memory_bytes_max`](crate::FilterPolicy::memory_bytes_max).
    ///
    /// From 0; default a quarter of [`memory_budget`](Self::memory_budget), which says what becomes
    /// of the other parts.
    pub fn filter_bytes_max(mut self, bytes: u64) -> Self {
        self.memory.filter_bytes_max = Some(bytes);
        self
    }

    /// Memory for data blocks and index partitions, and for the indexes of tables, which come
    /// first, in bytes. Filters are never in it.
    ///
    /// From 0 (every block is read from its file); default what the other parts leave of
    /// [`memory_budget`](Self::memory_budget) at any moment. If it is set and no budget is, the
    /// other parts come on top.
    pub fn block_cache_bytes(mut self, bytes: u64) -> Self {
        self.memory.block_cache_bytes = Some(bytes);
        self
    }

    /// Length at which a log segment is sealed and the next one begun, in bytes.
    ///
    /// From 4 KiB; default an eighth of [`log_bytes_max`](Self::log_bytes_max), at most 32 MiB
    /// ([`DEFAULT_LOG_SEGMENT_BYTES`]), which it is with a budget of 256 MiB or more. A segment may
    /// exceed it by the writes that are logged together.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.log.segment_bytes = Some(bytes);
        self
    }

    /// Length of all log segments at which the keyspaces that pin the oldest one are flushed.
    ///
    /// Bounds the time that recovery takes, and the disk that keyspaces pin which are seldom
    /// written to.
    ///
    /// From 8 KiB, and at least twice [`log_segment_bytes`](Self::log_segment_bytes) if that is
    /// set. By default four times what memtables may take: 256 MiB ([`DEFAULT_LOG_BYTES_MAX`]) with
    /// a [`memory_budget`](Self::memory_budget) of 256 MiB or more; less with a smaller one, at
    /// least 32 MiB and twice a `log_segment_bytes` that is set, if that is 128 MiB at most: with a
    /// longer one set this, too. It follows
    /// [`Db::set_memory_budget`](crate::Db::set_memory_budget). If it is set it stays as it is.
    pub fn log_bytes_max(mut self, bytes: u64) -> Self {
        self.log.bytes_max = Some(bytes);
        self
    }

    /// Table files kept open at a time. A table's filter and index stay in memory regardless. Keep
    /// it below the process's limit of open files (`ulimit -n`): a store that meets the limit
    /// closes half of what it keeps open, and keeps no more from then on, so that flushes and the
    /// log have their files; a reader opens and closes more of them then.
    ///
    /// From 1; default 512 ([`DEFAULT_OPEN_FILES_MAX`]).
    pub fn open_files_max(mut self, files: usize) -> Self {
        self.open_files_max = files;
        self
    }

    /// Threads for flushes, compactions, and filters that are read back or rebuilt.
    ///
    /// From 0 to 64; default 2 ([`DEFAULT_WORKER_THREADS`]). With 0 the work is done on the writing
    /// thread right after the write that made it necessary: slow, but deterministic, for tests.
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.worker_threads = threads;
        self
    }

    /// How table files are read; default [`ReadMode::Pread`].
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// How often the store writes its statistics into the file `STATS` of its folder, for
    /// [`read_stats_file`](crate::stats::read_stats_file) and `sieve stats --watch` in other
    /// processes; default never.
    ///
    /// From 10 ms. Also written when the store is opened and closed, and removed when it is opened
    /// again. Costs a thread, and each time about 0.1 ms of it and one write of some 5 KB that
    /// nobody syncs. A failure to write it is passed over.
    pub fn stats_file_interval(mut self, interval: Duration) -> Self {
        self.stats_file_interval = Some(interval);
        self
    }

    /// Options of the default keyspace, and of keyspaces that are created without any.
    ///
    /// Those of the default keyspace are stored at each open that calls this, all of them, in the
    /// place of what was stored: as [`Keyspace::set_options`](crate::Keyspace::set_options) does.
    /// Without the call an existing default keyspace keeps its own, and a new one gets
    /// [`KeyspaceOptions::default`]. Every other keyspace that exists keeps its own in any case.
    pub fn keyspace(mut self, options: KeyspaceOptions) -> Self {
        self.keyspace = Some(options);
        self
    }

    /// Options of a keyspace that is created without any.
    pub(crate) fn new_keyspace(&self) -> KeyspaceOptions {
        self.keyspace.clone().unwrap_or_default()
    }

    /// Whether a store is made where there is none; default yes.
    ///
    /// If not, [`open`](Self::open) answers [`Error::NoStore`] for a missing folder and for one
    /// without a store, and makes nothing there.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Creates a new store, and fails with [`Error::StoreExists`] if one exists; default `false`.
    ///
    /// If several processes create a store in one directory, exactly one succeeds. Overrides
    /// [`create_if_missing`](Self::create_if_missing). Together with
    /// [`read_only`](Self::read_only), opening fails with [`Error::InvalidOption`].
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Whether the store is only read, so that nothing in its folder changes, not a byte nor a
    /// name; default no. For folders that may not be written to, for full disks, and to look into a
    /// store from several processes.
    ///
    /// Reads find what any other opening finds; the log is read into memtables. **These may take
    /// more than [`memtable_bytes_max`](Self::memtable_bytes_max)**, at most about as much as the
    /// log: what of it is in no table is needed as a whole. They count in
    /// [`memtable_bytes`](crate::stats::MemoryStats::memtable_bytes), and the other parts are as
    /// ever.
    ///
    /// Many processes may have a store open so, and nobody else meanwhile ([`Error::Locked`]). For
    /// that the file `LOCK` must be readable; a folder without one, such as a copy, is read without
    /// a lock.
    ///
    /// What would write answers [`Error::ReadOnly`], with [`Error::OpenedReadOnly`] as the cause.
    /// There are no workers: filters stay as they were loaded, unless the memory budget is changed.
    /// Nor is there a [file of statistics](Self::stats_file_interval). A folder without a store is
    /// [`Error::NoStore`]. Damage is told as ever, and so is a torn tail, which is passed over and
    /// not cut off.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether compactions and filters that are due are done in the background; default yes. For
    /// programs that look into a store and leave its tables as they are. What is asked for, by a
    /// flush or by [`Keyspace::compact`](crate::Keyspace::compact), is done all the same.
    #[doc(hidden)]
    pub fn background_rewrites(mut self, rewrites: bool) -> Self {
        self.background_rewrites = rewrites;
        self
    }

    /// Whether a short level 0 is compacted, though it is not due, once nothing was written for 0.3
    /// s, or for 10 s if it was there when the store was opened; default yes.
    ///
    /// Scans then look into fewer sorted runs. It costs at most 5 bytes written for each byte that
    /// was flushed, and only where little lies below; at most 10 more if flushes always cut it off,
    /// which leave no worker for it: see `docs/design.md`. Never without
    /// [`worker_threads`](Self::worker_threads).
    pub fn idle_compactions(mut self, quiet: bool) -> Self {
        self.idle_compactions = quiet;
        self
    }

    /// Whether what the cache has of the inputs of a compaction is read in of its outputs; default
    /// yes. To measure what that is worth.
    #[doc(hidden)]
    pub fn warms_up(mut self, warms_up: bool) -> Self {
        self.warms_up = warms_up;
        self
    }

    /// A function for keyspaces, the default one too, whose stored prefix extractor is
    /// [`PrefixExtractor::Custom`](crate::PrefixExtractor::Custom) with its name; of two with the
    /// same name the first one counts. By default there are none: such keyspaces do without their
    /// prefix filters, which stay with their tables, while tables that are written get none.
    pub fn prefix_function(mut self, function: Arc<dyn PrefixFunction>) -> Self {
        self.prefix_functions.push(function);
        self
    }

    /// Plants a bug, so that a test can show that it would be caught.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub fn planted_bug(mut self, bug: PlantedBug) -> Self {
        self.planted_bug = Some(bug);
        self
    }

    /// Whether there will be threads that work in the background.
    pub(crate) fn has_workers(&self) -> bool {
        self.worker_threads > 0 && !self.read_only
    }

    /// Whether a test has planted `bug`.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has_bug(&self, bug: PlantedBug) -> bool {
        self.planted_bug == Some(bug)
    }

    /// Whether a test has planted `bug`: not in this build.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn has_bug(&self, _: PlantedBug) -> bool {
        false
    }
}
