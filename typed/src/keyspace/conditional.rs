//! Conditional writes: writes that depend on the present value of their key.

use std::{borrow::Borrow, time::Duration};

use sievedb::Bytes;

use super::TypedKeyspace;
use crate::{
    codec::{Codec, Integer},
    entries::decode_key,
    error::Result,
    key::{self, EncodeAs, Key},
};

/// A write that depends on the value of its key, and the result of the call.
enum Change<T> {
    Keep(T),
    /// Stores an encoded value.
    Put(Vec<u8>, T),
    Remove(T),
}

/// Conditional writes. Each call reads its key and writes it as one atomic step, as
/// [`Keyspace::compare_and_set`](sievedb::Keyspace::compare_and_set) does.
///
/// If another write changes the value in between, the call is retried until it succeeds. A call
/// costs two reads and a write.
///
/// **A new value keeps the expiry of the value that it replaces.** The value of an absent key has
/// the [default TTL](sievedb::KeyspaceOptions::default_ttl) of the keyspace.
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Stores `value` under `key` unless the key has a value. Returns `true` if `value` was stored.
    /// As [`Keyspace::insert_if_absent`](sievedb::Keyspace::insert_if_absent): costs one read, or
    /// none from disk for most absent keys.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<bool> {
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_if_absent(key, value)
        })
    }

    /// Stores `value` under `key` until `ttl` has passed, unless the key has a value. Returns
    /// `true` if `value` was stored. As
    /// [`Keyspace::insert_if_absent_with_ttl`](sievedb::Keyspace::insert_if_absent_with_ttl).
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
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_if_absent_with_ttl(key, value, ttl)
        })
    }

    /// Changes the value of `key` from `expected` to `new`. `None` stands for no value, in both
    /// places. If the present value is not equal to `expected`, writes nothing and returns the
    /// present value as the inner error.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let locks = TypedKeyspace::<String, u64>::open(&db, "locks", Schema::new("lock", 1))?;
    /// locks.compare_and_set("backup", None, Some(&7))?.expect("no owner");
    /// let owner = locks.compare_and_set("backup", None, Some(&8))?.unwrap_err();
    /// assert_eq!(owner, Some(7));
    /// locks.compare_and_set("backup", Some(&7), None)?.expect("owner 7");
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get`](Self::get).
    pub fn compare_and_set(
        &self,
        key: impl EncodeAs<K>,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<std::result::Result<(), Option<V>>>
    where
        V: PartialEq,
    {
        self.change(&key, |old| {
            if old.as_ref() != expected {
                return Ok(Change::Keep(Err(old)));
            }
            Ok(match new {
                Some(new) => Change::Put(self.encode_value(new)?, Ok(())),
                None => Change::Remove(Ok(())),
            })
        })
    }

    /// Replaces the value of `key` by the result of `change`, which takes the present value. `None`
    /// stands for no value, in both places. Returns the **previous** value;
    /// [`update_fetch`](Self::update_fetch) returns the new one.
    ///
    /// `change` is called again if another write changes the value in between.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get`](Self::get).
    pub fn fetch_update(
        &self,
        key: impl EncodeAs<K>,
        mut change: impl FnMut(Option<&V>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.replace(&key, |old| (change(old.as_ref()), old))?.1)
    }

    /// Replaces the value of `key` as [`fetch_update`](Self::fetch_update) does, and returns the
    /// **new** value. `change` owns the present value, and can modify it without a copy.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let tags = TypedKeyspace::<u64, Vec<String>>::open(&db, "tags", Schema::new("tags", 1))?;
    /// for tag in ["red", "old"] {
    ///     tags.update_fetch(7, |tags| {
    ///         let mut tags = tags.unwrap_or_default();
    ///         tags.push(tag.to_owned());
    ///         Some(tags)
    ///     })?;
    /// }
    /// assert_eq!(tags.get(7)?, Some(vec!["red".to_owned(), "old".to_owned()]));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get`](Self::get).
    pub fn update_fetch(
        &self,
        key: impl EncodeAs<K>,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.replace(&key, |old| (change(old), ()))?.0)
    }

    /// Replaces the value of `key` by the first result of `change`. Returns both results.
    fn replace<T>(
        &self,
        key: &impl EncodeAs<K>,
        mut change: impl FnMut(Option<V>) -> (Option<V>, T),
    ) -> Result<(Option<V>, T)> {
        self.change(key, |old| {
            let (new, result) = change(old);
            Ok(match new {
                Some(new) => Change::Put(self.encode_value(&new)?, (Some(new), result)),
                None => Change::Remove((None, result)),
            })
        })
    }

    /// Removes `key` if it has a value for which `condition` returns `true`. Returns `true` if the
    /// key was removed. `condition` is called again if another write changes the value in between.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) and [`remove`](Self::remove).
    pub fn remove_if(
        &self,
        key: impl EncodeAs<K>,
        mut condition: impl FnMut(&V) -> bool,
    ) -> Result<bool> {
        self.change(&key, |old| {
            let is_removed = old.is_some_and(|value| condition(&value));
            Ok(if is_removed { Change::Remove(true) } else { Change::Keep(false) })
        })
    }

    /// Removes `key` and returns its value, or `None` if the key has no value. Of concurrent calls
    /// for one key exactly one returns the value. A value that cannot be decoded is kept.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) and [`remove`](Self::remove).
    pub fn take(&self, key: impl EncodeAs<K>) -> Result<Option<V>> {
        self.change(&key, |old| {
            Ok(if old.is_some() { Change::Remove(old) } else { Change::Keep(None) })
        })
    }

    /// Removes the entry with the smallest key, and returns it; `None` if the keyspace is empty.
    /// Concurrent calls return different entries. Unlike
    /// [`Keyspace::pop_first`](sievedb::Keyspace::pop_first), the call may miss a smaller key that
    /// is inserted meanwhile. An entry that cannot be decoded is kept.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let jobs = TypedKeyspace::<u64, String>::open(&db, "jobs", Schema::new("job", 1))?;
    /// jobs.insert(1, "wash".to_owned())?;
    /// jobs.insert(2, "dry".to_owned())?;
    /// assert_eq!(jobs.pop_first()?, Some((1, "wash".to_owned())));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Key`](crate::Error::Key); as [`take`](Self::take).
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.pop(|| self.entries.first())
    }

    /// Removes the entry with the largest key, and returns it. Otherwise as
    /// [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// As [`pop_first`](Self::pop_first).
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.pop(|| self.entries.last())
    }

    /// Removes the entry that `find` returns. Retries if another call changes it meanwhile.
    fn pop(
        &self,
        find: impl Fn() -> sievedb::Result<Option<(Bytes, Bytes)>>,
    ) -> Result<Option<(K, V)>> {
        loop {
            let Some((key, value)) = find()? else { return Ok(None) };
            let entry =
                (decode_key(&self.name, key.clone())?, self.decode_value(&key, value.clone())?);
            if self.entries.compare_and_set(&key, Some(&value), None)?.is_ok() {
                return Ok(Some(entry));
            }
        }
    }

    /// Applies the result of `decide`, which takes the current value of `key`, if no other write
    /// has changed the value. Retries otherwise.
    fn change<T>(
        &self,
        key: &impl EncodeAs<K>,
        mut decide: impl FnMut(Option<V>) -> Result<Change<T>>,
    ) -> Result<T> {
        key::with_bytes(key, |key| {
            let mut found = self.entries.get(key)?;
            loop {
                let old = found.clone().map(|value| self.decode_value(key, value)).transpose()?;
                let (new, result) = match decide(old)? {
                    Change::Keep(result) => return Ok(result),
                    Change::Put(new, result) => (Some(new), result),
                    Change::Remove(result) => (None, result),
                };
                match self.entries.compare_and_set(key, found.as_deref(), new.as_deref())? {
                    Ok(()) => return Ok(result),
                    Err(current) => found = current.value,
                }
            }
        })
    }
}

/// Counters.
impl<K: Key> TypedKeyspace<K, i64, Integer> {
    /// Adds `delta` to the value of `key`, and returns the previous value. An absent key counts as
    /// 0. Wraps around at the limits of `i64`. Atomic. As
    /// [`Keyspace::fetch_add`](sievedb::Keyspace::fetch_add).
    ///
    /// ```
    /// # use sievedb_typed::{Integer, Schema, TypedKeyspace, sievedb::Db};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let schema = Schema::new("visits", 1);
    /// let visits = TypedKeyspace::<String, i64, Integer>::open(&db, "visits", schema)?;
    /// assert_eq!(visits.fetch_add("home", 5)?, 0);
    /// assert_eq!(visits.fetch_add("home", -2)?, 5);
    /// assert_eq!(visits.get("home")?, Some(3));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine), also for a value that is no counter.
    pub fn fetch_add(&self, key: impl EncodeAs<K>, delta: i64) -> Result<i64> {
        Ok(key::with_bytes(&key, |key| self.entries.fetch_add(key, delta))?)
    }
}
