//! Writes that are part of a batch or of a transaction.

use std::{
    borrow::Borrow,
    time::{Duration, SystemTime},
};

use super::TypedKeyspace;
use crate::{
    codec::Codec,
    error::Result,
    key::{self, EncodeAs, Key},
    transaction::{Expiry, Writes},
};

/// Writes that are part of a [`Batch`](sievedb::Batch) or of a
/// [`Transaction`](sievedb::Transaction), which may write to any keyspaces of the store. [Range
/// deletes](Self::remove_range_in) are part of them too.
///
/// A TTL counts from the call for a batch, and from the start of a transaction.
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Adds a write of `value` under `key` to `writes`.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::{Db, Durability}};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path())?;
    /// let users = TypedKeyspace::<u64, String>::open(&db, "users", Schema::new("user", 1))?;
    /// let mut batch = db.batch();
    /// users.insert_in(&mut batch, 7, "anna".to_owned())?;
    /// users.remove_in(&mut batch, 8)?;
    /// batch.commit(Durability::Disk)?;
    /// assert_eq!(users.get(7)?.as_deref(), Some("anna"));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Encode`](crate::Error::Encode); [`Error::Engine`](crate::Error::Engine) as of the
    /// engine's call. Nothing was added.
    pub fn insert_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.put_in(writes, &key, value.borrow(), Expiry::Default)
    }

    /// Adds a write of `value` that expires after `ttl`. See
    /// [`insert_with_ttl`](Self::insert_with_ttl).
    ///
    /// # Errors
    ///
    /// As [`insert_in`](Self::insert_in).
    pub fn insert_with_ttl_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_in(writes, &key, value.borrow(), Expiry::After(ttl))
    }

    /// Adds a write of `value` that expires at `time`. See
    /// [`insert_expiring_at`](Self::insert_expiring_at).
    ///
    /// # Errors
    ///
    /// As [`insert_in`](Self::insert_in).
    pub fn insert_expiring_at_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        time: SystemTime,
    ) -> Result<()> {
        self.put_in(writes, &key, value.borrow(), Expiry::At(time))
    }

    /// Adds a write of `value` that does not expire. See
    /// [`insert_without_ttl`](Self::insert_without_ttl).
    ///
    /// # Errors
    ///
    /// As [`insert_in`](Self::insert_in).
    pub fn insert_without_ttl_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.put_in(writes, &key, value.borrow(), Expiry::Never)
    }

    /// Adds a merge operand. See [`merge`](Self::merge). A
    /// [transaction](sievedb::Transaction::merge) reads the value, so it conflicts with other
    /// writes to the key.
    ///
    /// # Errors
    ///
    /// As [`insert_in`](Self::insert_in).
    pub fn merge_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        operand: impl Borrow<V>,
    ) -> Result<()> {
        self.with_entry(&key, operand.borrow(), |key, operand| {
            writes.operand(&self.entries, key, operand)
        })
    }

    /// Adds a removal of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine) as of the engine's call.
    pub fn remove_in(&self, writes: &mut impl Writes, key: impl EncodeAs<K>) -> Result<()> {
        Ok(key::with_bytes(&key, |key| writes.delete(&self.entries, key))?)
    }

    fn put_in(
        &self,
        writes: &mut impl Writes,
        key: &impl EncodeAs<K>,
        value: &V,
        expiry: Expiry,
    ) -> Result<()> {
        self.with_entry(key, value, |key, value| writes.put(&self.entries, key, value, expiry))
    }
}
