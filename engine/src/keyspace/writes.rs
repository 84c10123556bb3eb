//! Writes of single entries.

use sievedb_format::Kind;

use super::Keyspace;
use crate::{
    Result,
    commit::{Always, WriteEncoder, check_entry},
    iter::bounds::KeyBounds,
    store::Store,
};

/// Implements the write methods of a handle. `field` names its keyspace, if it is none itself.
macro_rules! write_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Writing. A [`Db`](crate::Db) writes to the default keyspace.
        impl $handle {
            /// Stores `value` under `key`, with the durability of
            /// [`Options::durability`](crate::Options::durability). For another durability, use
            /// [`with_durability`](crate::Keyspace::with_durability). The value expires after the
            /// [default TTL](crate::KeyspaceOptions::default_ttl) of the keyspace, if it has one.
            ///
            /// # Errors
            ///
            /// * Nothing was changed: [`Error::KeyTooLong`], [`Error::ValueTooLong`],
            ///   [`Error::KeyspaceDropped`], and [`Error::WriteTooLarge`] if the entry exceeds the
            ///   memory for memtables.
            /// * The write is not visible, but may reappear when the store is reopened:
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

            /// Writes a merge operand, without reading `key`. The [merge
            /// operator](crate::KeyspaceOptions::merge_operator) of the keyspace applies `operand`
            /// to the value of `key` later. Concurrent calls for one key lose no operand.
            ///
            /// Costs as much as [`insert`](Self::insert). Reads of the key apply all its operands,
            /// one after another, until a flush or a compaction has replaced them by a value.
            /// Operands never expire, and the
            /// [default TTL](crate::KeyspaceOptions::default_ttl) does not apply to them.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert), and [`Error::NoMergeOperator`]. The operand is not
            /// checked: if the operator cannot apply it, reads of the key fail with
            /// [`Error::MergeFailed`].
            ///
            /// [`Error::NoMergeOperator`]: crate::Error::NoMergeOperator
            /// [`Error::MergeFailed`]: crate::Error::MergeFailed
            ///
            /// ```
            /// use std::sync::Arc;
            /// use sievedb::{Append, KeyspaceOptions, Options};
            ///
            /// # let dir = tempfile::tempdir().unwrap();
            /// let append = KeyspaceOptions::new().merge_operator(Arc::new(Append::new()));
            /// let db = Options::new().keyspace(append).open(dir.path())?;
            /// db.insert("log", "one")?;
            /// db.merge("log", ", two")?;
            /// assert_eq!(db.get("log")?.as_deref(), Some(&b"one, two"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn merge(
                &self,
                key: impl AsRef<[u8]>,
                operand: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self$(.$field)?.put_operand(key.as_ref(), operand.as_ref())
            }

            /// Removes `key`. The key need not exist.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn remove(&self, key: impl AsRef<[u8]>) -> $crate::Result<()> {
                self$(.$field)?.delete(key.as_ref())
            }

            /// Removes every key in `range`, at the cost of one write: it writes a range tombstone.
            /// The range need not contain a key. An empty or inverted range writes nothing.
            ///
            /// Later reads do not see the keys; an existing [`Snapshot`](crate::Snapshot) or
            /// iterator does. Scans seek over the removed keys. Compactions free their space, and
            /// drop a fully covered table without reading it.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// for day in ["2026-11-21", "2026-11-22", "2026-11-23"] {
            ///     db.insert(day, "rain")?;
            /// }
            /// db.remove_range(.."2026-11-23")?;
            /// assert_eq!(db.iter().count(), 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert); [`Error::KeyTooLong`] for a bound.
            ///
            /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
            pub fn remove_range<K: AsRef<[u8]>>(
                &self,
                range: impl std::ops::RangeBounds<K>,
            ) -> $crate::Result<()> {
                self$(.$field)?.delete_range(&$crate::iter::bounds::KeyBounds::new(&range))
            }

            /// Removes every key with this prefix, by a range tombstone as
            /// [`remove_range`](Self::remove_range) does. An empty prefix removes all keys; see
            /// also [`Keyspace::clear`](crate::Keyspace::clear).
            ///
            /// # Errors
            ///
            /// As [`remove_range`](Self::remove_range).
            pub fn remove_prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Result<()> {
                let bounds = $crate::iter::bounds::KeyBounds::prefix(prefix.as_ref());
                self$(.$field)?.delete_range(&bounds)
            }
        }
    };
}

pub(crate) use write_methods;

write_methods!(Keyspace);

impl Keyspace {
    /// Stores a value with the default TTL of the keyspace.
    #[inline]
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let expiry_ms = self.tree.default_expiry_ms(|| store.versions.clock().now_ms());
        self.commit_value(store, key, expiry_ms, value)
    }

    /// Stores a value that expires at `expiry_ms` of the store clock; never with `None`. Removes
    /// the key if that time has passed.
    #[inline]
    pub(crate) fn put_value(&self, key: &[u8], expiry_ms: Option<u64>, value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        if store.versions.clock().has_passed(expiry_ms) {
            check_entry(key, value)?;
            return self.delete(key);
        }
        self.commit_value(store, key, expiry_ms, value)
    }

    #[inline]
    fn commit_value(
        &self,
        store: &Store,
        key: &[u8],
        expiry_ms: Option<u64>,
        value: &[u8],
    ) -> Result<()> {
        let (seed, tree) = (store.hash_seed, &self.tree);
        let mut write = WriteEncoder::single_value(seed, tree, key, expiry_ms, value)?;
        store.commit(&mut write, self.durability(store), &mut Always).map(drop)
    }

    pub(crate) fn put_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.open.accept()?;
        self.tree.check_operator()?;
        self.store_operand(key, operand)
    }

    /// Writes an operand, even in a keyspace whose merge operator is unknown.
    pub(crate) fn store_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.put_kind(Kind::Merge, key, operand)
    }

    /// Writes a version of a kind that has a value, in its stored form.
    pub(super) fn put_kind(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write = WriteEncoder::single_put(store.hash_seed, &self.tree, kind, key, value)?;
        store.commit(&mut write, self.durability(store), &mut Always).map(drop)
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write = WriteEncoder::single_remove(store.hash_seed, &self.tree, key)?;
        store.commit(&mut write, self.durability(store), &mut Always).map(drop)
    }

    pub(crate) fn delete_range(&self, bounds: &KeyBounds) -> Result<()> {
        let store = self.open.accept()?;
        let write = WriteEncoder::single_remove_range(store.hash_seed, &self.tree, bounds)?;
        let Some(mut write) = write else { return Ok(()) };
        store.commit(&mut write, self.durability(store), &mut Always).map(drop)
    }
}
