//! Writes that do not wait for durability or for background work.

use std::borrow::Borrow;

use sievedb::{CommitFuture, RoomFuture};

use super::TypedKeyspace;
use crate::{
    codec::Codec,
    error::Result,
    key::{self, EncodeAs, Key},
};

/// Writes that do not wait for durability, or for background work. For several entries, fill a
/// [`Batch`](sievedb::Batch) by [`insert_in`](Self::insert_in), and commit it by
/// [`commit_async`](sievedb::Batch::commit_async) or [`try_commit`](sievedb::Batch::try_commit).
/// [`Db::wait_durable`](sievedb::Db::wait_durable) waits for any writes of the store.
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Stores an entry as [`insert`](Self::insert) does, but fails if background work would delay
    /// the write. See [`Keyspace::try_insert`](sievedb::Keyspace::try_insert).
    ///
    /// ```
    /// use sievedb_typed::{Error, Schema, TypedKeyspace, sievedb::{self, Db}};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let users = TypedKeyspace::<u64, String>::open(&db, "users", Schema::new("user", 1))?;
    /// while let Err(error) = users.try_insert(7, "anna".to_owned()) {
    ///     match error.engine() {
    ///         // In a task: `users.room().await?`.
    ///         Some(sievedb::Error::WouldStall { .. }) => users.room().wait()?,
    ///         _ => return Err(error),
    ///     }
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), and [`sievedb::Error::WouldStall`]: nothing was written.
    pub fn try_insert(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        self.with_entry(&key, value.borrow(), |key, value| self.entries.try_insert(key, value))
    }

    /// Removes `key` as [`remove`](Self::remove) does, but fails if background work would delay the
    /// write.
    ///
    /// # Errors
    ///
    /// As [`try_insert`](Self::try_insert).
    pub fn try_remove(&self, key: impl EncodeAs<K>) -> Result<()> {
        Ok(key::with_bytes(&key, |key| self.entries.try_remove(key))?)
    }

    /// Stores an entry as [`insert`](Self::insert) does, without waiting for the durability of the
    /// write: see [`Keyspace::insert_async`](sievedb::Keyspace::insert_async).
    ///
    /// ```
    /// use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let users = TypedKeyspace::<u64, String>::open(&db, "users", Schema::new("user", 1))?;
    /// let commit = users.insert_async(7, "anna".to_owned())?;
    /// assert_eq!(users.get(7)?.as_deref(), Some("anna"));
    /// let sequence = commit.wait()?; // in a task: `commit.await?`
    /// db.wait_durable(sequence)?;
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_async(
        &self,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<CommitFuture> {
        self.with_entry(&key, value.borrow(), |key, value| self.entries.insert_async(key, value))
    }

    /// Removes `key` as [`remove`](Self::remove) does, without waiting for the durability of the
    /// write.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn remove_async(&self, key: impl EncodeAs<K>) -> Result<CommitFuture> {
        Ok(key::with_bytes(&key, |key| self.entries.remove_async(key))?)
    }

    /// Returns a future that is ready when background work would not delay a write of 4 KiB. See
    /// [`Keyspace::room`](sievedb::Keyspace::room).
    pub fn room(&self) -> RoomFuture {
        self.entries.room()
    }

    /// As [`room`](Self::room), for an entry of `bytes` encoded bytes. See
    /// [`Keyspace::room_for`](sievedb::Keyspace::room_for).
    pub fn room_for(&self, bytes: usize) -> RoomFuture {
        self.entries.room_for(bytes)
    }
}
