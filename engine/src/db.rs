//! A store, as its users see it.

mod close;
mod close_error;
mod open;

use std::{path::Path, sync::Arc};

pub use self::close_error::CloseError;
#[cfg(doc)]
use crate::keyspace_options::DEFAULT_KEYSPACE;
use crate::{
    Batch, Durability, Keyspace, KeyspaceOptions, Options, ReadOptions, Result, Snapshot,
    VerifyProgress, VerifyReport,
    default_budget::DefaultBudget,
    handle_counts::HandleKind,
    keyspace::writes::write_methods,
    read::tree::Tree,
    reader::read_methods,
    stats::Stats,
    store::{Store, open_store::OpenStore},
};

/// A store: ordered keys with values, in a folder.
///
/// Cheap to clone and safe to share between threads. The store is closed when the last handle of
/// any kind is dropped: [`Db`], [`Keyspace`], [`Snapshot`], iterator, or [`Batch`] with entries.
/// Then whatever is still in memory is written to the log and synced. A drop cannot report an
/// error: [`close`](Self::close) does.
///
/// # Forks
///
/// A store belongs to the process that opened it. In a forked child every read and write of the
/// inherited handles fails with [`Error::ForkedChild`](crate::Error::ForkedChild). Dropping or
/// closing them writes nothing and does not release the parent's lock. Their memory is freed when
/// the child exits.
///
/// * A server that forks its workers opens one store in each worker, after the fork.
/// * A program that becomes a daemon opens the store after its last fork. If it opened the store
///   before, the child drops all handles, and opens the store after the parent has exited.
///
/// The first drop or call of an inherited handle closes the child's descriptor of the lock. Until
/// then the child keeps the store locked, even if the parent closes it.
///
/// # Keyspaces
///
/// Methods that read or write entries, such as [`get`](Self::get) and [`insert`](Self::insert), use
/// the default keyspace, which every store has. All other methods cover the whole store:
/// [`flush`](Self::flush) and [`compact`](Self::compact) work on all keyspaces.
/// [`default_keyspace`](Self::default_keyspace) returns the handle for the default keyspace alone.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
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
    /// Opens the store in the folder `path`, or creates it, with [`Options::default`]. The
    /// keyspaces of an existing store keep their own options, the default one too.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Returns the default keyspace, named [`DEFAULT_KEYSPACE`], for what the `Db` does for the
    /// whole store only: its options, its flush, its compaction.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// let default = db.default_keyspace();
    /// default.set_options(default.options().block_bytes(8 << 10))?;
    /// default.flush()?; // `db.flush()` flushes all keyspaces.
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// The keyspace `name`, which is created with the options of [`Options::keyspace`] if missing.
    /// An existing one keeps its own.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKeyspaceName`](crate::Error::InvalidKeyspaceName); those of a write with
    /// [`Durability::Disk`] if it is created, which a store that is opened
    /// [read-only](Options::read_only) refuses.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let tree = self.accept()?.keyspace(name, None)?;
        Ok(self.keyspace_of(tree))
    }

    /// The keyspace `name`, which is created with `options` if missing.
    ///
    /// **An existing one keeps the options that it has**: `options` count for a new keyspace only,
    /// and are passed over otherwise. [`Keyspace::options`] tells which it has, and
    /// [`Keyspace::set_options`] changes them.
    ///
    /// # Errors
    ///
    /// As [`keyspace`](Self::keyspace), and [`Error::InvalidOption`](crate::Error::InvalidOption).
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        options.validate()?;
        let tree = self.accept()?.keyspace(name, Some(options))?;
        Ok(self.keyspace_of(tree))
    }

    /// Returns `true` if the keyspace `name` exists. Never creates it. Returns `false` in a
    /// [forked child](Self#forks), and after a [`shutdown`](Self::shutdown).
    #[must_use]
    pub fn keyspace_exists(&self, name: &str) -> bool {
        // A forked child must not wait for a lock that a thread of its parent held.
        self.accept().is_ok_and(|store| store.trees.read().get(name).is_some())
    }

    /// Opens the existing keyspace `name`. Never creates one, unlike [`keyspace`](Self::keyspace),
    /// so a mistyped name is an error.
    ///
    /// # Errors
    ///
    /// [`Error::NoKeyspace`](crate::Error::NoKeyspace); [`Error::Closed`](crate::Error::Closed)
    /// after a [`shutdown`](Self::shutdown); [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        let tree = self.accept()?.trees.read().get(name).cloned();
        let tree = tree.ok_or_else(|| crate::Error::NoKeyspace { name: name.to_owned() })?;
        Ok(self.keyspace_of(tree))
    }

    /// Changes [`Options::memory_budget`] while the store is open. The parts change with it, but
    /// for those that were set by hand.
    ///
    /// What is too much then is given up: blocks of the cache and parts of filters at once,
    /// memtables by flushes that begin now.
    ///
    /// `None` sets the default for the memory that the machine has now.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`](crate::Error::BudgetTooSmall) if it is too small, or too small for
    /// the parts set by hand and a sixteenth for a block cache that was not;
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a store in a
    /// [pool](crate::MemoryPool), which has the budget. Nothing is changed then.
    pub fn set_memory_budget(&self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let (bytes, store) = (bytes.into(), self.accept()?);
        if store.options.memory_pool.is_some() {
            let allowed = "cannot be set in a memory_pool; use MemoryPool::set_bytes";
            return Err(crate::Error::InvalidOption { name: "memory_budget", allowed });
        }
        // Not under the lock of the budget.
        let default = bytes.is_none().then(|| DefaultBudget::of_machine(&*store.options.fs));
        store.change_memory_budget(|budget| {
            budget.bytes = bytes;
            budget.default = default.unwrap_or(budget.default);
        })
    }

    /// Returns the names of the keyspaces, ascending. Empty in a [forked child](Self#forks), and
    /// after a [`shutdown`](Self::shutdown).
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        let Ok(store) = self.accept() else { return Vec::new() };
        store.trees.read().names().cloned().collect()
    }

    /// Removes the keyspace `name` with all its data; `false` if there is none.
    ///
    /// Durable at return. Handles of it answer [`Error::KeyspaceDropped`] from then on, those of
    /// snapshots too; iterators that were begun before go on. A keyspace of the same name may be
    /// created again, empty. The default keyspace cannot be dropped.
    ///
    /// # Errors
    ///
    /// [`Error::RequiredKeyspace`] for the default keyspace; those of a write with
    /// [`Durability::Disk`].
    ///
    /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
    /// [`Error::RequiredKeyspace`]: crate::Error::RequiredKeyspace
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

    /// An empty batch. Its entries, for any keyspaces of this store, are written as one.
    pub fn batch(&self) -> Batch {
        Batch::new(self.open_store())
    }

    /// What is stored now, in all keyspaces at the same moment, to be read later.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.default)
    }

    /// Brings every write that was acknowledged before this call to `durability`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn persist(&self, durability: Durability) -> Result<()> {
        self.accept()?.persist(durability)
    }

    /// Writes the memtables of **all keyspaces** into tables, and waits until that is done.
    /// [`Keyspace::flush`] flushes one.
    ///
    /// Never needed for durability: see [`persist`](Self::persist).
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn flush(&self) -> Result<()> {
        let store = self.accept()?;
        let trees: Vec<_> = store.trees.read().values().cloned().collect();
        store.flush_trees(&trees)
    }

    /// Flushes **all keyspaces**, and merges the tables of each into one sorted run on the deepest
    /// level, without old versions and tombstones that no snapshot needs, compressed as
    /// [`bottommost_compression`](crate::KeyspaceOptions::bottommost_compression) says. Waits until
    /// that is done.
    ///
    /// Reads [quarantined](crate::Stats::quarantined) tables again. If one still cannot be read,
    /// its keyspace is not compacted, and the store stays writable.
    ///
    /// # Errors
    ///
    /// The first error, after all keyspaces were tried: [`Error::Io`](crate::Error::Io),
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn compact(&self) -> Result<()> {
        let store = self.accept()?;
        let trees: Vec<_> = store.trees.read().values().cloned().collect();
        let mut first = Ok(());
        for tree in &trees {
            let done = store.compact_tree(tree);
            first = first.and(done);
        }
        first
    }

    /// Bounds the memory of all filters of tables together, in bytes, from now on: see
    /// [`Options::filter_bytes_max`]. Not kept when the store is closed.
    ///
    /// At return the filters are within it: ribbons have given up columns in memory, and those that
    /// profit least are gone. Prefix and range filters give way, too, those of the largest tables
    /// first. What more room allows is read back in the background. Only a filter that a lookup
    /// holds for longer than some seconds may be there beyond the bound, until that lookup is done.
    ///
    /// The other parts stay as they are if no [`Options::memory_budget`] was set. If one was, the
    /// block cache has less or more, unless its bytes were set too.
    ///
    /// `None` for what [`Options::memory_budget`] gives to filters, as if the bound had never been
    /// set.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`](crate::Error::BudgetTooSmall) if [`Options::memory_budget`] was
    /// set by hand and is too small for it, or would leave the block cache less than a sixteenth;
    /// nothing is changed then.
    pub fn set_filter_bytes_max(&self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let bytes = bytes.into();
        self.accept()?.change_memory_budget(|budget| budget.filter_bytes_max = bytes)
    }

    /// Waits until there is nothing left to do in the background: no memtable waits for its flush,
    /// no compaction is due, no filter is to be read back or rebuilt, and no obsolete file is
    /// left that could go. A store that was opened [read-only](Options::read_only) has no such
    /// work.
    ///
    /// Compactions that wait for the store to rest are not waited for: see
    /// [`Options::idle_compactions`](crate::Options::idle_compactions).
    ///
    /// Active memtables stay as they are: see [`flush`](Self::flush). While others write, new work
    /// may come as fast as it is done, and the call may not return.
    ///
    /// # Errors
    ///
    /// Why some of it cannot be done: [`Error::Io`](crate::Error::Io) if the disk is full,
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). A filter that cannot be built is no error, see
    /// [`Event::FilterNotRebuilt`](crate::Event::FilterNotRebuilt).
    pub fn wait_for_background(&self) -> Result<()> {
        self.accept()?.wait_until_idle()
    }

    /// What the store holds and what it did since it was opened.
    ///
    /// Adds up counters of all threads: about a microsecond for each, and for each table. All zero
    /// in a [forked child](Self#forks), and after a [`shutdown`](Self::shutdown).
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.accept().map_or_else(|_| Stats::default(), Store::stats)
    }

    /// Looks at every byte of the store, and lists everything that is not as it should be: the
    /// checksum of each file and of each block, the order, bounds and counts of each table, whether
    /// the log can be read, and whether each filter knows every key of its table.
    ///
    /// Reads all tables twice, past the block cache. Others may write meanwhile: the tables of this
    /// moment are looked at, and the log up to here. While the log is read, at most
    /// [`Options::log_bytes_max`], nothing else is recorded in the manifest.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the directory cannot be listed;
    /// [`Error::Closed`](crate::Error::Closed) if another handle [shuts the store
    /// down](Self::shutdown) meanwhile. Damage is not an error: the report lists it.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(|_| ())
    }

    /// As [`verify`](Self::verify), and tells `on_progress` about every 256 KiB how far it is.
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

/// The default keyspace.
impl AsRef<Keyspace> for Db {
    fn as_ref(&self) -> &Keyspace {
        &self.default
    }
}
