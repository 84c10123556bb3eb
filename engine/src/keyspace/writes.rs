//! Writes of single entries.

use sievedb_format::Kind;

use super::Keyspace;
use crate::{
    Result,
    commit::{Always, Placed, Validate, Verdict, WriteEncoder},
};

/// Implements the write methods of a handle. `field` names its keyspace, if it is none itself.
macro_rules! write_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Writing.
        impl $handle {
            /// Stores `value` under `key`, with the durability of
            /// [`Options::durability`](crate::Options::durability). For another durability, commit
            /// a [`Batch`](crate::Batch) of one entry.
            ///
            /// # Errors
            ///
            /// * Nothing was changed: [`Error::KeyTooLong`], [`Error::ValueTooLong`],
            ///   [`Error::KeyspaceDropped`], and [`Error::WriteTooLarge`] if memtables never have
            ///   room for the entry.
            /// * The write is not visible, but may be found when the store is reopened:
            ///   [`Error::Io`], [`Error::ReadOnly`].
            ///
            /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
            /// [`Error::ValueTooLong`]: crate::Error::ValueTooLong
            /// [`Error::WriteTooLarge`]: crate::Error::WriteTooLarge
            /// [`Error::Io`]: crate::Error::Io
            /// [`Error::ReadOnly`]: crate::Error::ReadOnly
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            pub fn insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self$(.$field)?.put(key.as_ref(), value.as_ref())
            }

            /// Stores `value` under `key` unless the key has a value. Returns `true` if it stored
            /// it. Of concurrent calls for one key exactly one returns `true`.
            ///
            /// A new key costs no read, except for false positives of filters, and for tables whose
            /// filter has no room in memory. Other writes continue during the call, except while it
            /// checks again that a new key is absent.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert) and [`get`](Self::get).
            pub fn insert_if_absent(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<bool> {
                self$(.$field)?.put_if_absent(key.as_ref(), value.as_ref())
            }

            /// Removes `key`. The key need not exist.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn remove(&self, key: impl AsRef<[u8]>) -> $crate::Result<()> {
                self$(.$field)?.delete(key.as_ref())
            }
        }
    };
}

pub(crate) use write_methods;

write_methods!(Keyspace);

impl Keyspace {
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write =
            WriteEncoder::single_put(store.hash_seed, &self.tree, Kind::Put, key, value)?;
        store.commit(&mut write, store.options.durability, &mut Always).map(drop)
    }

    pub(crate) fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let store = self.open.accept()?;
        let mut write =
            WriteEncoder::single_put(store.hash_seed, &self.tree, Kind::Put, key, value)?;
        // Without the placement lock: a read under it blocks all writers.
        let view = self.tree.view();
        let version = view.version.number();
        let hash = write.entries[0].hash;
        if self.reader().contains_hashed(&view, key, hash)? {
            return Ok(false);
        }
        drop(view);
        let mut absent = KeyIsAbsent { keyspace: self, key, hash, version };
        Ok(store.commit(&mut write, store.options.durability, &mut absent)?.is_some())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write = WriteEncoder::single_remove(store.hash_seed, &self.tree, key)?;
        store.commit(&mut write, store.options.durability, &mut Always).map(drop)
    }

    /// Returns `true` if `key` has a value, given that the tables of `version` do not have it.
    fn contains_beside(&self, version: u64, key: &[u8], hash: u64) -> Result<bool> {
        let view = self.tree.view();
        if view.version.number() == version {
            self.reader().is_in_memtables(&view, key, hash)
        } else {
            self.reader().contains_hashed(&view, key, hash)
        }
    }
}

/// Holds if a key has no value, after all writes to it in flight.
#[derive(Debug)]
struct KeyIsAbsent<'a> {
    keyspace: &'a Keyspace,
    key: &'a [u8],
    hash: u64,
    /// The version whose tables are known not to have the key. While it is the present one, only
    /// memtables are searched, so that nothing is read under the placement lock.
    version: u64,
}

impl Validate for KeyIsAbsent<'_> {
    fn check(&mut self, placed: &Placed<'_>) -> Result<Verdict> {
        Ok(match placed.newest_in_flight(&self.keyspace.tree, self.key) {
            Some(last) => Verdict::Undecided(last),
            None => match self.keyspace.contains_beside(self.version, self.key, self.hash)? {
                true => Verdict::Fails,
                false => Verdict::Holds,
            },
        })
    }
}
