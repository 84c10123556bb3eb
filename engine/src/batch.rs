//! Atomic batches of writes.

mod keyed_writes;

use std::{
    fmt, mem,
    sync::{Arc, Weak},
};

use sievedb_format::Kind;

pub(crate) use self::keyed_writes::keyed_writes;
use crate::{
    CommitFuture, Durability, Error, Keyspace, Result, RoomFuture,
    commit::{Always, Write, WriteEncoder, check_entry},
    handle::Handle,
    handle_counts::HandleKind,
    iter::bounds::KeyBounds,
    store::{open_store::OpenStore, writer::stall::OnStall},
};

/// Writes to any keyspaces of a store that are applied atomically: all become visible at once, and
/// survive a crash together or not at all. Of two writes to one key the later one takes effect;
/// [merge operands](Self::merge) are all applied.
///
/// Held in memory until [`commit`](Self::commit); dropping it writes nothing.
/// [`bytes`](Self::bytes) returns its memory in memtables.
///
/// A batch may hold writes to a keyspace that is dropped before or after they are added.
/// [`commit`](Self::commit) then fails with [`Error::KeyspaceDropped`] and writes nothing, even if
/// a keyspace of the same name was created. [`clear`](Self::clear) the batch to reuse it.
///
/// ```
/// use sievedb::{Db, Durability};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let by_name = db.keyspace("by name")?;
/// let mut batch = db.batch();
/// batch.insert(&db, "7", "anna")?;
/// batch.insert(&by_name, "anna", "7")?;
/// batch.commit(Durability::Disk)?;
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// # What is atomic
///
/// * One [`insert`](Keyspace::insert), [`remove`](Keyspace::remove) or
///   [`remove_range`](Keyspace::remove_range).
/// * One [`commit`](Self::commit), over all keyspaces of the store.
/// * One conditional write, such as [`insert_if_absent`](Keyspace::insert_if_absent) or
///   [`fetch_update`](Keyspace::fetch_update). It covers only its own key: a crash may lose an
///   index entry written after it.
/// * All reads of one [`Snapshot`](crate::Snapshot), and all of one iterator.
///
/// **A read followed by a write is not atomic**, not even if the write is a batch: a batch does not
/// check earlier reads. Another thread may write in between, and its write is lost.
///
/// For read-modify-write use a [transaction](crate::Db::transaction), or a conditional write for a
/// single key.
#[must_use = "a batch writes nothing until it is committed"]
pub struct Batch {
    /// Identifies the store, without keeping it open.
    store: Weak<OpenStore>,
    /// Set while there are entries, so that an empty batch does not keep the store open.
    open: Option<Handle>,
    encoder: WriteEncoder,
}

impl Batch {
    pub(crate) fn new(open: &Arc<OpenStore>) -> Self {
        let encoder = WriteEncoder::new(open.store().hash_seed, 0);
        Self { store: Arc::downgrade(open), open: None, encoder }
    }

    /// Adds a merge operand for `key` in `keyspace`: see [`Keyspace::merge`].
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`Error::NoMergeOperator`].
    pub fn merge(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let keyspace = keyspace.as_ref();
        self.check(keyspace)?;
        keyspace.tree().check_operator()?;
        self.encoder.put(keyspace.tree(), Kind::Merge, key.as_ref(), operand.as_ref())?;
        self.hold(keyspace);
        Ok(())
    }

    /// Returns the expiry of a value that is written without a TTL.
    fn default_expiry_ms(&self, keyspace: &Keyspace) -> Option<u64> {
        let clock = keyspace.open_store().store().versions.clock();
        keyspace.tree().default_expiry_ms(|| clock.now_ms())
    }

    fn ttl_start_ms(&self, keyspace: &Keyspace) -> Result<u64> {
        self.check(keyspace)?;
        Ok(keyspace.open_store().accept()?.versions.clock().now_ms())
    }

    fn add_value(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        expiry_ms: Option<u64>,
        value: &[u8],
    ) -> Result<()> {
        self.check(keyspace)?;
        let tree = keyspace.tree();
        if keyspace.open_store().store().versions.clock().has_passed(expiry_ms) {
            check_entry(key, value)?;
            self.encoder.remove(tree, key)?;
        } else {
            self.encoder.put_value(tree, key, expiry_ms, value)?;
        }
        self.hold(keyspace);
        Ok(())
    }

    fn add_removal(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.check(keyspace)?;
        self.encoder.remove(keyspace.tree(), key)?;
        self.hold(keyspace);
        Ok(())
    }

    fn add_range(&mut self, keyspace: &Keyspace, bounds: &KeyBounds) -> Result<()> {
        self.check(keyspace)?;
        self.encoder.remove_range(keyspace.tree(), bounds)?;
        if self.encoder.len() > 0 {
            self.hold(keyspace);
        }
        Ok(())
    }

    /// Returns the number of writes in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoder.len()
    }

    /// Returns `true` if the batch has no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum memory of the batch in memtables, in bytes: keys, values and the
    /// overhead of each entry. 0 for an empty batch.
    ///
    /// [`commit`](Self::commit) fails with [`Error::WriteTooLarge`] for more than 3/4 of
    /// [`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max): by default 48 MiB with
    /// a budget of 256 MiB. The present limit in
    /// [`MemoryStats`](crate::stats::MemoryStats::memtable_bytes_max) may be lower. It is raised
    /// for the write.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.encoder.charge_bytes()
    }

    /// Removes all writes. The batch can be reused.
    pub fn clear(&mut self) {
        if let Some(open) = self.open.take() {
            self.encoder = WriteEncoder::new(open.store().hash_seed, 0);
        }
    }

    /// Writes the batch. At return its writes are visible and have this `durability`, with `None`
    /// that of [`Options::durability`](crate::Options::durability). The batch is empty then and can
    /// be reused. Returns the sequence number of its last write; 0 for an empty batch.
    ///
    /// # Errors
    ///
    /// The batch keeps its writes.
    ///
    /// * [`Error::WriteTooLarge`]: the batch exceeds the memory for memtables. Nothing is changed;
    ///   commit the batch again after raising the budget.
    /// * [`Error::Io`]: no write is visible, but all may reappear when the store is reopened. On a
    ///   full disk, commit the batch again after freeing space.
    /// * [`Error::ReadOnly`]: as `Io`, but only reopening the store helps.
    /// * [`Error::KeyspaceDropped`]: nothing is changed; [`clear`](Self::clear) the batch.
    pub fn commit(&mut self, durability: impl Into<Option<Durability>>) -> Result<u64> {
        self.commit_or(OnStall::Wait, durability.into())
    }

    /// Writes the batch as [`commit`](Self::commit) does, but fails if background work would delay
    /// it.
    ///
    /// Waits for the durability of the batch, for a [`clear`](Keyspace::clear) in flight of one of
    /// its keyspaces, and for earlier writes to become visible. For a call that does not wait for a
    /// sync, use [`try_commit_async`](Self::try_commit_async).
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit), and [`Error::WouldStall`]: nothing was written, and the batch
    /// keeps its writes. Wait for [`room`](Self::room), and call again.
    pub fn try_commit(&mut self, durability: impl Into<Option<Durability>>) -> Result<u64> {
        self.commit_or(OnStall::Refuse, durability.into())
    }

    fn commit_or(&mut self, on_stall: OnStall, durability: Option<Durability>) -> Result<u64> {
        let committed = self.commit_by(|open, write| {
            let store = open.accept()?;
            let durability = durability.unwrap_or(store.options.durability);
            store.commit_or(on_stall, write, durability, &mut Always)
        });
        Ok(committed?.unwrap_or(0))
    }

    /// Returns a future that resolves when background work would not delay a commit of this batch.
    /// [`RoomFuture::wait`] blocks instead.
    pub fn room(&self) -> RoomFuture {
        match &self.open {
            Some(open) => RoomFuture::new(open, self.bytes(), self.encoder.trees()),
            None => RoomFuture::of_nothing(),
        }
    }

    /// Writes the batch without waiting for its durability. At return its writes are visible, and
    /// the batch is empty and can be reused. The future resolves to the sequence number of the last
    /// write when all writes have this `durability`, as for [`commit`](Self::commit).
    ///
    /// A background thread syncs the log, once for all commits in flight. See [`CommitFuture`] for
    /// failures. Other threads may read the writes before they are durable. To make them visible
    /// only when they are durable, use [`commit`](Self::commit) on a thread.
    ///
    /// Writes become visible in the order of their sequence numbers. So the call waits while a
    /// [`commit`](Self::commit) with [`Durability::Disk`] by another thread syncs. It does not wait
    /// for other asynchronous commits. Background work may delay the call, as every write: see
    /// [`try_commit_async`](Self::try_commit_async).
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit): the batch keeps its writes, of which none is visible.
    ///
    /// ```
    /// use sievedb::{Db, Durability};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let mut in_flight = Vec::new();
    /// for number in 0_u32..100 {
    ///     let mut batch = db.batch();
    ///     batch.insert(&db, number.to_be_bytes(), "entry of a log")?;
    ///     in_flight.push(batch.commit_async(Durability::Disk)?);
    /// }
    /// // A few syncs make all of them durable. In a task: `commit.await?`.
    /// for commit in in_flight {
    ///     let sequence = commit.wait()?;
    ///     assert!(db.durable_sequence() >= sequence);
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn commit_async(
        &mut self,
        durability: impl Into<Option<Durability>>,
    ) -> Result<CommitFuture> {
        self.commit_async_or(OnStall::Wait, durability.into())
    }

    /// Writes the batch as [`commit_async`](Self::commit_async) does, but fails if background work
    /// would delay it.
    ///
    /// # Errors
    ///
    /// As [`try_commit`](Self::try_commit).
    pub fn try_commit_async(
        &mut self,
        durability: impl Into<Option<Durability>>,
    ) -> Result<CommitFuture> {
        self.commit_async_or(OnStall::Refuse, durability.into())
    }

    fn commit_async_or(
        &mut self,
        on_stall: OnStall,
        durability: Option<Durability>,
    ) -> Result<CommitFuture> {
        let committed = self.commit_by(|open, write| {
            let durability = durability.unwrap_or(open.store().options.durability);
            let wait = open.commit_async(on_stall, write, durability, &mut Always)?;
            Ok(wait.map(|wait| CommitFuture::new(open, wait)))
        });
        Ok(committed?.unwrap_or_else(CommitFuture::of_nothing))
    }

    /// Commits by `commit`. Restores the entries if that fails. Returns `None` for an empty batch.
    fn commit_by<T>(
        &mut self,
        commit: impl FnOnce(&OpenStore, &mut Write) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        // A batch without entries holds no handle.
        let Some(open) = self.open.take() else { return Ok(None) };
        let seed = open.store().hash_seed;
        let mut write = mem::replace(&mut self.encoder, WriteEncoder::new(seed, 0)).finish();
        let committed = commit(&open, &mut write);
        if committed.is_err() {
            self.encoder = WriteEncoder::resume(seed, write);
            self.open = Some(open);
        }
        committed
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if Arc::as_ptr(keyspace.open_store()) == self.store.as_ptr() {
            return Ok(());
        }
        Err(Error::ForeignKeyspace { name: keyspace.name() })
    }

    fn hold(&mut self, keyspace: &Keyspace) {
        self.open.get_or_insert_with(|| keyspace.handle().of_kind(HandleKind::Batch));
    }
}

keyed_writes!(Batch);

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
