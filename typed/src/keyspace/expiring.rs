//! Writes of values that expire.

use std::{
    borrow::Borrow,
    time::{Duration, SystemTime},
};

use super::TypedKeyspace;
use crate::{
    codec::Codec,
    error::Result,
    key::{self, EncodeAs, Key},
};

/// Values that expire. See [`Keyspace::insert_with_ttl`](sievedb::Keyspace::insert_with_ttl) for
/// the clock. [`ttl`](Self::ttl) returns the time to live of a value.
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Stores `value` under `key` until `ttl` has passed. As
    /// [`Keyspace::insert_with_ttl`](sievedb::Keyspace::insert_with_ttl).
    ///
    /// ```
    /// use std::time::Duration;
    /// use sievedb_typed::{Schema, TypedKeyspace, sievedb::{Db, TimeToLive}};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let sessions = TypedKeyspace::<u64, String>::open(&db, "sessions", Schema::new("user", 1))?;
    /// let minute = Duration::from_secs(60);
    /// sessions.insert_with_ttl(7, "anna".to_owned(), minute)?;
    /// assert!(matches!(sessions.ttl(7)?, Some(TimeToLive::Remaining(ttl)) if ttl <= minute));
    /// assert!(sessions.expire_after(7, 10 * minute)?);
    /// assert!(sessions.persist_key(7)?);
    /// assert_eq!(sessions.ttl(7)?, Some(TimeToLive::Unlimited));
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
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_with_ttl(key, value, ttl)
        })
    }

    /// Stores `value` under `key` until the [store clock](sievedb::Db::store_time) is at `time`. As
    /// [`Keyspace::insert_expiring_at`](sievedb::Keyspace::insert_expiring_at).
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
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_expiring_at(key, value, time)
        })
    }

    /// Stores `value` under `key` without an expiry, also in a keyspace with a
    /// [default TTL](sievedb::KeyspaceOptions::default_ttl).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_without_ttl(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_without_ttl(key, value)
        })
    }

    /// Sets the expiry of `key` to the time when `ttl` has passed, and keeps its value. Returns
    /// `false` if the key has no value. Atomic. As
    /// [`Keyspace::expire_after`](sievedb::Keyspace::expire_after).
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn expire_after(&self, key: impl EncodeAs<K>, ttl: Duration) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| self.entries.expire_after(key, ttl))?)
    }

    /// Sets the expiry of `key` to `time` **of the [store clock](sievedb::Db::store_time)**.
    /// Otherwise as [`expire_after`](Self::expire_after).
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn expire_at(&self, key: impl EncodeAs<K>, time: SystemTime) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| self.entries.expire_at(key, time))?)
    }

    /// Removes the expiry of `key`, and keeps its value. Returns `false` if the key has no value.
    /// Atomic. As [`Keyspace::persist_key`](sievedb::Keyspace::persist_key).
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn persist_key(&self, key: impl EncodeAs<K>) -> Result<bool> {
        Ok(key::with_bytes(&key, |key| self.entries.persist_key(key))?)
    }
}
