//! A named collection of keys.

pub(crate) mod asynchronous;
pub(crate) mod conditional;
pub(crate) mod expiring;
pub(crate) mod ingestion;
mod options;
mod pop;
pub(crate) mod streamed;
mod unsorted;
pub(crate) mod upkeep;
pub(crate) mod writes;

use std::{fmt, sync::Arc};

pub use self::conditional::Current;
pub use self::ingestion::{Ingested, Ingestion};
pub use self::unsorted::UnsortedIngestion;
#[cfg(doc)]
use crate::Error;
use crate::{
    Durability, ReadOptions, Result,
    handle::Handle,
    handle_counts::HandleKind,
    iter::bounds::KeyBounds,
    read::tree::Tree,
    reader::{Reader, read_methods},
    store::{Store, open_store::OpenStore},
};

/// A named collection of keys with its own options. RocksDB calls it a column family.
///
/// Cheap to clone and safe to share between threads. All keyspaces of a store share one log and one
/// manifest, so a [`Batch`](crate::Batch) over several keyspaces is atomic.
///
/// Keys have 0 to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes, values 0 to
/// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) bytes. Keys are ordered byte by byte.
pub struct Keyspace {
    /// Declared before the handle: its memtables are freed before the store leaves its memory pool.
    tree: Arc<Tree>,
    open: Handle,
    read_options: ReadOptions,
    /// `None` for the durability of the store's options.
    durability: Option<Durability>,
}

/// Identifies a keyspace among those of all stores. A copy of a store's directory has the same ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct KeyspaceId {
    /// Random number of the store, drawn when it was created.
    pub store: u128,
    /// Number of the keyspace in its store, never used for another keyspace. 1 is the default
    /// keyspace.
    pub number: u64,
}

impl Keyspace {
    pub(crate) fn new(open: Handle, tree: Arc<Tree>, read_options: ReadOptions) -> Self {
        Self { open, tree, read_options, durability: None }
    }

    /// Returns this keyspace as part of a handle of this kind.
    pub(crate) fn of_kind(&self, kind: HandleKind) -> Self {
        let (open, tree) = (self.open.of_kind(kind), Arc::clone(&self.tree));
        Self { open, tree, read_options: self.read_options, durability: self.durability }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.open
    }

    pub(crate) fn open_store(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Returns a handle of this keyspace that reads with `options`, iterators included.
    #[must_use]
    pub fn with_read_options(&self, options: ReadOptions) -> Self {
        Self { read_options: options, ..self.clone() }
    }

    pub(crate) fn read_options(&self) -> ReadOptions {
        self.read_options
    }

    /// Returns a handle of this keyspace whose writes have `durability`, instead of
    /// [`Options::durability`](crate::Options::durability). Costs a clone: reuse the handle.
    ///
    /// Applies to single writes and conditional writes of the handle. Commits of batches and
    /// transactions do not use it: with `None` they have the durability of the options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use sievedb::{Db, Durability};
    ///
    /// let db = Db::open(dir.path())?;
    /// let payments = db.keyspace("payments")?.with_durability(Durability::Disk);
    /// payments.insert("2026-11-26/1", "9.50")?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self.clone() }
    }

    /// Returns the durability of a write.
    #[inline]
    pub(crate) fn durability(&self, store: &Store) -> Durability {
        self.durability.unwrap_or(store.options.durability)
    }

    /// Returns a reader of the entries visible at the time of each call.
    #[inline(always)]
    pub(crate) fn reader(&self) -> Reader<'_> {
        let Self { tree, open, read_options: options, .. } = self;
        Reader { open, tree, options: *options, snapshot: None }
    }

    /// Returns a copy of the present name of the keyspace, which
    /// [`Db::rename_keyspace`](crate::Db::rename_keyspace) changes.
    #[must_use]
    pub fn name(&self) -> String {
        self.tree.name()
    }

    /// Returns the id of the keyspace. A rename keeps it. A keyspace that is dropped and created
    /// again has a new one, and so have the keyspaces of a [repaired](crate::Options::repair)
    /// store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let id = db.keyspace("index.new")?.id();
    /// db.rename_keyspace("index.new", "index")?;
    /// assert_eq!(db.keyspace("index")?.id(), id);
    /// assert_ne!(db.keyspace("index.new")?.id(), id);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> KeyspaceId {
        KeyspaceId { store: self.open.store().tables.store_id, number: self.tree.id }
    }

    /// Writes the memtables of this keyspace into tables, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As [`Db::flush`](crate::Db::flush); [`Error::KeyspaceDropped`].
    pub fn flush(&self) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.flush_trees(std::slice::from_ref(&self.tree))?;
        self.tree.check()
    }

    /// Merges this keyspace into one sorted run, as [`Db::compact`](crate::Db::compact) does.
    ///
    /// # Errors
    ///
    /// As [`Db::compact`](crate::Db::compact); [`Error::KeyspaceDropped`].
    pub fn compact(&self) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.compact_tree(&self.tree, &KeyBounds::ALL)?;
        self.tree.check()
    }
}

read_methods!(Keyspace);

impl AsRef<Self> for Keyspace {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Clone for Keyspace {
    fn clone(&self) -> Self {
        self.of_kind(HandleKind::Keyspace)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}
