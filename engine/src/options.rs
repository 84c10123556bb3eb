//! Options of a store.

mod limits;
mod read_mode;
mod validate;

use std::{sync::Arc, time::Duration};

#[cfg(doc)]
use crate::Error;
use crate::{
    ChangeRetention, Durability, KeyspaceOptions,
    clock::{Clock, SystemClock},
    compaction_filter::CompactionFilter,
    encryption::{Keys, StoredFs},
    fs::{ArrivingFiles, Fs, RealFs},
    listener::EventListener,
    log_limits::LogLimits,
    memory_budget::MemoryBudget,
    memory_pool::MemoryPool,
    merge_operator::MergeOperator,
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

/// Options of a store. [`Options::default`] suits a small server.
///
/// [`KeyspaceOptions`] are the options of keyspaces. The manifest stores them, so a store can be
/// opened without them. [`Options::keyspace`] sets those of the default keyspace.
#[derive(Debug, Clone)]
#[must_use = "options do nothing until `open`"]
pub struct Options {
    pub(crate) fs: Arc<dyn Fs>,
    /// Files of a replica that are read from its backup set until they arrive.
    pub(crate) arriving: Option<Arc<ArrivingFiles>>,
    /// The store is written by a repair.
    pub(crate) is_repair: bool,
    /// `None` for a store without encryption.
    pub(crate) keys: Option<Keys>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) durability: Durability,
    pub(crate) memory: MemoryBudget,
    pub(crate) memory_pool: Option<MemoryPool>,
    pub(crate) log: LogLimits,
    pub(crate) log_compression: bool,
    pub(crate) change_retention: Option<ChangeRetention>,
    pub(crate) open_files_max: usize,
    pub(crate) worker_threads: usize,
    /// Ranges of each compaction, for tests.
    pub(crate) compaction_ranges: Option<usize>,
    pub(crate) read_mode: ReadMode,
    pub(crate) stats_file_interval: Option<Duration>,
    /// `None` keeps the stored options of the default keyspace.
    pub(crate) keyspace: Option<KeyspaceOptions>,
    pub(crate) create_if_missing: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) follow: bool,
    pub(crate) follow_interval: Option<Duration>,
    pub(crate) background_rewrites: bool,
    pub(crate) idle_compactions: bool,
    pub(crate) unlink_bytes_per_second: Option<u64>,
    pub(crate) prefix_functions: Vec<Arc<dyn PrefixFunction>>,
    pub(crate) merge_operators: Vec<Arc<dyn MergeOperator>>,
    pub(crate) compaction_filters: Vec<Arc<dyn CompactionFilter>>,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted_bug: Option<PlantedBug>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs: Arc::new(RealFs),
            arriving: None,
            is_repair: false,
            keys: None,
            clock: Arc::new(SystemClock::default()),
            listener: None,
            durability: Durability::default(),
            memory: MemoryBudget::default(),
            memory_pool: None,
            log: LogLimits::default(),
            log_compression: true,
            change_retention: None,
            open_files_max: DEFAULT_OPEN_FILES_MAX,
            worker_threads: DEFAULT_WORKER_THREADS,
            compaction_ranges: None,
            read_mode: ReadMode::default(),
            stats_file_interval: None,
            keyspace: None,
            create_if_missing: true,
            create_new: false,
            read_only: false,
            follow: false,
            follow_interval: None,
            background_rewrites: true,
            idle_compactions: true,
            unlink_bytes_per_second: None,
            prefix_functions: Vec::new(),
            merge_operators: Vec::new(),
            compaction_filters: Vec::new(),
            #[cfg(feature = "planted-bugs")]
            planted_bug: None,
        }
    }
}

impl Options {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// File system of the store; default [`RealFs`].
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// Returns the [file system](Self::fs) of the store.
    #[must_use]
    pub fn file_system(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// Encrypts all files of the store by AES-256-GCM with keys of this provider; default none.
    ///
    /// A new store is encrypted as a whole. A store without encryption is refused with
    /// [`Error::NotEncrypted`]: copy its entries to a new store. An encrypted store opens only with
    /// its keys ([`Error::Encrypted`], [`Error::NoKey`], [`Error::WrongKey`]), which are checked
    /// before anything is changed. New files use the provider's current key.
    /// [`Db::reencrypt`](crate::Db::reencrypt) rewrites files of other keys.
    ///
    /// Not together with [`ReadMode::Map`] and
    /// [`stats_file_interval`](Self::stats_file_interval). Loading data takes about 1.1 times
    /// the CPU time, and a read that misses the block cache 1.25 times.
    #[cfg(feature = "encryption")]
    pub fn encryption(mut self, keys: Arc<dyn crate::KeyProvider>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Returns `true` if the open store changes although it is read-only: it is a follower or a
    /// replica.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.follow || self.arriving.is_some()
    }

    /// Returns `fs` with the files of a store of these options.
    pub(crate) fn stored_fs(&self, fs: Arc<dyn Fs>) -> StoredFs {
        StoredFs::new(fs, self.keys.as_ref(), self.has_bug(PlantedBug::RepeatNonces))
    }

    /// Clock of the store; default [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Listener that receives [events](crate::Event); default none.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Durability of writes without a durability of their own; default [`Durability::OsBuffer`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Number of threads for flushes, compactions and filters.
    ///
    /// A large compaction merges several ranges of keys at the same time. It uses one thread for
    /// each, if other threads are idle, and at most half of the processors. A range has at least
    /// 16 MiB of input, and at least [`table_bytes`](KeyspaceOptions::table_bytes). A keyspace with
    /// a [compaction filter](KeyspaceOptions::compaction_filter) has one range.
    ///
    /// From 0 to 64; default 2 ([`DEFAULT_WORKER_THREADS`]). With 0, the writing thread runs
    /// background work after each write that makes it due: slow, but deterministic, for tests.
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.worker_threads = threads;
        self
    }

    /// Cuts each compaction into this number of ranges, however short they are, for tests. Ranges
    /// for which no worker is idle are merged one after another.
    #[doc(hidden)]
    pub fn compaction_ranges(mut self, ranges: usize) -> Self {
        self.compaction_ranges = Some(ranges);
        self
    }

    /// Method of reading table files; default [`ReadMode::Pread`].
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// Interval at which the store writes its statistics into the file `STATS` of its directory;
    /// default never. [`read_stats_file`](crate::stats::read_stats_file) and `sieve stats --watch`
    /// read it in other processes.
    ///
    /// At least 10 ms. The file is also written when the store is opened and closed, and removed at
    /// the next open. Errors of these writes are ignored.
    ///
    /// Costs a thread, and for each interval one [`Db::stats`](crate::Db::stats) and one unsynced
    /// write of about 5 KB. With a large block cache, `Db::stats` takes tens of milliseconds: use
    /// an interval of at least 1 s.
    pub fn stats_file_interval(mut self, interval: Duration) -> Self {
        self.stats_file_interval = Some(interval);
        self
    }

    /// Options of the default keyspace, and of keyspaces created without options.
    ///
    /// Each open with this option replaces all stored options of the default keyspace, as
    /// [`Keyspace::set_options`](crate::Keyspace::set_options) does. Without this option, an
    /// existing default keyspace keeps its options, and a new one gets
    /// [`KeyspaceOptions::default`]. Other existing keyspaces always keep their options.
    ///
    /// If the default keyspace has a merge operator, `options` must name the same one. Otherwise
    /// the open fails with [`Error::MergeOperatorFixed`].
    ///
    /// If stored options name an operator, a compaction filter or a prefix function of the
    /// application, register it: see [`merge_operator`](Self::merge_operator),
    /// [`compaction_filter`](Self::compaction_filter) and
    /// [`prefix_function`](Self::prefix_function).
    pub fn keyspace(mut self, options: KeyspaceOptions) -> Self {
        self.keyspace = Some(options);
        self
    }

    /// Returns the options of a keyspace created without options.
    pub(crate) fn new_keyspace(&self) -> KeyspaceOptions {
        self.keyspace.clone().unwrap_or_default()
    }

    /// Creates the store if it does not exist; default `true`.
    ///
    /// With `false`, [`open`](Self::open) fails with [`Error::NoStore`] if the directory is missing
    /// or contains no store, and creates nothing.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Creates a new store, and fails with [`Error::StoreExists`] if one exists; default `false`.
    ///
    /// If several processes create a store in one directory, exactly one succeeds. Overrides
    /// [`create_if_missing`](Self::create_if_missing). Together with [`read_only`](Self::read_only)
    /// or [`follow`](Self::follow), opening fails with [`Error::InvalidOption`].
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Opens the store for reading only, without changing anything in its directory; default
    /// `false`. For write-protected directories, full disks, and inspection by several processes.
    ///
    /// The log is replayed into memtables. **These may exceed
    /// [`memtable_bytes_max`](Self::memtable_bytes_max)**, by at most about the length of the log.
    /// They count in [`memtable_bytes`](crate::stats::MemoryStats::memtable_bytes).
    ///
    /// Several processes can have a store open read-only; meanwhile no process can open it for
    /// writing ([`Error::Locked`]). The file `LOCK` must be readable. A directory without `LOCK`,
    /// such as a copy, is read without a lock.
    ///
    /// Writes fail with [`Error::ReadOnly`], with [`Error::OpenedReadOnly`] as the cause. There are
    /// no worker threads: filters stay as loaded, unless the memory budget is changed. There is no
    /// [file of statistics](Self::stats_file_interval). The open of a directory without a store
    /// fails with [`Error::NoStore`]. A torn tail is reported and skipped, but not truncated.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Opens the store for reading while another process may write it; default `false`.
    ///
    /// The store is a *follower*: it shows a prefix of the history and only whole batches. Later
    /// writes become visible by [`Db::refresh`](crate::Db::refresh), or at an
    /// [interval](Self::follow_interval). The writer may be another process or another
    /// [`Db`](crate::Db) of this process. It may flush, compact, end, crash and restart. A running
    /// writer is not required. RocksDB: secondary instance.
    ///
    /// * A follower takes no lock, writes nothing, and needs only read permission. The writer never
    ///   waits for it.
    /// * Writes of [`Durability::Memory`] reach a follower when the writer passes them to the
    ///   operating system. This is done by a later write of another durability, by
    ///   [`Db::persist`](crate::Db::persist), or when these writes reach 1/64 of the limit of
    ///   memtables, at most 1 MiB. Other writes may reach a follower before they are durable, and
    ///   before they are acknowledged.
    /// * Tables that the writer deletes remain readable while a view uses them and their files are
    ///   open. If more than [`open_files_max`](Self::open_files_max) files are in use, a read may
    ///   fail with [`Error::FilesGone`]: call [`Db::refresh`](crate::Db::refresh) and read again.
    /// * Reads and memory are those of a [read-only](Self::read_only) store. To read several keys
    ///   at one point in time, use a [`Snapshot`](crate::Snapshot), which refreshes do not change.
    /// * Values expire by the clock of this process, which each refresh moves forward to that of
    ///   the writer at its last flush or compaction.
    /// * [`Db::changes`](crate::Db::changes) works. [`Db::checkpoint`](crate::Db::checkpoint),
    ///   backups and [`Db::verify`](crate::Db::verify) fail with [`Error::Following`].
    /// * The directory must be on a file system that shows writes to other processes at once, such
    ///   as a local file system.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use sievedb::{Db, Options};
    ///
    /// let writer = Db::open(dir.path())?;
    /// let follower = Options::new().follow(true).open(dir.path())?;
    /// writer.insert("key", "value")?;
    /// assert_eq!(follower.get("key")?, None);
    /// assert!(follower.refresh()?);
    /// assert_eq!(follower.get("key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn follow(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Pause between two refreshes of a [follower](Self::follow), on a separate thread; default
    /// never. A refresh that has read more than 1 MiB is repeated at once.
    ///
    /// At least 1 ms. A refresh without new writes costs about 20 us. The next
    /// [`Db::refresh`](crate::Db::refresh) returns the error of a failed refresh, unless a later
    /// refresh has succeeded. Has no effect without [`follow`](Self::follow).
    pub fn follow_interval(mut self, interval: Duration) -> Self {
        self.follow_interval = Some(interval);
        self
    }

    /// Runs due compactions and filter rebuilds in the background; default `true`. Set `false` in
    /// programs that inspect a store. Flushes and [`Keyspace::compact`](crate::Keyspace::compact)
    /// are not affected.
    #[doc(hidden)]
    pub fn background_rewrites(mut self, rewrites: bool) -> Self {
        self.background_rewrites = rewrites;
        self
    }

    /// Runs idle compactions; default `true`. After 0.3 s without a write, they compact a level 0
    /// that is not due. For a level 0 found at the open, the time is 10 s.
    ///
    /// Scans then read fewer sorted runs. Costs at most 5 bytes written for each byte flushed, or
    /// 11 once the store has been idle for 10 s. Flushes interrupt idle compactions; a byte is in
    /// at most two interrupted compactions. See `docs/design.md`. Requires
    /// [`worker_threads`](Self::worker_threads).
    pub fn idle_compactions(mut self, enabled: bool) -> Self {
        self.idle_compactions = enabled;
        self
    }

    /// Rate at which obsolete files are unlinked, in bytes per second; default `None`: at once.
    ///
    /// A rate spreads the unlinks after a large compaction, which delay other calls on some file
    /// systems and devices. Files are unlinked as a whole: see
    /// [`table_bytes`](KeyspaceOptions::table_bytes). Obsolete files take space until they are
    /// unlinked. On a full disk, in [`Db::wait_for_background`](crate::Db::wait_for_background) and
    /// at the close of the store, all are unlinked at once.
    ///
    /// At least 1 MiB.
    pub fn unlink_bytes_per_second(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.unlink_bytes_per_second = bytes.into();
        self
    }

    /// Registers a function for keyspaces whose stored prefix extractor is
    /// [`PrefixExtractor::Custom`](crate::PrefixExtractor::Custom) with the name of the function.
    /// If two functions have the same name, the first is used. Default none: without its function,
    /// such a keyspace does not use its prefix filters, and new tables get none.
    pub fn prefix_function(mut self, function: Arc<dyn PrefixFunction>) -> Self {
        self.prefix_functions.push(function);
        self
    }

    /// Registers an operator for keyspaces whose stored
    /// [merge operator](KeyspaceOptions::merge_operator) has its name. If two operators have the
    /// same name, the first is used. Default none; the operators of this crate need no
    /// registration.
    ///
    /// If the operator of a keyspace is missing, the open fails with
    /// [`Error::UnknownMergeOperator`] and changes nothing.
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operators.push(operator);
        self
    }

    /// Registers a filter for keyspaces whose stored [compaction
    /// filter](KeyspaceOptions::compaction_filter) has its name. If two filters have the same name,
    /// the first is used. Default none: such a keyspace keeps all values.
    pub fn compaction_filter(mut self, filter: Arc<dyn CompactionFilter>) -> Self {
        self.compaction_filters.push(filter);
        self
    }

    /// Plants a bug, to show that a test catches it.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub fn planted_bug(mut self, bug: PlantedBug) -> Self {
        self.planted_bug = Some(bug);
        self
    }

    /// Returns `true` if the store has background threads.
    pub(crate) fn has_workers(&self) -> bool {
        self.worker_threads > 0 && !self.read_only
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has_bug(&self, bug: PlantedBug) -> bool {
        self.planted_bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn has_bug(&self, _: PlantedBug) -> bool {
        false
    }
}
