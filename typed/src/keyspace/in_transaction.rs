//! Reads of a transaction, and writes that depend on the present value of their key.

use std::{
    ops::{Bound, RangeBounds},
    time::{Duration, SystemTime},
};

use sievedb::{TimeToLive, Transaction};

use super::TypedKeyspace;
use crate::{
    codec::{Codec, Integer},
    error::Result,
    key::{self, EncodeAs, Key, KeyBounds, PrefixOf, key_bounds, prefix_bounds},
    transaction::TransactionEntries,
};

/// Reads of a [`Transaction`], which see its own writes, and writes that depend on the present
/// value of their key.
///
/// Such a write reads its key by [`Transaction::get_for_update`]: the commit fails if another write
/// changes the key. **A new value keeps the expiry of the value that it replaces.**
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Returns the value of `key` as `transaction` sees it. As [`Transaction::get`].
    ///
    /// # Errors
    ///
    /// [`Error::Value`](crate::Error::Value); [`Error::Engine`](crate::Error::Engine).
    pub fn get_in(&self, transaction: &Transaction, key: impl EncodeAs<K>) -> Result<Option<V>> {
        key::with_bytes(&key, |key| {
            let Some(value) = transaction.get(&self.entries, key)? else { return Ok(None) };
            self.decode_value(key, value).map(Some)
        })
    }

    /// Returns the value of `key`, and makes the commit depend on it at every
    /// [isolation](sievedb::Isolation). As [`Transaction::get_for_update`].
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in).
    pub fn get_for_update_in(
        &self,
        transaction: &Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<Option<V>> {
        key::with_bytes(&key, |key| self.read_for_update(transaction, key))
    }

    /// Returns `true` if `key` has a value. Decodes nothing. As [`Transaction::contains_key`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn contains_key_in(
        &self,
        transaction: &Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| transaction.contains_key(&self.entries, key))?)
    }

    /// Returns the time to live of the value of `key`, counted from the start of the transaction;
    /// `None` if the key has no value. As [`Transaction::ttl`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn ttl_in(
        &self,
        transaction: &Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<Option<TimeToLive>> {
        Ok(key::with_bytes(&key, |key| transaction.ttl(&self.entries, key))?)
    }

    /// Returns all entries, in both directions. As [`Transaction::iter`]: drop the iterator before
    /// the next write.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::{Db, TransactionOptions}, transaction};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let amounts = TypedKeyspace::<u64, i64>::open(&db, "amounts", Schema::new("amount", 1))?;
    /// amounts.insert(1, 10)?;
    /// amounts.insert(2, 20)?;
    /// transaction(&db, TransactionOptions::new(), |transaction| {
    ///     let mut sum = 0;
    ///     for entry in amounts.iter_in(transaction) {
    ///         sum += entry?.1;
    ///     }
    ///     amounts.insert_in(transaction, 3, sum)
    /// })?;
    /// assert_eq!(amounts.get(3)?, Some(30));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    #[must_use]
    pub fn iter_in<'t>(&self, transaction: &'t Transaction) -> TransactionEntries<'t, K, V, C> {
        self.entries_in(transaction, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Returns the entries whose keys are within `bounds`. As [`iter_in`](Self::iter_in).
    #[must_use]
    pub fn range_in<'t, Q: EncodeAs<K>>(
        &self,
        transaction: &'t Transaction,
        bounds: impl RangeBounds<Q>,
    ) -> TransactionEntries<'t, K, V, C> {
        self.entries_in(transaction, key_bounds::<K, _>(&bounds))
    }

    /// Returns the entries whose keys have this prefix. As [`iter_in`](Self::iter_in).
    #[must_use]
    pub fn prefix_in<'t, P: PrefixOf<K>>(
        &self,
        transaction: &'t Transaction,
        prefix: P,
    ) -> TransactionEntries<'t, K, V, C> {
        self.entries_in(transaction, prefix_bounds::<K, P>(&(&prefix..=&prefix)))
    }

    fn entries_in<'t>(
        &self,
        transaction: &'t Transaction,
        bounds: KeyBounds,
    ) -> TransactionEntries<'t, K, V, C> {
        let range = transaction.range::<Vec<u8>>(&self.entries, bounds);
        TransactionEntries::new(range, &self.name)
    }

    /// Replaces the value of `key` by the result of `change`, which takes the present value. `None`
    /// stands for no value, in both places. Returns the **previous** value. See
    /// [`fetch_update`](Self::fetch_update).
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in) and [`insert_in`](Self::insert_in).
    pub fn fetch_update_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        change: impl FnOnce(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.replace_in(transaction, &key, |old| (change(old.as_ref()), old))?.1)
    }

    /// Replaces the value of `key` as [`fetch_update_in`](Self::fetch_update_in) does, and returns
    /// the **new** value. See [`update_fetch`](Self::update_fetch).
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in) and [`insert_in`](Self::insert_in).
    pub fn update_fetch_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        change: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.replace_in(transaction, &key, |old| (change(old), ()))?.0)
    }

    /// Replaces the value of `key` by the first result of `change`. Returns both results.
    fn replace_in<T>(
        &self,
        transaction: &mut Transaction,
        key: &impl EncodeAs<K>,
        change: impl FnOnce(Option<V>) -> (Option<V>, T),
    ) -> Result<(Option<V>, T)> {
        key::with_bytes(key, |key| {
            let (new, result) = change(self.read_for_update(transaction, key)?);
            let bytes = new.as_ref().map(|new| self.encode_value(new)).transpose()?;
            transaction.fetch_update(&self.entries, key, |_| bytes)?;
            Ok((new, result))
        })
    }

    /// Removes `key` and returns its value, or `None` if the key has no value.
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in) and [`remove_in`](Self::remove_in).
    pub fn take_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<Option<V>> {
        key::with_bytes(&key, |key| {
            let old = self.read_for_update(transaction, key)?;
            if old.is_some() {
                transaction.remove(&self.entries, key)?;
            }
            Ok(old)
        })
    }

    /// Sets the expiry of `key` to the time when `ttl` has passed, and keeps its value. Returns
    /// `false` if the key has no value. As [`Transaction::expire_after`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn expire_after_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        ttl: Duration,
    ) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| transaction.expire_after(&self.entries, key, ttl))?)
    }

    /// Sets the expiry of `key` to `time` of the [store clock](sievedb::Db::store_time), and keeps
    /// its value. Returns `false` if the key has no value. As [`Transaction::expire_at`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn expire_at_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        time: SystemTime,
    ) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| transaction.expire_at(&self.entries, key, time))?)
    }

    /// Removes the expiry of `key`, and keeps its value. Returns `false` if the key has no value.
    /// As [`Transaction::persist_key`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn persist_key_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| transaction.persist_key(&self.entries, key))?)
    }

    /// Reads the value of an encoded key. The commit fails if another write changes it.
    pub(crate) fn read_for_update(
        &self,
        transaction: &Transaction,
        key: &[u8],
    ) -> Result<Option<V>> {
        let value = transaction.get_for_update(&self.entries, key)?;
        value.map(|value| self.decode_value(key, value)).transpose()
    }
}

/// Counters.
impl<K: Key> TypedKeyspace<K, i64, Integer> {
    /// Adds `delta` to the value of `key`, and returns the previous value. See
    /// [`fetch_add`](Self::fetch_add).
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine), also for a value that is no counter.
    pub fn fetch_add_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        delta: i64,
    ) -> Result<i64> {
        Ok(key::with_bytes(&key, |key| transaction.fetch_add(&self.entries, key, delta))?)
    }
}
