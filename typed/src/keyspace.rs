//! A keyspace with typed keys and values.

use std::{borrow::Borrow, fmt, marker::PhantomData, sync::Arc};

use sievedb::{Bytes, Db, Keyspace, KeyspaceOptions, Snapshot, Transaction};

use crate::{
    codec::{Codec, Postcard},
    error::{Error, Result},
    key::{self, EncodeAs, Key},
    reads::{Types, read_methods},
    schema::Schema,
    snapshot::TypedSnapshot,
    transaction::Writes,
};

/// A keyspace with keys of type `K` and values of type `V`, encoded by `C`.
///
/// Cheap to clone and safe to share between threads. A call costs that of
/// [`Keyspace`](sievedb::Keyspace), plus encoding and decoding.
///
/// Keys are passed by value, by reference or in a borrowed form: `"anna"` for a `String`. Values
/// are passed by value or by reference. Integer literals have the type of the key.
pub struct TypedKeyspace<K, V, C = Postcard> {
    entries: Keyspace,
    name: Arc<str>,
    /// Version of the schema.
    version: u32,
    types: Types<K, V, C>,
}

impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Opens the keyspace `name`, or creates it, and checks its [`Schema`]. Runs migrations, which
    /// rewrite all values.
    ///
    /// # Errors
    ///
    /// * [`Error::SchemaMismatch`], [`Error::MigrationUnfinished`], [`Error::NoSchema`]: the stored
    ///   entries have other types. No entry was changed.
    /// * [`Error::Migration`]: a step failed. See [`Schema`].
    /// * [`Error::SchemaRecord`], [`Error::ReservedName`].
    /// * [`Error::Engine`]: as [`Db::keyspace`], and of a write with durability `Disk`.
    #[expect(clippy::needless_pass_by_value, reason = "a schema is written for one open")]
    pub fn open(db: &Db, name: &str, schema: Schema) -> Result<Self> {
        Self::check(db, db.keyspace(name)?, &schema)
    }

    /// As [`open`](Self::open). If the keyspace does not exist, it is created with `options`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[expect(clippy::needless_pass_by_value, reason = "a schema is written for one open")]
    pub fn open_with(
        db: &Db,
        name: &str,
        options: &KeyspaceOptions,
        schema: Schema,
    ) -> Result<Self> {
        Self::check(db, db.keyspace_with(name, options)?, &schema)
    }

    fn check(db: &Db, entries: Keyspace, schema: &Schema) -> Result<Self> {
        schema.open(db, &entries)?;
        let (name, version) = (entries.name().into(), schema.version());
        Ok(Self { entries, name, version, types: PhantomData })
    }

    /// Returns the name with which the keyspace was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the version of the schema.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Decodes a stored key.
    pub(crate) fn decode_key(&self, key: &[u8]) -> Result<K> {
        key::from_bytes(key).map_err(|source| {
            let (keyspace, key) = (Arc::clone(&self.name), Bytes::copy_from_slice(key));
            Error::Key { keyspace, key, source }
        })
    }

    /// Returns the untyped keyspace, for all other calls of the engine: options, flushes, range
    /// deletes. Entries that are written to it must have the encodings of this keyspace; see
    /// [`key::to_bytes`] and [`Codec::encode`].
    #[must_use]
    pub fn untyped(&self) -> &Keyspace {
        &self.entries
    }

    /// Returns a view of the keyspace at the time of `snapshot`. It is empty if the keyspace was
    /// created later.
    ///
    /// # Errors
    ///
    /// [`sievedb::Error::ForeignKeyspace`] if the snapshot is of another store.
    pub fn at(&self, snapshot: &Snapshot) -> Result<TypedSnapshot<K, V, C>> {
        let entries = snapshot.keyspace(&self.entries)?;
        Ok(TypedSnapshot::new(entries, Arc::clone(&self.name)))
    }

    /// Stores `value` under `key`. As [`Keyspace::insert`].
    ///
    /// # Errors
    ///
    /// [`Error::Encode`]; [`Error::Engine`].
    pub fn insert(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        self.with_entry(&key, value.borrow(), |key, value| self.entries.insert(key, value))
    }

    /// Stores `value` under `key` unless the key has a value. Returns `true` if `value` was stored.
    /// As [`Keyspace::insert_if_absent`].
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<bool> {
        self.with_entry(&key, value.borrow(), |key, value| {
            self.entries.insert_if_absent(key, value)
        })
    }

    /// Removes `key`. The key need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`].
    pub fn remove(&self, key: impl EncodeAs<K>) -> Result<()> {
        Ok(key::with_bytes(&key, |key| self.entries.remove(key))?)
    }

    /// Adds a write of `value` under `key` to `writes`, a [`Batch`](sievedb::Batch) or a
    /// [`Transaction`], which may write to any keyspaces of the store.
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
    /// [`Error::Encode`]; [`Error::Engine`] as of the engine's call. Nothing was added.
    pub fn insert_in(
        &self,
        writes: &mut impl Writes,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.with_entry(&key, value.borrow(), |key, value| writes.put(&self.entries, key, value))
    }

    /// Adds a removal of `key` to `writes`, a [`Batch`](sievedb::Batch) or a [`Transaction`].
    ///
    /// # Errors
    ///
    /// [`Error::Engine`] as of the engine's call.
    pub fn remove_in(&self, writes: &mut impl Writes, key: impl EncodeAs<K>) -> Result<()> {
        Ok(key::with_bytes(&key, |key| writes.delete(&self.entries, key))?)
    }

    /// Returns the value of `key` as `transaction` sees it. As [`Transaction::get`].
    ///
    /// # Errors
    ///
    /// [`Error::Value`]; [`Error::Engine`].
    pub fn get_in(&self, transaction: &Transaction, key: impl EncodeAs<K>) -> Result<Option<V>> {
        key::with_bytes(&key, |key| {
            let Some(value) = transaction.get(&self.entries, key)? else { return Ok(None) };
            self.decode_value(key, value).map(Some)
        })
    }

    /// Calls `write` with the encoded entry.
    fn with_entry<T>(
        &self,
        key: &impl EncodeAs<K>,
        value: &V,
        write: impl FnOnce(&[u8], &[u8]) -> sievedb::Result<T>,
    ) -> Result<T> {
        let mut bytes = Vec::new();
        C::encode(value, &mut bytes).map_err(|source| Error::encode(&self.name, source))?;
        Ok(key::with_bytes(key, |key| write(key, &bytes))?)
    }
}

read_methods!(TypedKeyspace);

impl<K, V, C> Clone for TypedKeyspace<K, V, C> {
    fn clone(&self) -> Self {
        let (entries, name) = (self.entries.clone(), Arc::clone(&self.name));
        Self { entries, name, version: self.version, types: PhantomData }
    }
}

impl<K, V, C> AsRef<Keyspace> for TypedKeyspace<K, V, C> {
    fn as_ref(&self) -> &Keyspace {
        &self.entries
    }
}

impl<K, V, C> fmt::Debug for TypedKeyspace<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedKeyspace").field("name", &self.name).finish_non_exhaustive()
    }
}
