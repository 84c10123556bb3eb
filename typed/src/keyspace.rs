//! A keyspace with typed keys and values.

mod asynchronous;
mod conditional;
mod expiring;
mod in_transaction;
mod in_writes;
mod removal;

use std::{borrow::Borrow, fmt, marker::PhantomData, sync::Arc};

use sievedb::{Bytes, Db, Durability, Keyspace, KeyspaceOptions, ReadOptions, Snapshot};

use crate::{
    codec::{Codec, Postcard},
    error::{Error, Result},
    key::{self, EncodeAs, Key},
    reads::{Types, read_methods},
    schema::{Schema, check_name},
    snapshot::TypedSnapshot,
};

/// A keyspace with keys of type `K` and values of type `V`, encoded by `C`.
///
/// Cheap to clone and safe to share between threads. A call costs as much as that of
/// [`Keyspace`](sievedb::Keyspace), plus encoding and decoding.
///
/// Keys are passed by value, by reference or in a borrowed form: `"anna"` for a `String`. Values
/// are passed by value or by reference. Integer literals have the type of the key.
pub struct TypedKeyspace<K, V, C = Postcard> {
    entries: Keyspace,
    /// Durability of the writes of `entries`; `None` for that of the store.
    durability: Option<Durability>,
    name: Arc<str>,
    /// Version of the schema.
    version: u32,
    types: Types<K, V, C>,
}

impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Opens or creates the keyspace `name`, and checks its [`Schema`]. Runs the missing
    /// migrations, which rewrite all values.
    ///
    /// Opens of one process run one after another. If it forks during an open, opens of the child
    /// wait forever.
    ///
    /// # Errors
    ///
    /// * [`Error::SchemaMismatch`], [`Error::MigrationUnfinished`], [`Error::NoSchema`]: the stored
    ///   entries have other types. No entry was changed.
    /// * [`Error::Migration`]: a step failed. See [`Schema`].
    /// * [`Error::SchemaRecord`], [`Error::ReservedName`].
    /// * [`Error::Engine`]: as [`Db::keyspace`], and of a write with durability `Disk`. So
    ///   `ReadOnly` for an empty keyspace without a schema in a read-only store. In a migration
    ///   also of reads, such as `MergeFailed`.
    #[expect(clippy::needless_pass_by_value, reason = "a schema is written for one open")]
    pub fn open(db: &Db, name: &str, schema: Schema) -> Result<Self> {
        check_name(name)?;
        Self::check(db, db.keyspace(name)?, &schema)
    }

    /// Opens the keyspace `name` as [`open`](Self::open) does, or creates it with `options`. An
    /// existing keyspace keeps its options. Pass merge operators and compaction filters of the
    /// application also to [`Options`](sievedb::Options), at each open of the store.
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
        check_name(name)?;
        Self::check(db, db.keyspace_with(name, options)?, &schema)
    }

    fn check(db: &Db, entries: Keyspace, schema: &Schema) -> Result<Self> {
        schema.open(db, &entries)?;
        let (name, version) = (entries.name().into(), schema.version());
        Ok(Self { entries, durability: None, name, version, types: PhantomData })
    }

    /// Returns the name with which the keyspace was opened.
    #[must_use]
    pub fn name(&self) -> &str {
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

    /// Returns the untyped keyspace, for other calls of the engine, such as flushes and
    /// compactions. Entries written to it must have the encodings of this keyspace: see
    /// [`key::to_bytes`] and [`Codec::encode`].
    #[must_use]
    pub fn untyped(&self) -> &Keyspace {
        &self.entries
    }

    /// Returns a handle of this keyspace whose writes have `durability`, instead of
    /// [`Options::durability`](sievedb::Options::durability). As [`Keyspace::with_durability`]. An
    /// [`Indexed`](crate::Indexed) of the handle has it, too.
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::{Db, Durability}};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path())?;
    /// let payments = TypedKeyspace::<u64, u64>::open(&db, "payments", Schema::new("payment", 1))?
    ///     .with_durability(Durability::Disk);
    /// payments.insert(1, 950)?;
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        let entries = self.entries.with_durability(durability);
        Self { entries, durability: Some(durability), ..self.clone() }
    }

    /// Returns the durability of [`with_durability`](Self::with_durability).
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Returns a handle of this keyspace that reads with `options`, iterators included. As
    /// [`Keyspace::with_read_options`].
    #[must_use]
    pub fn with_read_options(&self, options: ReadOptions) -> Self {
        Self { entries: self.entries.with_read_options(options), ..self.clone() }
    }

    /// Returns a view of the keyspace at the time of `snapshot`. The view is empty if the keyspace
    /// was created later.
    ///
    /// # Errors
    ///
    /// * [`sievedb::Error::ForeignKeyspace`]: the snapshot is of another store.
    /// * [`sievedb::Error::NotInHistory`]: the snapshot is of the [past](Db::snapshot_at), which
    ///   this keyspace does not keep.
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

    /// Removes `key`. The key need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`].
    pub fn remove(&self, key: impl EncodeAs<K>) -> Result<()> {
        Ok(key::with_bytes(&key, |key| self.entries.remove(key))?)
    }

    /// Adds `operand` to the value of `key`, by the [merge
    /// operator](KeyspaceOptions::merge_operator) of the keyspace. Reads nothing. As
    /// [`Keyspace::merge`]. The operand is encoded as a value, so the operator must accept values
    /// as operands: [`MergeValues`], or [`Counter`](sievedb::Counter) with the codec
    /// [`Integer`](crate::Integer). For other operands, use [`untyped`](Self::untyped).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sievedb_typed::{Integer, Schema, TypedKeyspace, sievedb::{Counter, Db, KeyspaceOptions}};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let options = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    /// let schema = Schema::new("hits", 1);
    /// let hits = TypedKeyspace::<String, i64, Integer>::open_with(&db, "hits", &options, schema)?;
    /// hits.merge("page", 2)?;
    /// hits.merge("page", -1)?;
    /// assert_eq!(hits.get("page")?, Some(1));
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// [`MergeValues`]: crate::MergeValues
    pub fn merge(&self, key: impl EncodeAs<K>, operand: impl Borrow<V>) -> Result<()> {
        self.with_entry(&key, operand.borrow(), |key, operand| self.entries.merge(key, operand))
    }

    /// Calls `write` with the encoded entry.
    pub(crate) fn with_entry<T>(
        &self,
        key: &impl EncodeAs<K>,
        value: &V,
        write: impl FnOnce(&[u8], &[u8]) -> sievedb::Result<T>,
    ) -> Result<T> {
        let value = self.encode_value(value)?;
        Ok(key::with_bytes(key, |key| write(key, &value))?)
    }

    pub(crate) fn encode_value(&self, value: &V) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        C::encode(value, &mut bytes).map_err(|source| Error::encode(&self.name, source))?;
        Ok(bytes)
    }
}

read_methods!(TypedKeyspace);

impl<K, V, C> Clone for TypedKeyspace<K, V, C> {
    fn clone(&self) -> Self {
        let (entries, name) = (self.entries.clone(), Arc::clone(&self.name));
        let (durability, version) = (self.durability, self.version);
        Self { entries, durability, name, version, types: PhantomData }
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
