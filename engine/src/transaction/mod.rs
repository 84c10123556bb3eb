//! Optimistic transactions: reads of a snapshot, and writes that are applied atomically if no
//! other write conflicts with them.
//!
//! A transaction holds a snapshot, and keeps its writes in memory. It takes no locks. The commit is
//! one [write](crate::commit) with a [condition](crate::validation): no key or range that the
//! transaction has read was written since the snapshot.
//!
//! | module         | content                                                               |
//! |----------------|-----------------------------------------------------------------------|
//! | [`changes`]    | writes that depend on the present value of their key                  |
//! | [`expiring`]   | writes of values that expire                                          |
//! | [`keys`]       | iterators over keys alone                                             |
//! | [`options`]    | isolation, durability, limits                                         |
//! | [`own_writes`] | uncommitted writes, savepoints                                        |
//! | [`reads`]      | lookups, which see the transaction's own writes                       |
//! | [`range`]      | iterators over snapshot and own writes, from both ends                |
//! | [`removed_ranges`] | ranges that the transaction removes                              |
//! | [`run`]        | `Db::transaction` and `Db::begin`                                     |

mod changes;
mod expiring;
mod keys;
mod options;
mod own_writes;
mod range;
mod reads;
mod removed_ranges;
pub(crate) mod run;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sievedb_filter::hash::key_hash;

pub use self::{
    keys::TransactionKeys,
    options::{Isolation, TransactionOptions},
    own_writes::Savepoint,
    range::TransactionRange,
};
use self::{
    own_writes::{OwnValue, OwnWrites},
    reads::Tracked,
};
use crate::{
    CommitFuture, Durability, Error, Keyspace, Result,
    batch::keyed_writes,
    commit::{Write, check_entry},
    handle::Handle,
    handle_counts::HandleKind,
    held_sequence::HeldSequence,
    iter::bounds::KeyBounds,
    memory::{Charge, MemoryUse},
    store::{Store, open_store::OpenStore, writer::stall::OnStall},
    sync::Mutex,
    validation::{read_set::ReadSet, unchanged::Unchanged},
};

/// Memory of writes, in bytes, after each of which the block cache is fitted.
const FIT_BYTES: usize = 256 << 10;

/// An optimistic transaction: reads and writes of any keyspaces of a store as one atomic step.
///
/// Reads see the store at the time of [`Db::begin`](crate::Db::begin), and the transaction's own
/// writes. Writes are kept in memory until [`commit`](Self::commit), which applies all of them or
/// none. Dropping the transaction rolls it back.
///
/// A transaction takes no locks: no other transaction or write waits for it. If another write has
/// changed a key or range that the transaction depends on, the commit fails with
/// [`Error::Conflict`]. [`Db::transaction`](crate::Db::transaction) then runs the transaction
/// again. Writes outside of transactions conflict too. [`Isolation`] defines the keys and ranges
/// that a transaction depends on.
///
/// A transaction without writes never conflicts. Like a [snapshot](crate::Db::snapshot), an open
/// transaction keeps the versions visible to it.
///
/// ```
/// use sievedb::{Db, Durability, Error};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let log = db.keyspace("log")?;
/// db.insert("stock", "3")?;
///
/// let mut first = db.begin();
/// let mut second = db.begin();
/// for (transaction, buyer) in [(&mut first, "anna"), (&mut second, "bert")] {
///     assert_eq!(transaction.get(&db, "stock")?.as_deref(), Some(&b"3"[..]));
///     transaction.insert(&db, "stock", "2")?;
///     transaction.insert(&log, buyer, "bought one")?;
/// }
/// first.commit(Durability::Disk)?;
/// assert!(matches!(second.commit(None), Err(Error::Conflict { .. })));
/// assert!(!log.contains_key("bert")?);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction {
    options: TransactionOptions,
    bytes_max: u64,
    writes: OwnWrites,
    /// Changed by reads too.
    tracked: Mutex<Tracked>,
    charge: Charge,
    held: HeldSequence,
    open: Handle,
}

impl Transaction {
    pub(crate) fn new(default: &Keyspace, options: TransactionOptions) -> Self {
        let open = default.handle().of_kind(HandleKind::Transaction);
        let store = open.store();
        let bytes_max = options.bytes_max.unwrap_or_else(|| store.transaction_bytes_max());
        let memory = &store.tables.memory;
        Self {
            options,
            bytes_max,
            writes: OwnWrites::default(),
            tracked: Mutex::default(),
            charge: memory.charge(MemoryUse::Bookkeeping, 0),
            held: HeldSequence::new(Arc::clone(&open)),
            open,
        }
    }

    fn add_removal(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.write(keyspace, key, None)
    }

    fn add_range(&mut self, keyspace: &Keyspace, bounds: &KeyBounds) -> Result<()> {
        self.accept_write(keyspace)?;
        bounds.keys().try_for_each(|key| check_entry(key, &[]))?;
        let Some(range) = bounds.as_range_tombstone() else { return Ok(()) };
        self.take_bytes(self.writes.remove_range_bytes(keyspace.tree(), &range))?;
        let replaced = self.writes.remove_range(keyspace.tree(), range);
        self.free_bytes(replaced);
        Ok(())
    }

    /// Adds `operand` to the value of `key` in `keyspace`, by its
    /// [merge operator](crate::KeyspaceOptions::merge_operator).
    ///
    /// Unlike [`Keyspace::merge`], this call reads the value by
    /// [`get_for_update`](Self::get_for_update), and writes the result as
    /// [`fetch_update`](Self::fetch_update) does. So the commit fails if the key was written after
    /// the transaction began.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get_for_update`](Self::get_for_update);
    /// [`Error::NoMergeOperator`], [`Error::MergeFailed`].
    pub fn merge(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        check_entry(key, operand.as_ref())?;
        let base = self.find_for_update(keyspace, key)?;
        let operator = keyspace.tree().operator();
        let Some(folder) = operator.get() else { return keyspace.tree().check_operator() };
        let value = base.as_ref().map(|(value, _)| &**value);
        let value = folder.fold(key, value, &[operand.as_ref()])?;
        self.replace(keyspace, key, base.as_ref(), &value)
    }

    /// Adds a write of a value, or of a removal.
    fn write(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: Option<(&[u8], Option<u64>)>,
    ) -> Result<()> {
        self.accept_write(keyspace)?;
        let bytes = value.map(|(bytes, _)| bytes);
        check_entry(key, bytes.unwrap_or_default())?;
        self.take_bytes(OwnWrites::bytes(key, bytes) + self.writes.undo_bytes(1))?;
        let copy = Bytes::copy_from_slice;
        let value = value.map(|(bytes, expiry_ms)| OwnValue { bytes: copy(bytes), expiry_ms });
        let replaced = self.writes.set(keyspace.tree(), copy(key), value);
        self.free_bytes(replaced);
        Ok(())
    }

    fn accept_write(&self, keyspace: &Keyspace) -> Result<()> {
        self.accept(keyspace)?;
        if self.options.read_only { Err(Error::ReadOnlyTransaction) } else { Ok(()) }
    }

    /// Returns the number of keys that the transaction writes, and of ranges that it removes.
    /// Ranges that overlap or touch count once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns `true` if the transaction writes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the memory that the transaction uses, in bytes: its writes, and the keys and ranges
    /// that it has read. Part of [`Options::memory_budget`](crate::Options::memory_budget).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tracked.lock().bytes as u64
    }

    /// Sets a savepoint. Until it is released, the transaction also keeps those of its own writes
    /// that it overwrites.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let mut transaction = db.begin();
    /// transaction.insert(&db, "a", "1")?;
    /// let savepoint = transaction.set_savepoint();
    /// transaction.insert(&db, "a", "2")?;
    /// transaction.insert(&db, "b", "2")?;
    /// transaction.rollback_to(&savepoint)?;
    /// assert_eq!(transaction.get(&db, "a")?.as_deref(), Some(&b"1"[..]));
    /// assert_eq!(transaction.get(&db, "b")?, None);
    /// transaction.release(savepoint)?;
    /// transaction.commit(None)?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn set_savepoint(&mut self) -> Savepoint {
        self.writes.set_savepoint()
    }

    /// Undoes the writes since `savepoint`, which stays set, and releases later savepoints. Reads
    /// are not undone: the transaction still depends on them.
    ///
    /// # Errors
    ///
    /// [`Error::NoSavepoint`] if `savepoint` was released, or is of another transaction.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let freed = self.writes.rollback_to(savepoint)?;
        self.free_bytes(freed);
        Ok(())
    }

    /// Releases `savepoint` and later ones. The writes since then stay.
    ///
    /// # Errors
    ///
    /// As [`rollback_to`](Self::rollback_to).
    #[expect(clippy::needless_pass_by_value, reason = "it cannot be used afterwards")]
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        let freed = self.writes.release(&savepoint)?;
        self.free_bytes(freed);
        Ok(())
    }

    /// Rolls the transaction back: discards all writes, as dropping the transaction does.
    pub fn rollback(self) {}

    /// Applies all writes atomically if no other write conflicts. At return the writes are visible
    /// and have this `durability`; with `None` that of [`TransactionOptions::durability`]. Returns
    /// the sequence number of the last write; 0 without writes.
    ///
    /// Costs a [batch](crate::Batch) of the writes, and one comparison for each key that the
    /// transaction depends on. A key that may have been written since the transaction began is
    /// searched for in memtables and tables that are newer than the transaction. So is each range.
    ///
    /// # Errors
    ///
    /// No write is visible, and the transaction is dropped.
    ///
    /// * [`Error::Conflict`]: nothing was changed; run the transaction again.
    /// * [`Error::KeyspaceDropped`]: a keyspace that the transaction writes to, or depends on, was
    ///   dropped. Nothing was changed.
    /// * [`Error::WriteTooLarge`], [`Error::Closed`]: nothing was changed.
    /// * [`Error::Corrupt`], or [`Error::Io`] of a table: the validation could not read a table.
    ///   Nothing was changed.
    /// * [`Error::Io`] of the log, [`Error::ReadOnly`]: the writes may reappear when the store is
    ///   reopened, all or none, as those of [`Batch::commit`](crate::Batch::commit).
    pub fn commit(self, durability: impl Into<Option<Durability>>) -> Result<u64> {
        let committed = self.commit_by(durability.into(), |open, write, durability, unchanged| {
            open.accept()?.commit(write, durability, unchanged)
        });
        Ok(committed?.unwrap_or(0))
    }

    /// Commits without waiting for the durability of the writes, which are visible at return: see
    /// [`Batch::commit_async`](crate::Batch::commit_async). Otherwise as [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit), conflicts too.
    pub fn commit_async(self, durability: impl Into<Option<Durability>>) -> Result<CommitFuture> {
        let committed = self.commit_by(durability.into(), |open, write, durability, unchanged| {
            let wait = open.commit_async(OnStall::Wait, write, durability, unchanged)?;
            Ok(wait.map(|wait| CommitFuture::new(open, wait)))
        });
        Ok(committed?.unwrap_or_else(CommitFuture::of_nothing))
    }

    /// Commits by `commit`, which returns `None` after a conflict. Returns `None` without writes.
    fn commit_by<T>(
        mut self,
        durability: Option<Durability>,
        commit: impl FnOnce(&OpenStore, &mut Write, Durability, &mut Unchanged<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let store = self.open.accept()?;
        if self.writes.is_empty() {
            return Ok(None);
        }
        let durability = durability.or(self.options.durability).unwrap_or(store.options.durability);
        let mut write = self.writes.encode(store.hash_seed)?;
        let tracked = std::mem::take(&mut *self.tracked.lock());
        let mut set = tracked.set;
        if self.options.isolation == Isolation::Snapshot {
            self.add_own_writes(store, &mut set);
        }
        // No longer needed, and in `write`.
        self.writes = OwnWrites::default();
        let mut unchanged = Unchanged::new(store, set, self.held.sequence())?;
        match commit(&self.open, &mut write, durability, &mut unchanged)? {
            Some(committed) => Ok(Some(committed)),
            None => Err(unchanged.take_conflict().expect("a condition that failed has a conflict")),
        }
    }

    /// Adds the written keys and ranges, for which the first commit wins.
    fn add_own_writes(&self, store: &Store, set: &mut ReadSet) {
        for (tree, range) in self.writes.removed_ranges() {
            set.add_range(tree, range);
        }
        for (tree, key) in self.writes.keys() {
            set.add_key(tree, key.clone(), key_hash(key, store.hash_seed));
        }
    }

    /// # Errors
    ///
    /// [`Error::ForeignKeyspace`], [`Error::Closed`], [`Error::ForkedChild`].
    fn accept(&self, keyspace: &Keyspace) -> Result<&Store> {
        if !Arc::ptr_eq(keyspace.open_store(), &self.open) {
            return Err(Error::ForeignKeyspace { name: keyspace.name() });
        }
        self.open.accept()
    }

    /// Charges `bytes` before they are allocated.
    ///
    /// # Errors
    ///
    /// [`Error::TransactionTooLarge`].
    fn take_bytes(&self, bytes: usize) -> Result<()> {
        let mut tracked = self.tracked.lock();
        let before = tracked.bytes;
        tracked.take_bytes(bytes, self.bytes_max, &self.charge)?;
        drop(tracked);
        if before / FIT_BYTES != (before + bytes) / FIT_BYTES {
            // Otherwise the block cache would yield at the next flush or full memtable only.
            self.open.store().tables.fit_cache();
        }
        Ok(())
    }

    fn free_bytes(&self, bytes: usize) {
        let mut tracked = self.tracked.lock();
        debug_assert!(bytes <= tracked.bytes, "{bytes} of {} bytes are freed", tracked.bytes);
        tracked.bytes -= bytes;
        self.charge.shrink(bytes);
    }
}

keyed_writes!(Transaction);

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut transaction = f.debug_struct("Transaction");
        transaction.field("options", &self.options).field("len", &self.len());
        transaction.finish_non_exhaustive()
    }
}
