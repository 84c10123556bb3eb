//! Conditional writes: writes that depend on the present value of their key.
//!
//! Each call reads the key, and writes on the condition that no other write to the key came in
//! between. If one did, the call is retried: no update is lost. No lock is held meanwhile.

use bytes::Bytes;
use sievedb_filter::hash::key_hash;

use super::Keyspace;
use crate::{
    Error, Result,
    commit::{WriteEncoder, check_entry},
    read::observer::{Expiring, ExpiryObserver, NoObserver, Observer},
    validation::unwritten::Unwritten,
};

/// The value that a [`compare_and_set`](Keyspace::compare_and_set) found instead of the expected
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Current {
    /// The value of the key; `None` if it has none.
    pub value: Option<Bytes>,
}

/// Length of a counter, in bytes.
const COUNTER_BYTES: usize = size_of::<i64>();

/// A write that depends on the value of its key, and the result of the call.
#[derive(Debug)]
pub(super) enum Change<B, T> {
    Keep(T),
    Put(B, Expiry, T),
    Remove(T),
}

/// Expiry of a written value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expiry {
    /// After the default TTL of the keyspace, if it has one.
    Default,
    /// At this time of the store clock, in milliseconds; never with `None`.
    At(Option<u64>),
}

/// Implements the conditional write methods of a handle. `field` names its keyspace, if it is none
/// itself.
macro_rules! conditional_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Conditional writes. Each call reads its key and writes it as one atomic step, with the
        /// durability of [`Options::durability`](crate::Options::durability).
        ///
        /// If another write changes the key in between, the call starts again, as often as needed.
        /// Of concurrent calls at least one makes progress. For another durability, use
        /// [`with_durability`](crate::Keyspace::with_durability), for several keys a
        /// [transaction](crate::Db::transaction).
        ///
        /// A call costs a read and a write.
        ///
        /// **A new value keeps the expiry of the value that it replaces**, which
        /// [`ttl`](Self::ttl) returns. The value of an absent key has the
        /// [default TTL](crate::KeyspaceOptions::default_ttl) of the keyspace. An expired value is
        /// absent.
        impl $handle {
            /// Stores `value` under `key` unless the key has a value. Returns `true` if `value` was
            /// stored. Of concurrent calls for one absent key exactly one returns `true`.
            ///
            /// An absent key costs no read from disk, except for false positives of filters, and
            /// for tables whose filter is not in memory.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn insert_if_absent(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<bool> {
                let expiry = $crate::keyspace::conditional::Expiry::Default;
                self$(.$field)?.put_if_absent(key.as_ref(), value.as_ref(), expiry)
            }

            /// Stores `value` under `key` until `ttl` has passed, unless the key has a value.
            /// Returns `true` if `value` was stored. Such an entry is a lock with a lease:
            ///
            /// ```
            /// # use std::time::Duration;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// let lease = Duration::from_secs(30);
            /// assert!(db.insert_if_absent_with_ttl("lock", "anna", lease)?);
            /// assert!(!db.insert_if_absent_with_ttl("lock", "bert", lease)?);
            /// db.remove_if("lock", |owner| owner == b"anna")?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn insert_if_absent_with_ttl(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                ttl: std::time::Duration,
            ) -> $crate::Result<bool> {
                self$(.$field)?.put_if_absent_with_ttl(key.as_ref(), value.as_ref(), ttl)
            }

            /// Changes the value of `key` from `expected` to `new`. `None` stands for no value, in
            /// both places. If the present value is not `expected`, writes nothing and returns the
            /// present value as the inner error.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.compare_and_set("leader", None, Some(b"anna"))?.expect("there was none");
            /// let refused = db.compare_and_set("leader", None, Some(b"bert"))?.unwrap_err();
            /// assert_eq!(refused.value.as_deref(), Some(&b"anna"[..]));
            /// db.compare_and_set("leader", Some(b"anna"), None)?.expect("anna was the leader");
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn compare_and_set(
                &self,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                new: Option<&[u8]>,
            ) -> $crate::Result<std::result::Result<(), $crate::Current>> {
                self$(.$field)?.compare_and_set_bytes(key.as_ref(), expected, new)
            }

            /// Replaces the value of `key` by the result of `change`, which takes the present
            /// value. `None` stands for no value, in both places. Returns the **previous** value;
            /// [`update_fetch`](Self::update_fetch) returns the new one.
            ///
            /// `change` is called again if another write changes the key in between.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn fetch_update<V: Into<$crate::Bytes>>(
                &self,
                key: impl AsRef<[u8]>,
                mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
            ) -> $crate::Result<Option<$crate::Bytes>> {
                let mut change = |old: Option<&[u8]>| change(old).map(Into::into);
                Ok(self$(.$field)?.replace_value(key.as_ref(), &mut change)?.0)
            }

            /// Replaces the value of `key` as [`fetch_update`](Self::fetch_update) does, and
            /// returns the **new** value.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// let add = |word: &'static str| {
            ///     move |old: Option<&[u8]>| Some([old.unwrap_or_default(), word.as_bytes()].concat())
            /// };
            /// assert_eq!(db.update_fetch("text", add("to"))?.as_deref(), Some(&b"to"[..]));
            /// assert_eq!(db.update_fetch("text", add("be"))?.as_deref(), Some(&b"tobe"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn update_fetch<V: Into<$crate::Bytes>>(
                &self,
                key: impl AsRef<[u8]>,
                mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
            ) -> $crate::Result<Option<$crate::Bytes>> {
                let mut change = |old: Option<&[u8]>| change(old).map(Into::into);
                Ok(self$(.$field)?.replace_value(key.as_ref(), &mut change)?.1)
            }

            /// Adds `delta` to the counter `key`, and returns the previous count. A counter is an
            /// `i64` of 8 bytes, [big-endian](i64::to_be_bytes). An absent key counts as 0. Wraps
            /// around at the limits of `i64`.
            ///
            /// [`merge`](Self::merge) with [`Counter`](crate::Counter) adds to counters of the same
            /// form without reading them.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// assert_eq!(db.fetch_add("visits", 5)?, 0);
            /// assert_eq!(db.fetch_add("visits", -2)?, 5);
            /// assert_eq!(db.get("visits")?.as_deref(), Some(&3_i64.to_be_bytes()[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`Error::NotACounter`](crate::Error::NotACounter) for a value of another length;
            /// as [`insert`](Self::insert) and [`get`](Self::get).
            pub fn fetch_add(&self, key: impl AsRef<[u8]>, delta: i64) -> $crate::Result<i64> {
                self$(.$field)?.add_to_counter(key.as_ref(), delta)
            }

            /// Removes `key` if it has a value for which `condition` returns `true`. Returns `true`
            /// if the key was removed. `condition` is called again if another write changes the key
            /// in between.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("lock", "anna")?;
            /// assert!(!db.remove_if("lock", |owner| owner == b"bert")?);
            /// assert!(db.remove_if("lock", |owner| owner == b"anna")?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn remove_if(
                &self,
                key: impl AsRef<[u8]>,
                mut condition: impl FnMut(&[u8]) -> bool,
            ) -> $crate::Result<bool> {
                self$(.$field)?.delete_if(key.as_ref(), &mut condition)
            }

            /// Removes `key` and returns its value, or `None` if the key has no value. Of
            /// concurrent calls for one key exactly one returns the value.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn take(&self, key: impl AsRef<[u8]>) -> $crate::Result<Option<$crate::Bytes>> {
                self$(.$field)?.take_value(key.as_ref())
            }

            /// Removes the entry with the smallest key, and returns it; `None` if the keyspace is
            /// empty. Concurrent calls return different entries.
            ///
            /// A keyspace whose keys ascend in the order of arrival is a queue. The call steps over
            /// the tombstones of removed keys, until a compaction drops them.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// for (number, job) in [(1_u64, "wash"), (2, "dry")] {
            ///     db.insert(number.to_be_bytes(), job)?;
            /// }
            /// let (_, job) = db.pop_first()?.expect("two jobs");
            /// assert_eq!(job, "wash");
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn pop_first(
                &self,
            ) -> $crate::Result<Option<($crate::Bytes, $crate::Bytes)>> {
                self$(.$field)?.pop($crate::iter::range::End::Front)
            }

            /// Removes the entry with the largest key, and returns it. Otherwise as
            /// [`pop_first`](Self::pop_first).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn pop_last(
                &self,
            ) -> $crate::Result<Option<($crate::Bytes, $crate::Bytes)>> {
                self$(.$field)?.pop($crate::iter::range::End::Back)
            }
        }
    };
}

pub(crate) use conditional_methods;

conditional_methods!(Keyspace);

impl Keyspace {
    pub(crate) fn put_if_absent(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<bool> {
        self.change(key, &mut NoObserver, |found: Option<()>| {
            Ok(if found.is_some() { Change::Keep(false) } else { Change::Put(value, expiry, true) })
        })
    }

    pub(crate) fn compare_and_set_bytes(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), Current>> {
        self.replace(key, |found| {
            if found.as_ref().map(|(value, _)| &**value) != expected {
                let value = found.map(|(value, _)| value);
                return Ok(Change::Keep(Err(Current { value })));
            }
            Ok(Change::replace(found.as_ref(), new, Ok(())))
        })
    }

    /// Returns the previous value and the new one.
    pub(crate) fn replace_value(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<&[u8]>) -> Option<Bytes>,
    ) -> Result<(Option<Bytes>, Option<Bytes>)> {
        self.replace(key, |found| {
            let new = change(found.as_ref().map(|(old, _)| &**old));
            let old = found.as_ref().map(|(old, _)| old.clone());
            Ok(Change::replace(found.as_ref(), new.clone(), (old, new)))
        })
    }

    pub(crate) fn add_to_counter(&self, key: &[u8], delta: i64) -> Result<i64> {
        self.replace(key, |found| {
            let count = count_of(key, found.as_ref().map(|(value, _)| &**value))?;
            let sum = count.wrapping_add(delta).to_be_bytes();
            Ok(Change::replace(found.as_ref(), Some(sum), count))
        })
    }

    pub(crate) fn delete_if(
        &self,
        key: &[u8],
        condition: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool> {
        self.change(key, &mut NoObserver, |value: Option<Bytes>| {
            let is_removed = value.is_some_and(|value| condition(&value));
            Ok(if is_removed { Change::<&[u8], _>::Remove(true) } else { Change::Keep(false) })
        })
    }

    pub(crate) fn take_value(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.change(key, &mut NoObserver, |value: Option<Bytes>| {
            Ok(if value.is_some() { Change::<&[u8], _>::Remove(value) } else { Change::Keep(None) })
        })
    }

    /// As [`change`](Self::change), with the present value and its expiry.
    fn replace<B: AsRef<[u8]>, T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<Expiring<Bytes>>) -> Result<Change<B, T>>,
    ) -> Result<T> {
        self.change(key, &mut ExpiryObserver::default(), decide)
    }

    /// Applies the result of `decide`, which takes the result of `observer` for the present value
    /// of `key`, on the condition that the key was not written meanwhile. Retries if the condition
    /// fails.
    pub(super) fn change<V, B: AsRef<[u8]>, T>(
        &self,
        key: &[u8],
        observer: &mut impl Observer<V>,
        mut decide: impl FnMut(Option<V>) -> Result<Change<B, T>>,
    ) -> Result<T> {
        let store = self.open.accept()?;
        let hash = key_hash(key, store.hash_seed);
        loop {
            let (found, mark) = self.reader().find_marked(key, hash, observer)?;
            debug_assert!(mark.sequence <= store.writer.visible(), "read an invisible write");
            let (seed, tree, clock) = (store.hash_seed, &self.tree, store.versions.clock());
            let (value, result) = match decide(found)? {
                Change::Keep(result) => return Ok(result),
                Change::Put(value, expiry, result) => {
                    let expiry_ms = match expiry {
                        Expiry::Default => tree.default_expiry_ms(|| clock.now_ms()),
                        Expiry::At(expiry_ms) => expiry_ms,
                    };
                    check_entry(key, value.as_ref())?;
                    // A value that has expired already is stored as a removal.
                    ((!clock.has_passed(expiry_ms)).then_some((value, expiry_ms)), result)
                }
                Change::Remove(result) => (None, result),
            };
            let mut write = match value {
                Some((value, expiry_ms)) => {
                    WriteEncoder::single_value(seed, tree, key, expiry_ms, value.as_ref())?
                }
                None => WriteEncoder::single_remove(seed, tree, key)?,
            };
            debug_assert_eq!(write.entries[0].hash, hash, "the condition is for another key");
            let mut condition = Unwritten::new(&self.tree, key, hash, mark);
            if store.commit(&mut write, self.durability(store), &mut condition)?.is_some() {
                return Ok(result);
            }
        }
    }
}

/// Returns the count of a [counter](Keyspace::fetch_add) with this value; 0 without one.
///
/// # Errors
///
/// [`Error::NotACounter`].
pub(crate) fn count_of(key: &[u8], value: Option<&[u8]>) -> Result<i64> {
    let Some(value) = value else { return Ok(0) };
    match <[u8; COUNTER_BYTES]>::try_from(value) {
        Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
        Err(_) => Err(Error::NotACounter { key: Bytes::copy_from_slice(key), bytes: value.len() }),
    }
}

impl<B, T> Change<B, T> {
    /// Replaces the `old` value by `new`, which keeps its expiry.
    fn replace(old: Option<&Expiring<Bytes>>, new: Option<B>, result: T) -> Self {
        match (new, old) {
            (Some(new), Some((_, expiry_ms))) => Self::Put(new, Expiry::At(*expiry_ms), result),
            (Some(new), None) => Self::Put(new, Expiry::Default, result),
            (None, Some(_)) => Self::Remove(result),
            (None, None) => Self::Keep(result),
        }
    }
}
