//! Writes of values that expire.
//!
//! See [`store_clock`](crate::store_clock) for the time, and
//! [`time_to_live`](crate::time_to_live) for how it is rounded.

use std::time::Duration;

use bytes::Bytes;
use sievedb_format::{Kind, expiry::split_expiry};

use super::{
    Keyspace,
    conditional::{Change, Expiry},
};
use crate::{
    Error, Result, TimeToLive, read::observer::NoObserver, resolve::expires,
    time_to_live::expiry_after,
};

/// Implements the methods of a handle for values that expire. `field` names its keyspace, if it is
/// none itself.
macro_rules! expiring_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Values that expire.
        ///
        /// After its expiry no read finds the value, and compactions free its space. An expired
        /// value hides older versions of the key as a removal does. A later write to the key, such
        /// as [`insert`](Self::insert), replaces value and expiry. The new value expires after the
        /// [default TTL](crate::KeyspaceOptions::default_ttl) of the keyspace, if it has one.
        /// **A conditional write**, such as [`fetch_add`](Self::fetch_add), **keeps the expiry**.
        ///
        /// The [store clock](crate::Db::store_time) determines the expiry. While the store is
        /// open, it advances with the monotonic clock of the machine: a change of the wall clock
        /// has no effect. When the store is opened, the store clock moves forward to the wall
        /// clock. So values expire early if the wall clock is ahead. [Snapshots](crate::Snapshot)
        /// and iterators use the time of their creation. A store opened
        /// [read-only](crate::Options::read_only) uses the time of its opening, unless it
        /// [follows](crate::Options::follow) a writer or is a [`Replica`](crate::Replica).
        ///
        /// An expiry takes 8 bytes of the stored value. A read of a value with an expiry also reads
        /// the clock.
        impl $handle {
            /// Stores `value` under `key` until `ttl` has passed, rounded up to whole milliseconds.
            /// Otherwise as [`insert`](Self::insert).
            ///
            /// With a `ttl` of zero no read finds the value: the call acts as
            /// [`remove`](Self::remove). A `ttl` of more than 2^64 milliseconds never ends.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            ///
            /// ```
            /// # use std::time::Duration;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert_with_ttl("session", "anna", Duration::from_secs(3600))?;
            /// assert_eq!(db.get("session")?.as_deref(), Some(&b"anna"[..]));
            /// db.insert_with_ttl("session", "bert", Duration::ZERO)?;
            /// assert_eq!(db.get("session")?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn insert_with_ttl(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                ttl: std::time::Duration,
            ) -> $crate::Result<()> {
                self$(.$field)?.put_with_ttl(key.as_ref(), value.as_ref(), ttl)
            }

            /// Stores `value` under `key` until the store clock is at `time`, rounded up to whole
            /// milliseconds. Otherwise as [`insert_with_ttl`](Self::insert_with_ttl).
            ///
            /// A time in the past acts as a TTL of zero. **The store clock may differ from Unix
            /// time**: add a duration to [`Db::store_time`](crate::Db::store_time).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn insert_expiring_at(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                time: std::time::SystemTime,
            ) -> $crate::Result<()> {
                let expiry_ms = $crate::time_to_live::expiry_at(time);
                self$(.$field)?.put_value(key.as_ref(), Some(expiry_ms), value.as_ref())
            }

            /// Stores `value` under `key` without an expiry, also in a keyspace with a
            /// [default TTL](crate::KeyspaceOptions::default_ttl). Otherwise as
            /// [`insert`](Self::insert).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn insert_without_ttl(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self$(.$field)?.put_value(key.as_ref(), None, value.as_ref())
            }

            /// Sets the expiry of `key` to the time when `ttl` has passed, and keeps its value.
            /// Returns `false` if the key has no value.
            ///
            /// Atomic: no other write to the key is lost. Reads the value, and writes it again.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            ///
            /// ```
            /// # use std::time::Duration;
            /// use sievedb::TimeToLive;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("draft", "text")?;
            /// assert!(db.expire_after("draft", Duration::from_secs(60))?);
            /// assert!(matches!(db.ttl("draft")?, Some(TimeToLive::Remaining(_))));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn expire_after(
                &self,
                key: impl AsRef<[u8]>,
                ttl: std::time::Duration,
            ) -> $crate::Result<bool> {
                self$(.$field)?.set_ttl(key.as_ref(), ttl)
            }

            /// Sets the expiry of `key` to `time` **of the store clock**, as
            /// [`insert_expiring_at`](Self::insert_expiring_at) does. Otherwise as
            /// [`expire_after`](Self::expire_after).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn expire_at(
                &self,
                key: impl AsRef<[u8]>,
                time: std::time::SystemTime,
            ) -> $crate::Result<bool> {
                let expiry_ms = $crate::time_to_live::expiry_at(time);
                self$(.$field)?.set_expiry(key.as_ref(), expiry_ms)
            }

            /// Removes the expiry of `key`, and keeps its value. Returns `false` if the key has no
            /// value.
            ///
            /// Atomic: no other write to the key is lost. Reads the value, and writes it again if
            /// it has an expiry.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            ///
            /// ```
            /// # use std::time::Duration;
            /// use sievedb::TimeToLive;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("draft", "text")?;
            /// assert!(db.expire_at("draft", db.store_time() + Duration::from_secs(60))?);
            /// assert!(matches!(db.ttl("draft")?, Some(TimeToLive::Remaining(_))));
            /// assert!(db.persist_key("draft")?);
            /// assert_eq!(db.ttl("draft")?, Some(TimeToLive::Unlimited));
            /// assert!(!db.persist_key("other")?);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn persist_key(&self, key: impl AsRef<[u8]>) -> $crate::Result<bool> {
                self$(.$field)?.remove_expiry(key.as_ref())
            }
        }
    };
}

pub(crate) use expiring_methods;

expiring_methods!(Keyspace);

impl Keyspace {
    pub(crate) fn put_with_ttl(&self, key: &[u8], value: &[u8], ttl: Duration) -> Result<()> {
        let clock_ms = self.open.accept()?.versions.clock().now_ms();
        self.put_value(key, Some(expiry_after(clock_ms, ttl)), value)
    }

    pub(crate) fn put_if_absent_with_ttl(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool> {
        let clock_ms = self.open.accept()?.versions.clock().now_ms();
        self.put_if_absent(key, value, Expiry::At(Some(expiry_after(clock_ms, ttl))))
    }

    /// Stores a value of this kind, which is in its stored form.
    pub(crate) fn put_stored(&self, key: &[u8], kind: Kind, stored: &[u8]) -> Result<()> {
        if expires(kind) {
            let split = split_expiry(stored).map_err(|source| Error::corrupt("", 0, source));
            let (expiry_ms, value) = split?;
            return self.put_value(key, Some(expiry_ms), value);
        }
        self.put_kind(kind, key, stored)
    }

    pub(crate) fn set_ttl(&self, key: &[u8], ttl: Duration) -> Result<bool> {
        let clock_ms = self.open.accept()?.versions.clock().now_ms();
        self.set_expiry(key, expiry_after(clock_ms, ttl))
    }

    pub(crate) fn set_expiry(&self, key: &[u8], expiry_ms: u64) -> Result<bool> {
        self.change_expiry(key, Some(expiry_ms))
    }

    pub(crate) fn remove_expiry(&self, key: &[u8]) -> Result<bool> {
        if self.reader().time_to_live(key)? == Some(TimeToLive::Unlimited) {
            return Ok(true);
        }
        self.change_expiry(key, None)
    }

    /// Writes the value again with this expiry. Returns `false` without a value.
    fn change_expiry(&self, key: &[u8], expiry_ms: Option<u64>) -> Result<bool> {
        self.change(key, &mut NoObserver, |value: Option<Bytes>| {
            Ok(match value {
                Some(value) => Change::Put(value, Expiry::At(expiry_ms), true),
                None => Change::Keep(false),
            })
        })
    }
}
