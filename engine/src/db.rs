//! The handle of a store.

mod changes;
mod checkpoint;
mod close;
mod compaction_pause;
mod durable;
mod follow;
mod open;
mod past;
#[cfg(feature = "encryption")]
mod reencrypt;
mod transactions;

use std::{path::Path, sync::Arc};

pub use self::{close::CloseError, compaction_pause::CompactionPause};
#[cfg(doc)]
use crate::keyspace_options::DEFAULT_KEYSPACE;
use crate::{
    Batch, Durability, Error, Keyspace, KeyspaceOptions, Options, ReadOptions, Result, Snapshot,
    VerifyProgress, VerifyReport,
    default_budget::DefaultBudget,
    handle_counts::HandleKind,
    iter::bounds::KeyBounds,
    keyspace::{
        asynchronous::asynchronous_methods, conditional::conditional_methods,
        expiring::expiring_methods, ingestion::ingest_methods, streamed::streamed_methods,
        upkeep::upkeep_methods, writes::write_methods,
    },
    read::tree::Tree,
    reader::read_methods,
    stats::Stats,
    store::{Store, open_store::OpenStore},
};

/// A store: ordered keys with values, in a directory.
///
/// Cheap to clone and safe to share between threads. The store is closed when the last handle of
/// any kind is dropped: [`Db`], [`Keyspace`], [`Snapshot`], [`Transaction`](crate::Transaction),
/// iterator, [`Batch`] with entries, and the others that [`OpenHandles`](crate::OpenHandles) lists.
/// The close writes buffered log records and syncs them. A drop cannot report an error;
/// [`close`](Self::close) does.
///
/// # Forks
///
/// A store belongs to the process that opened it. In a forked child every read and write of the
/// inherited handles fails with [`Error::ForkedChild`]. Dropping or closing them writes nothing and
/// does not release the parent's lock. Their memory is freed when the child exits.
///
/// * A server that forks its workers opens one store in each worker, after the fork.
/// * A program that becomes a daemon opens the store after its last fork. If it opened the store
///   before, the child drops all handles, and opens the store after the parent has exited.
///
/// The first drop or call of an inherited handle closes the child's descriptor of the lock. Until
/// then the child keeps the store locked, even if the parent has ended.
///
/// # Keyspaces
///
/// Reads, writes, bulk loads, [`compact_range`](Self::compact_range) and
/// [`history`](Self::history) use the default keyspace, which every store has. So do
/// [`clear`](Self::clear), [`len`](Self::len), [`is_empty`](Self::is_empty),
/// [`approximate_len`](Self::approximate_len) and [`room`](Self::room). All other methods cover the
/// whole store: [`flush`](Self::flush) and [`compact`](Self::compact) work on all keyspaces, and
/// [`changes`](Self::changes) returns the batches of all keyspaces.
/// [`default_keyspace`](Self::default_keyspace) returns the handle of the default keyspace alone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path();
/// let db = sievedb::Db::open(path)?;
/// db.insert("key", "value")?;
/// assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
/// assert!(!db.contains_key("other")?);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug)]
pub struct Db {
    default: Keyspace,
}

impl Clone for Db {
    fn clone(&self) -> Self {
        Self { default: self.default.of_kind(HandleKind::Db) }
    }
}

impl Db {
    /// Opens the store in the directory `path` with [`Options::default`], or creates it. Existing
    /// keyspaces keep their stored options.
    ///
    /// # Errors
    ///
    /// Errors of [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Returns the directory of the store, as an absolute path. Symbolic links are not resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.store().tables.folder
    }

    /// Returns the default keyspace, named [`DEFAULT_KEYSPACE`]. Use it for calls that on a `Db`
    /// cover the whole store: options, flush, compaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let default = db.default_keyspace();
    /// default.set_options(default.options().block_bytes(8 << 10))?;
    /// default.flush()?; // `db.flush()` flushes all keyspaces.
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// Opens the keyspace `name`, or creates it with the options of [`Options::keyspace`]. An
    /// existing keyspace keeps its options.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKeyspaceName`]. Creation adds the errors of a write with
    /// [`Durability::Disk`]: it fails with [`Error::ReadOnly`] in a store opened
    /// [read-only](Options::read_only).
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let tree = self.accept()?.keyspace(name, None)?;
        Ok(self.keyspace_of(tree))
    }

    /// Opens the keyspace `name`, or creates it with `options`.
    ///
    /// **An existing keyspace keeps its options, and `options` is ignored.** [`Keyspace::options`]
    /// returns them, and [`Keyspace::set_options`] changes them.
    ///
    /// # Errors
    ///
    /// As [`keyspace`](Self::keyspace), and [`Error::InvalidOption`].
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        options.validate()?;
        let tree = self.accept()?.keyspace(name, Some(options))?;
        Ok(self.keyspace_of(tree))
    }

    /// Returns `true` if the keyspace `name` exists. Never creates it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after a [`shutdown`](Self::shutdown); [`Error::ForkedChild`].
    pub fn keyspace_exists(&self, name: &str) -> Result<bool> {
        // A forked child must not wait for a lock held by a thread of its parent.
        Ok(self.accept()?.versions.trees().get(name).is_some())
    }

    /// Opens the existing keyspace `name`. Never creates one, unlike [`keyspace`](Self::keyspace),
    /// so a mistyped name is an error.
    ///
    /// # Errors
    ///
    /// [`Error::NoKeyspace`]; [`Error::Closed`] after a [`shutdown`](Self::shutdown);
    /// [`Error::ForkedChild`].
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        let tree = self.accept()?.versions.trees().get(name).cloned();
        let tree = tree.ok_or_else(|| Error::NoKeyspace { name: name.to_owned() })?;
        Ok(self.keyspace_of(tree))
    }

    /// Changes [`Options::memory_budget`] while the store is open. Parts set by hand keep their
    /// limits. `None` sets the default for the present memory of the machine.
    ///
    /// If the budget shrinks, the call evicts blocks from the cache and drops parts of filters, and
    /// starts flushes of memtables.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`] if `bytes` is below the minimum, or does not leave 1/16 for a
    /// block cache besides limits set by hand. [`Error::InvalidOption`] for a store in a
    /// [pool](crate::MemoryPool), which has the budget. Nothing is changed then.
    pub fn set_memory_budget(&self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let (bytes, store) = (bytes.into(), self.accept()?);
        if store.options.memory_pool.is_some() {
            let allowed = "cannot be set in a memory_pool; use MemoryPool::set_bytes";
            return Err(Error::InvalidOption { name: "memory_budget", allowed });
        }
        // Read without the lock of the budget.
        let default = bytes.is_none().then(|| DefaultBudget::of_machine(&*store.options.fs));
        store.change_memory_budget(|budget| {
            budget.bytes = bytes;
            budget.default = default.unwrap_or(budget.default);
        })
    }

    /// Returns the names of the keyspaces, ascending.
    ///
    /// # Errors
    ///
    /// As [`keyspace_exists`](Self::keyspace_exists).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        Ok(self.accept()?.versions.trees().values().map(|tree| tree.name()).collect())
    }

    /// Removes the keyspace `name` with all its data. Returns `false` if it does not exist.
    ///
    /// Durable at return. Handles of the keyspace then fail with [`Error::KeyspaceDropped`], those
    /// of snapshots too; existing iterators remain valid. A keyspace of the same name can be
    /// created again, empty. The default keyspace cannot be dropped.
    ///
    /// # Errors
    ///
    /// [`Error::RequiredKeyspace`] for the default keyspace; those of a write with
    /// [`Durability::Disk`].
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        Ok(self.drop_keyspaces([name])? == 1)
    }

    /// Removes the keyspaces `names` with all their data, all or none of them. Skips names that do
    /// not exist. Returns the number of keyspaces removed.
    ///
    /// As [`drop_keyspace`](Self::drop_keyspace) for each, but with one write to the log and one to
    /// the manifest for all.
    ///
    /// # Errors
    ///
    /// As [`drop_keyspace`](Self::drop_keyspace); then no keyspace is removed.
    pub fn drop_keyspaces<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<usize> {
        self.accept()?.drop_keyspaces(names)
    }

    /// Renames the keyspace `old` to `new`. Atomic, and durable at return: after a crash the
    /// keyspace has one of the two names. Costs a synced write to the log and one to the manifest.
    ///
    /// Handles, snapshots and iterators remain valid; [`Keyspace::name`] returns the new name. The
    /// default keyspace cannot be renamed. A [repair](Options::repair) without a manifest finds the
    /// new name only in the log, or in tables written since.
    ///
    /// # Errors
    ///
    /// [`Error::NoKeyspace`] if `old` does not exist; [`Error::KeyspaceExists`] if `new` exists,
    /// even if it is `old`;
    /// [`Error::InvalidKeyspaceName`]; [`Error::RequiredKeyspace`] for the default keyspace; those
    /// of a write with [`Durability::Disk`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let index = db.keyspace("index.new")?;
    /// index.insert("key", "value")?;
    /// db.rename_keyspace("index.new", "index")?;
    /// assert_eq!(index.name(), "index");
    /// assert_eq!(db.keyspaces()?, ["default", "index"]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn rename_keyspace(&self, old: &str, new: &str) -> Result<()> {
        self.accept()?.rename_keyspace(old, new)
    }

    /// Returns an empty batch, whose entries may be of any keyspaces of this store.
    pub fn batch(&self) -> Batch {
        Batch::new(self.open_store())
    }

    /// Returns a snapshot of all keyspaces at this point in time.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.default)
    }

    /// Raises every write to **any keyspace** acknowledged before this call to `durability`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub fn persist(&self, durability: Durability) -> Result<()> {
        let store = self.accept()?;
        store.writer.persist(store, durability)
    }

    /// Writes the memtables of **all keyspaces** into tables, and waits until that is done.
    /// [`Keyspace::flush`] flushes one.
    ///
    /// Not needed for durability: see [`persist`](Self::persist).
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub fn flush(&self) -> Result<()> {
        let store = self.accept()?;
        let trees: Vec<_> = store.versions.trees().values().cloned().collect();
        store.flush_trees(&trees)
    }

    /// Flushes **all keyspaces**, and merges the tables of each into one sorted run on the last
    /// level. Waits until that is done, but not for the unlinks of the old tables: see
    /// [`wait_for_background`](Self::wait_for_background).
    ///
    /// Drops old versions and tombstones that no snapshot needs. Compresses by
    /// [`bottommost_compression`](crate::KeyspaceOptions::bottommost_compression). Reads
    /// [quarantined](crate::Stats::quarantined) tables again: if one still cannot be read, its
    /// keyspace is not compacted, and the store stays writable.
    ///
    /// # Errors
    ///
    /// The first error, after all keyspaces were tried: [`Error::Io`], [`Error::Corrupt`],
    /// [`Error::ReadOnly`]; [`Error::CompactionsPaused`] during a
    /// [pause](Self::pause_compactions).
    pub fn compact(&self) -> Result<()> {
        let store = self.accept()?;
        let trees: Vec<_> = store.versions.trees().values().cloned().collect();
        let mut first = Ok(());
        for tree in &trees {
            let done = store.compact_tree(tree, &KeyBounds::ALL);
            first = first.and(done);
        }
        first
    }

    /// Changes [`Options::filter_bytes_max`] of the store, in bytes, while it is open. Not stored.
    /// `None` restores the share of [`Options::memory_budget`].
    ///
    /// At return the filters are within the limit, except for filters that a lookup uses for more
    /// than a few seconds. Ribbon filters drop columns first; then the filters of least use are
    /// dropped. Prefix and range filters are dropped too, those with the fewest measured probes per
    /// byte first. A higher limit reloads filters in the background.
    ///
    /// Without an [`Options::memory_budget`] set by hand, the other parts keep their limits. With
    /// one, the block cache grows or shrinks, unless its limit was set too.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`] if the budget was set by hand and is too small for `bytes`, or
    /// would leave the block cache less than 1/16. Nothing is changed then.
    pub fn set_filter_bytes_max(&self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let bytes = bytes.into();
        self.accept()?.change_memory_budget(|budget| budget.filter_bytes_max = bytes)
    }

    /// Waits until there is no background work of **any keyspace**: no memtable to flush, no due
    /// compaction, no filter to reload or rebuild, no obsolete file. Returns at once for a store
    /// opened [read-only](Options::read_only).
    ///
    /// Does not wait for [idle compactions](crate::Options::idle_compactions), and does not flush
    /// active memtables: see [`flush`](Self::flush). While other threads write, the call may not
    /// return. During a [pause](Self::pause_compactions) it does not wait for compactions.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the disk is full; [`Error::ReadOnly`]. A failed filter build is not an
    /// error: see [`Event::FilterNotRebuilt`](crate::Event::FilterNotRebuilt).
    pub fn wait_for_background(&self) -> Result<()> {
        self.accept()?.wait_until_idle()
    }

    /// Returns the present state of the store with all keyspaces, and its counters since the open.
    ///
    /// Costs about 1 us for each thread and each table, and 0.1 ms for each 1,000 blocks in the
    /// block cache: about 20 ms for 700 MiB of blocks of 4 KiB.
    ///
    /// All zero in a [forked child](Self#forks), and after a [`shutdown`](Self::shutdown).
    /// [`Stats::keyspaces`] is empty only then: every open store has the default keyspace.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.accept().map_or_else(|_| Stats::default(), Store::stats)
    }

    /// Reads every byte of the store and reports all violations found. Checks the checksums of
    /// files and blocks, the order, bounds and counts of tables, the log, and that filters have no
    /// false negatives.
    ///
    /// Reads all tables twice, bypassing the block cache. Other threads may write: the call
    /// verifies the tables and the log at the time of its start. While it reads the log (at most
    /// [`Options::log_bytes_max`]), manifest edits wait.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be listed; [`Error::Following`] for a
    /// [follower](Options::follow); [`Error::Closed`] if another handle [shuts the store
    /// down](Self::shutdown) meanwhile. Damage is not an error: the report lists it.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_| ())
    }

    /// Verifies the store as [`verify`](Self::verify) does, and calls `on_progress` about every 256
    /// KiB.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_with(&self, mut on_progress: impl FnMut(VerifyProgress)) -> Result<VerifyReport> {
        self.accept()?.verify(&mut on_progress)
    }

    fn keyspace_of(&self, tree: Arc<Tree>) -> Keyspace {
        let handle = self.default.handle().of_kind(HandleKind::Keyspace);
        Keyspace::new(handle, tree, ReadOptions::new())
    }

    fn accept(&self) -> Result<&Store> {
        self.open_store().accept()
    }

    pub(crate) fn open_store(&self) -> &Arc<OpenStore> {
        self.default.open_store()
    }

    pub(crate) fn store(&self) -> &Store {
        self.open_store().store()
    }
}

read_methods!(Db, default);

write_methods!(Db, default);
asynchronous_methods!(Db, default);
ingest_methods!(Db, default);
streamed_methods!(Db, default);

conditional_methods!(Db, default);

expiring_methods!(Db, default);

upkeep_methods!(Db, default);

/// The default keyspace.
impl AsRef<Keyspace> for Db {
    fn as_ref(&self) -> &Keyspace {
        &self.default
    }
}
