//! Writes of a transaction to an indexed keyspace.

use std::{
    borrow::Borrow,
    time::{Duration, SystemTime},
};

use sievedb::Transaction;

use super::Indexed;
use crate::{
    codec::Codec,
    error::Result,
    key::{self, EncodeAs, Key},
    transaction::Expiry,
};

/// Writes that are part of a [`Transaction`] of any isolation. Commit it before another index is
/// [added](Self::index), also by another `Indexed`. After an error, roll the transaction
/// back: it may contain only some of the writes.
impl<K: Key, V, C: Codec<V>> Indexed<K, V, C> {
    /// Adds the writes of [`insert`](Self::insert) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), value.borrow(), Expiry::Default)
    }

    /// Adds the writes of [`insert_with_ttl`](Self::insert_with_ttl) to `transaction`. The TTL
    /// counts from the start of the transaction.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_with_ttl_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        ttl: Duration,
    ) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), value.borrow(), Expiry::After(ttl))
    }

    /// Adds the writes of [`insert_expiring_at`](Self::insert_expiring_at) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_expiring_at_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        time: SystemTime,
    ) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), value.borrow(), Expiry::At(time))
    }

    /// Adds the writes of [`insert_without_ttl`](Self::insert_without_ttl) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_without_ttl_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), value.borrow(), Expiry::Never)
    }

    /// Adds the writes of [`remove`](Self::remove) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn remove_in(&self, transaction: &mut Transaction, key: impl EncodeAs<K>) -> Result<()> {
        self.take_in(transaction, key)?;
        Ok(())
    }

    /// Adds the writes of [`take`](Self::take) to `transaction`, and returns the value.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn take_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<Option<V>> {
        self.delete_if(transaction, &key::to_bytes(&key), |_| true)
    }

    /// Adds the writes of [`fetch_update`](Self::fetch_update) to `transaction`, and returns the
    /// **previous** value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn fetch_update_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        change: impl FnOnce(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let change = |old: Option<V>| (change(old.as_ref()), old);
        Ok(self.change(transaction, &key::to_bytes(&key), change)?.1)
    }

    /// Adds the writes of [`update_fetch`](Self::update_fetch) to `transaction`, and returns the
    /// **new** value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn update_fetch_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        change: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.change(transaction, &key::to_bytes(&key), |old| (change(old), ()))?.0)
    }

    /// Adds the writes of [`merge`](Self::merge) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`merge`](Self::merge).
    pub fn merge_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        operand: impl Borrow<V>,
    ) -> Result<()> {
        self.fold(transaction, &key::to_bytes(&key), operand.borrow())
    }

    /// Adds the writes of [`expire_after`](Self::expire_after) to `transaction`. The TTL counts
    /// from the start of the transaction.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn expire_after_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        ttl: Duration,
    ) -> Result<bool> {
        let key = key::to_bytes(&key);
        self.set_expiry(transaction, &key, |transaction, data| {
            transaction.expire_after(data, &key, ttl)
        })
    }

    /// Adds the writes of [`expire_at`](Self::expire_at) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn expire_at_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        time: SystemTime,
    ) -> Result<bool> {
        let key = key::to_bytes(&key);
        self.set_expiry(transaction, &key, |transaction, data| {
            transaction.expire_at(data, &key, time)
        })
    }

    /// Adds the writes of [`persist_key`](Self::persist_key) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn persist_key_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
    ) -> Result<bool> {
        let key = key::to_bytes(&key);
        self.set_expiry(transaction, &key, |transaction, data| transaction.persist_key(data, &key))
    }
}
