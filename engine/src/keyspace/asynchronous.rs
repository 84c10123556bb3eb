//! Writes of single entries that do not wait for durability or for background work.

use std::sync::Arc;

use sievedb_format::{VALUE_BYTES_MAX, expiry::EXPIRY_BYTES};
use sievedb_memtable::{Memtable, spare_bytes};

use super::Keyspace;
use crate::{
    CommitFuture, Result, RoomFuture,
    commit::{Always, Write, WriteEncoder},
    read::view::REFERENCE_BYTES,
    room_future::ROOM_BYTES,
    store::{Store, writer::stall::OnStall},
};

/// Implements the asynchronous write methods of a handle. `field` names its keyspace, if it is none
/// itself.
macro_rules! asynchronous_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Writes that do not wait for durability, or do not wait for background work. For several
        /// entries, or to wait for neither, use
        /// [`Batch::try_commit_async`](crate::Batch::try_commit_async).
        impl $handle {
            /// Stores an entry as [`insert`](Self::insert) does, but fails if background work would
            /// delay the write. Waits for the durability of the write: see
            /// [`Batch::try_commit`](crate::Batch::try_commit).
            ///
            /// ```
            /// use sievedb::{Db, Error};
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = Db::open(dir.path())?;
            /// while let Err(error) = db.try_insert("key", "value") {
            ///     match error {
            ///         // Serve others, or wait: here by blocking, in a task by `await`.
            ///         Error::WouldStall { .. } => db.room().wait()?,
            ///         error => return Err(error),
            ///     }
            /// }
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert), and [`Error::WouldStall`]: nothing was written.
            ///
            /// [`Error::WouldStall`]: crate::Error::WouldStall
            pub fn try_insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self$(.$field)?.try_put(key.as_ref(), value.as_ref())
            }

            /// Removes `key` as [`remove`](Self::remove) does, but fails if background work would
            /// delay the write. Waits for the durability of the write, as
            /// [`try_insert`](Self::try_insert) does.
            ///
            /// # Errors
            ///
            /// As [`try_insert`](Self::try_insert).
            pub fn try_remove(&self, key: impl AsRef<[u8]>) -> $crate::Result<()> {
                self$(.$field)?.try_delete(key.as_ref())
            }

            /// Stores an entry as [`insert`](Self::insert) does, without waiting for the durability
            /// of the write. At return the write is visible; the future resolves when the write is
            /// durable. See [`Batch::commit_async`](crate::Batch::commit_async).
            ///
            /// ```
            /// use std::{pin::pin, task::{Context, Waker}};
            /// use sievedb::{Db, Durability};
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = Db::open(dir.path())?;
            /// let synced = db.default_keyspace().with_durability(Durability::Disk);
            /// let mut commits = Vec::new();
            /// for number in 0_u32..100 {
            ///     commits.push(synced.insert_async(number.to_be_bytes(), "entry")?);
            /// }
            /// // In a task: `commit.await?`. Any executor polls it.
            /// let mut last = pin!(commits.pop().unwrap());
            /// let _ = last.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            /// // Without an executor:
            /// for commit in commits {
            ///     commit.wait()?;
            /// }
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert), except for those of the
            /// [future](crate::CommitFuture#failures).
            pub fn insert_async(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<$crate::CommitFuture> {
                self$(.$field)?.put_async(key.as_ref(), value.as_ref())
            }

            /// Removes `key` as [`remove`](Self::remove) does, without waiting for the durability
            /// of the write. See [`insert_async`](Self::insert_async).
            ///
            /// # Errors
            ///
            /// As [`insert_async`](Self::insert_async).
            pub fn remove_async(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<$crate::CommitFuture> {
                self$(.$field)?.delete_async(key.as_ref())
            }

            /// Returns a future that resolves when background work would not delay a write of 4 KiB
            /// to this keyspace, on a [`Db`](crate::Db) to the default keyspace.
            /// [`RoomFuture::wait`](crate::RoomFuture::wait) blocks instead. For a larger write,
            /// use [`room_for`](Self::room_for) or [`Batch::room`](crate::Batch::room).
            pub fn room(&self) -> $crate::RoomFuture {
                self$(.$field)?.room_future($crate::room_future::ROOM_BYTES)
            }

            /// As [`room`](Self::room), for an entry whose key and value have `bytes` bytes
            /// together, or 4 KiB if that is more.
            ///
            /// ```
            /// use sievedb::{Db, Error};
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = Db::open(dir.path())?;
            /// let (key, value) = ("key", vec![7; 1 << 20]);
            /// while let Err(Error::WouldStall { .. }) = db.try_insert(key, &value) {
            ///     db.room_for(key.len() + value.len()).wait()?;
            /// }
            /// # Ok::<(), Error>(())
            /// ```
            pub fn room_for(&self, bytes: usize) -> $crate::RoomFuture {
                self$(.$field)?.room_future(bytes)
            }
        }
    };
}

pub(crate) use asynchronous_methods;

asynchronous_methods!(Keyspace);

impl Keyspace {
    /// Stores a value as [`put`](Self::put) does, unless background work delays writes.
    pub(crate) fn try_put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        self.try_commit(store, self.encode_put(store, key, value)?)
    }

    /// Removes a key as [`delete`](Self::delete) does, unless background work delays writes.
    pub(crate) fn try_delete(&self, key: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        self.try_commit(store, WriteEncoder::single_remove(store.hash_seed, &self.tree, key)?)
    }

    /// Stores a value as [`put`](Self::put) does, without waiting for its durability.
    pub(crate) fn put_async(&self, key: &[u8], value: &[u8]) -> Result<CommitFuture> {
        let store = self.open.accept()?;
        self.commit_async(store, self.encode_put(store, key, value)?)
    }

    /// Removes a key as [`delete`](Self::delete) does, without waiting for the durability.
    pub(crate) fn delete_async(&self, key: &[u8]) -> Result<CommitFuture> {
        let store = self.open.accept()?;
        self.commit_async(store, WriteEncoder::single_remove(store.hash_seed, &self.tree, key)?)
    }

    /// Returns the future of room for an entry of `bytes` bytes, at least [`ROOM_BYTES`].
    pub(crate) fn room_future(&self, bytes: usize) -> RoomFuture {
        RoomFuture::new(&self.open, entry_charge(bytes), vec![Arc::clone(&self.tree)])
    }

    /// Encodes a value with the default TTL of the keyspace.
    fn encode_put(&self, store: &Store, key: &[u8], value: &[u8]) -> Result<Write> {
        let expiry_ms = self.tree.default_expiry_ms(|| store.versions.clock().now_ms());
        WriteEncoder::single_value(store.hash_seed, &self.tree, key, expiry_ms, value)
    }

    fn try_commit(&self, store: &Store, mut write: Write) -> Result<()> {
        let durability = self.durability(store);
        store.commit_or(OnStall::Refuse, &mut write, durability, &mut Always).map(drop)
    }

    fn commit_async(&self, store: &Store, mut write: Write) -> Result<CommitFuture> {
        let durability = self.durability(store);
        let wait = self.open.commit_async(OnStall::Wait, &mut write, durability, &mut Always)?;
        Ok(wait.map_or_else(CommitFuture::of_nothing, |wait| CommitFuture::new(&self.open, wait)))
    }
}

/// Returns the most memory that a write of one entry of `bytes` bytes takes in memtables.
fn entry_charge(bytes: usize) -> u64 {
    let value_bytes = bytes.clamp(ROOM_BYTES, 2 * VALUE_BYTES_MAX) + EXPIRY_BYTES;
    let charge = Memtable::charge(0, value_bytes) + REFERENCE_BYTES;
    (charge + spare_bytes(charge)) as u64
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{KeyspaceOptions, Options, fs::MemoryFs};

    /// Otherwise a task that waits for room after each refusal never waits.
    #[test]
    fn room_for_an_entry_suffices_for_its_write() {
        let keyspace = KeyspaceOptions::new().default_ttl(Duration::from_secs(60));
        let options = Options::new().fs(Arc::new(MemoryFs::new())).keyspace(keyspace);
        let db = options.worker_threads(0).open("db").expect("a new store");
        let default = db.keyspace("default").expect("it is always there");
        for bytes in [1, 4 << 10, 5 << 10, 70 << 10, 1 << 20] {
            let value = vec![7; bytes - 1];
            let write = default.encode_put(db.store(), b"k", &value).expect("it is short");
            assert!(entry_charge(bytes) >= write.charge_bytes(), "{bytes}");
        }
    }
}
