//! Writes that become one.

use std::{
    fmt, mem,
    sync::{Arc, Weak},
};

use crate::{
    Durability, Error, Keyspace, Result,
    commit::{Always, WriteEncoder},
    handle::Handle,
    handle_counts::HandleKind,
    store::open_store::OpenStore,
};

/// Writes to any keyspaces of a store that become one: all of them are visible at the same moment,
/// and survive a crash together or not at all. Of two writes to the same key the later one counts.
///
/// Held in memory until [`commit`](Self::commit); dropping it writes nothing.
/// [`bytes`](Self::bytes) tells how near it is to what memtables have room for.
///
/// A batch may hold writes to a keyspace that is dropped before or after they are added: adding
/// them succeeds. [`commit`](Self::commit) then fails with [`Error::KeyspaceDropped`] and writes
/// nothing, to other keyspaces neither. Creating a keyspace of the same name changes nothing: it is
/// another keyspace. [`clear`](Self::clear) the batch to use it again.
///
/// ```
/// use sievedb::{Db, Durability};
/// # let folder = tempfile::tempdir().unwrap();
/// let db = Db::open(folder.path())?;
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
/// * One [`insert`](Keyspace::insert) or [`remove`](Keyspace::remove).
/// * One [`commit`](Self::commit), over all keyspaces of the store.
/// * One [`insert_if_absent`](Keyspace::insert_if_absent): of concurrent calls for a key, one
///   returns `true`. It covers only its own key: an index entry written after it may be lost by a
///   crash.
/// * All reads of one [`Snapshot`](crate::Snapshot), and all of one iterator.
///
/// **A read followed by a write is not atomic**, not even if the write is a batch: a batch does not
/// check what was read before. Another thread may write in between, and its write is lost.
///
/// There are no transactions. For read-modify-write, hold one application lock from the read to the
/// end of the commit, in every thread that writes these keys. The lock suffices because only one
/// process can have a store open for writing. The examples `keyspaces` and `snapshot` show this.
#[must_use = "a batch writes nothing until it is committed"]
pub struct Batch {
    /// Only to know the store again.
    store: Weak<OpenStore>,
    /// While there are entries: one that is committed, and lives on, does not keep the store open.
    open: Option<Handle>,
    encoder: WriteEncoder,
}

impl Batch {
    pub(crate) fn new(open: &Arc<OpenStore>) -> Self {
        let encoder = WriteEncoder::new(open.store().hash_seed, 0);
        Self { store: Arc::downgrade(open), open: None, encoder }
    }

    /// Adds: store `value` under `key` in `keyspace`. A [`Db`](crate::Db) stands for its default
    /// keyspace.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::ForeignKeyspace`]; the batch is as
    /// it was.
    pub fn insert(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let keyspace = keyspace.as_ref();
        self.check(keyspace)?;
        self.encoder.put(keyspace.tree(), key.as_ref(), value.as_ref())?;
        self.hold(keyspace);
        Ok(())
    }

    /// Adds: remove `key` from `keyspace`. It need not be there.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn remove(&mut self, keyspace: impl AsRef<Keyspace>, key: impl AsRef<[u8]>) -> Result<()> {
        let keyspace = keyspace.as_ref();
        self.check(keyspace)?;
        self.encoder.remove(keyspace.tree(), key.as_ref())?;
        self.hold(keyspace);
        Ok(())
    }

    /// Number of writes in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoder.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the batch takes in memtables once it is committed, at most, in bytes: keys,
    /// values and what memtables need for each entry. 0 for an empty batch.
    ///
    /// More than three quarters of
    /// [`memtable_bytes_max`](crate::stats::MemoryStats::memtable_bytes_max), 48 MiB of a budget of
    /// 256 MiB, are refused with [`Error::WriteTooLarge`]; a little less may be, too, because empty
    /// memtables take some of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.encoder.charge_bytes()
    }

    /// Drops all that was added. The batch may be refilled.
    pub fn clear(&mut self) {
        if let Some(open) = self.open.take() {
            self.encoder = WriteEncoder::new(open.store().hash_seed, 0);
        }
    }

    /// Writes the batch. Visible, and as durable as asked, at return; the batch is empty then, and
    /// may be refilled.
    ///
    /// # Errors
    ///
    /// The batch is as it was. After [`Error::WriteTooLarge`], or an [`Error::Io`] for want of
    /// space, it may be committed again when there is room; after the others it is of no more use:
    /// [`clear`](Self::clear) it.
    ///
    /// [`Error::WriteTooLarge`] for a batch that memtables never have room for, and nothing is
    /// changed; [`Error::Io`] and [`Error::ReadOnly`], after which nothing of the batch is visible,
    /// but all of it may come back when the store is reopened; [`Error::KeyspaceDropped`].
    pub fn commit(&mut self, durability: Durability) -> Result<()> {
        // Nothing is held without entries.
        let Some(open) = self.open.take() else { return Ok(()) };
        let store = match open.accept() {
            Ok(store) => store,
            Err(error) => {
                self.open = Some(open);
                return Err(error);
            }
        };
        let empty = WriteEncoder::new(store.hash_seed, 0);
        let mut write = mem::replace(&mut self.encoder, empty).finish();
        let committed = store.commit(&mut write, durability, &mut Always);
        if committed.is_err() {
            self.encoder = WriteEncoder::resume(store.hash_seed, write);
            self.open = Some(open);
        }
        committed.map(drop)
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        if Arc::as_ptr(keyspace.open_store()) == self.store.as_ptr() {
            return Ok(());
        }
        Err(Error::ForeignKeyspace { name: keyspace.name().to_owned() })
    }

    fn hold(&mut self, keyspace: &Keyspace) {
        self.open.get_or_insert_with(|| keyspace.handle().of_kind(HandleKind::Batch));
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
