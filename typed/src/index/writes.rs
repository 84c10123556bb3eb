//! Writes of entries together with their index entries.

use std::{
    borrow::Borrow,
    time::{Duration, SystemTime},
};

use sievedb::{Keyspace, Transaction};

use super::Indexed;
use crate::{
    codec::{Codec, Integer},
    error::Result,
    key::{self, EncodeAs, Key},
    transaction::Expiry,
};

/// Writing.
impl<K: Key, V, C: Codec<V>> Indexed<K, V, C> {
    /// Stores `value` under `key`, and replaces the index entries of the old value.
    ///
    /// # Errors
    ///
    /// [`Error::Encode`](crate::Error::Encode); [`Error::Value`](crate::Error::Value) if the old
    /// value cannot be decoded; [`Error::Engine`](crate::Error::Engine), also
    /// [`TransactionTooLarge`](sievedb::Error::TransactionTooLarge), and
    /// [`KeyTooLong`](sievedb::Error::KeyTooLong) of an index entry.
    pub fn insert(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        self.store(&key, value.borrow(), Expiry::Default)
    }

    /// Stores `value` under `key` until `ttl` has passed, and its index entries as long. See
    /// [`TypedKeyspace::insert_with_ttl`](crate::TypedKeyspace::insert_with_ttl).
    ///
    /// ```
    /// use std::time::Duration;
    /// use sievedb_typed::{Indexed, Schema, TypedKeyspace, sievedb::Db};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let sessions = TypedKeyspace::<u64, String>::open(&db, "sessions", Schema::new("user", 1))?;
    /// let mut sessions = Indexed::new(&db, sessions)?;
    /// let by_user = sessions.index("sessions by user", 1, |_, user: &String| [user.clone()])?;
    ///
    /// sessions.insert_with_ttl(1, "anna".to_owned(), Duration::from_secs(3600))?;
    /// assert_eq!(by_user.get("anna").count(), 1);
    /// sessions.insert_with_ttl(1, "anna".to_owned(), Duration::ZERO)?; // expired at once
    /// assert_eq!(by_user.get("anna").count(), 0);
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_with_ttl(
        &self,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        ttl: Duration,
    ) -> Result<()> {
        self.store(&key, value.borrow(), Expiry::After(ttl))
    }

    /// Stores `value` under `key` until the store clock is at `time`, and its index entries as
    /// long. See [`TypedKeyspace::insert_expiring_at`](crate::TypedKeyspace::insert_expiring_at).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_expiring_at(
        &self,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        time: SystemTime,
    ) -> Result<()> {
        self.store(&key, value.borrow(), Expiry::At(time))
    }

    /// Stores `value` under `key` without an expiry, also in a keyspace with a
    /// [default TTL](sievedb::KeyspaceOptions::default_ttl).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_without_ttl(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        self.store(&key, value.borrow(), Expiry::Never)
    }

    /// Stores `value` under `key` unless the key has a value. Returns `true` if `value` was stored.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<bool> {
        self.store_if_absent(&key, value.borrow(), Expiry::Default)
    }

    /// Stores `value` under `key` until `ttl` has passed, and its index entries as long, unless the
    /// key has a value. Returns `true` if `value` was stored.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent_with_ttl(
        &self,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
        ttl: Duration,
    ) -> Result<bool> {
        self.store_if_absent(&key, value.borrow(), Expiry::After(ttl))
    }

    /// Removes `key` and its index entries. The key need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](crate::Error::Value) if the old value cannot be decoded;
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn remove(&self, key: impl EncodeAs<K>) -> Result<()> {
        self.take(key)?;
        Ok(())
    }

    /// Removes `key` and its index entries, and returns its value, or `None` if the key has no
    /// value.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn take(&self, key: impl EncodeAs<K>) -> Result<Option<V>> {
        let key = key::to_bytes(&key);
        self.atomically(|transaction| self.delete_if(transaction, &key, |_| true))
    }

    /// Removes `key` and its index entries if it has a value for which `condition` returns `true`.
    /// Returns `true` if the key was removed. `condition` is called again if another write changes
    /// the key in between.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn remove_if(
        &self,
        key: impl EncodeAs<K>,
        mut condition: impl FnMut(&V) -> bool,
    ) -> Result<bool> {
        let key = key::to_bytes(&key);
        self.atomically(|transaction| {
            Ok(self.delete_if(transaction, &key, &mut condition)?.is_some())
        })
    }

    /// Changes the value of `key` from `expected` to `new`. `None` stands for no value, in both
    /// places. If the present value is not equal to `expected`, writes nothing and returns the
    /// present value as the inner error. The new value keeps the expiry of the old one.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn compare_and_set(
        &self,
        key: impl EncodeAs<K>,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<std::result::Result<(), Option<V>>>
    where
        V: PartialEq,
    {
        let key = key::to_bytes(&key);
        self.atomically(|transaction| {
            let (old, before) = self.before(transaction, &key)?;
            if old.as_ref() != expected {
                return Ok(Err(old));
            }
            self.set(transaction, &key, &before, new)?;
            Ok(Ok(()))
        })
    }

    /// Replaces the value of `key` by the result of `change`, which takes the present value. `None`
    /// stands for no value, in both places. Read and write are one atomic step. Returns the
    /// **previous** value; [`update_fetch`](Self::update_fetch) returns the new one.
    ///
    /// `change` is called again if another write changes the key in between. The new value **keeps
    /// the expiry** of the old one, or has the default TTL of the keyspace.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn fetch_update(
        &self,
        key: impl EncodeAs<K>,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let key = key::to_bytes(&key);
        let mut change = |old: Option<V>| (change(old.as_ref()), old);
        Ok(self.atomically(|transaction| self.change(transaction, &key, &mut change))?.1)
    }

    /// Replaces the value of `key` as [`fetch_update`](Self::fetch_update) does, and returns the
    /// **new** value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn update_fetch(
        &self,
        key: impl EncodeAs<K>,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let key = key::to_bytes(&key);
        let mut change = |old| (change(old), ());
        Ok(self.atomically(|transaction| self.change(transaction, &key, &mut change))?.0)
    }

    /// Adds `operand` to the value of `key`, by the [merge
    /// operator](sievedb::KeyspaceOptions::merge_operator) of the keyspace, and replaces the index
    /// entries. Reads the value, unlike [`TypedKeyspace::merge`](crate::TypedKeyspace::merge): the
    /// index depends on it. The new value has the expiry of the old one.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert). [`Error::Engine`](crate::Error::Engine), also if the operator
    /// fails.
    pub fn merge(&self, key: impl EncodeAs<K>, operand: impl Borrow<V>) -> Result<()> {
        let (key, operand) = (key::to_bytes(&key), operand.borrow());
        self.atomically(|transaction| self.fold(transaction, &key, operand))
    }

    /// Sets the expiry of `key` and of its index entries to the time when `ttl` has passed. Returns
    /// `false` if the key has no value.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn expire_after(&self, key: impl EncodeAs<K>, ttl: Duration) -> Result<bool> {
        self.expire(&key, |transaction, data, key| transaction.expire_after(data, key, ttl))
    }

    /// Sets the expiry of `key` and of its index entries to `time` of the [store
    /// clock](sievedb::Db::store_time). Returns `false` if the key has no value. See
    /// [`TypedKeyspace::expire_at`](crate::TypedKeyspace::expire_at).
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn expire_at(&self, key: impl EncodeAs<K>, time: SystemTime) -> Result<bool> {
        self.expire(&key, |transaction, data, key| transaction.expire_at(data, key, time))
    }

    /// Removes the expiry of `key` and of its index entries. Returns `false` if the key has no
    /// value.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn persist_key(&self, key: impl EncodeAs<K>) -> Result<bool> {
        self.expire(&key, |transaction, data, key| transaction.persist_key(data, key))
    }

    fn expire(
        &self,
        key: &impl EncodeAs<K>,
        set: impl Fn(&mut Transaction, &Keyspace, &[u8]) -> sievedb::Result<bool>,
    ) -> Result<bool> {
        let key = key::to_bytes(key);
        self.atomically(|transaction| {
            self.set_expiry(transaction, &key, |transaction, data| set(transaction, data, &key))
        })
    }

    fn store(&self, key: &impl EncodeAs<K>, value: &V, expiry: Expiry) -> Result<()> {
        let key = key::to_bytes(key);
        self.atomically(|transaction| self.replace(transaction, &key, value, expiry))
    }

    fn store_if_absent(&self, key: &impl EncodeAs<K>, value: &V, expiry: Expiry) -> Result<bool> {
        let key = key::to_bytes(key);
        self.atomically(|transaction| {
            let (old, before) = self.before(transaction, &key)?;
            if old.is_some() {
                return Ok(false);
            }
            self.put(transaction, &key, &before, value, expiry)?;
            Ok(true)
        })
    }
}

/// Counters.
impl<K: Key> Indexed<K, i64, Integer> {
    /// Adds `delta` to the value of `key`, replaces the index entries, and returns the previous
    /// value. An absent key counts as 0. Wraps around at the limits of `i64`. Atomic.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn fetch_add(&self, key: impl EncodeAs<K>, delta: i64) -> Result<i64> {
        let add = |count: Option<&i64>| Some(count.copied().unwrap_or(0).wrapping_add(delta));
        Ok(self.fetch_update(key, add)?.unwrap_or(0))
    }
}
