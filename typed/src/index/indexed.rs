//! A keyspace with its indexes.

use std::{collections::BTreeSet, fmt, sync::Arc};

use sievedb::{
    Db, Durability, Isolation, KeyspaceOptions, TimeToLive, Transaction, TransactionOptions,
};

use super::{Index, IndexChanges, Maintained, rebuild::rebuild};
use crate::{
    codec::{Codec, Postcard},
    error::{Error, Result},
    key::Key,
    keyspace::TypedKeyspace,
    schema::{
        opening,
        record::{IndexRecord, Stored},
    },
    transaction::transaction,
};

/// A typed keyspace with secondary indexes. Each write changes the entry and all its index entries
/// in one [transaction](Transaction), which is retried after each conflict.
///
/// All writes to the keyspace must use an `Indexed` with the same indexes, also those of earlier
/// releases of the application. A write to the keyspace itself does not update them; nor does a
/// [compaction filter](sievedb::CompactionFilter) or [`Fifo`](sievedb::Fifo) compaction.
/// [`rebuild`](Self::rebuild) corrects the indexes. There are no range deletes: a range delete does
/// not read the values, so the index entries are unknown.
///
/// Index entries expire with their value. Merge operands that were written before the index are
/// folded into a value that expires, and expire with it.
///
/// A write costs a read of the old value and of its expiry. It also costs a write for each index
/// entry that changes, or for all if the expiry changes. It has the durability of
/// [`Options::durability`](sievedb::Options::durability), or of
/// [`with_durability`](Self::with_durability).
///
/// A write with its index entries must fit into a transaction of [default
/// size](sievedb::TransactionOptions::bytes_max), which is 16 MiB with a budget of 256 MiB. An index key and the key of its entry have at most 64 KiB together, encoded as a
/// [tuple](crate::key).
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use sievedb_typed::{Indexed, Schema, TypedKeyspace, sievedb::Db};
///
/// #[derive(Serialize, Deserialize)]
/// struct User {
///     name: String,
///     city: String,
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let users = TypedKeyspace::<u64, User>::open(&db, "users", Schema::new("user", 1))?;
/// let mut users = Indexed::new(&db, users)?;
/// let by_city = users.index("users by city", 1, |_, user: &User| [user.city.clone()])?;
///
/// users.insert(7, User { name: "anna".into(), city: "Graz".into() })?;
/// users.insert(8, User { name: "bert".into(), city: "Linz".into() })?;
/// users.insert(8, User { name: "bert".into(), city: "Graz".into() })?;
/// let found: Vec<(u64, User)> = by_city.get("Graz").collect::<Result<_, _>>()?;
/// assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [7, 8]);
/// assert_eq!(by_city.get("Linz").count(), 0);
/// # Ok::<(), sievedb_typed::Error>(())
/// ```
pub struct Indexed<K, V, C = Postcard> {
    db: Db,
    data: TypedKeyspace<K, V, C>,
    indexes: Vec<Maintained<K, V>>,
}

/// The index entries of one entry, for each index.
type Derived = Vec<BTreeSet<Vec<u8>>>;

/// The index entries of a value before it is changed, and its time to live.
pub(super) struct Before {
    derived: Derived,
    /// `None` if the key has no value.
    pub(super) ttl: Option<TimeToLive>,
}

impl<K: Key, V, C: Codec<V>> Indexed<K, V, C> {
    /// Returns `keyspace` of the store `db`, without indexes.
    ///
    /// # Errors
    ///
    /// [`sievedb::Error::ForeignKeyspace`] if the keyspace is of another store.
    pub fn new(db: &Db, keyspace: TypedKeyspace<K, V, C>) -> Result<Self> {
        keyspace.at(&db.snapshot())?;
        Ok(Self { db: db.clone(), data: keyspace, indexes: Vec::new() })
    }

    /// Adds the index `name`, stored in a keyspace of this name. `keys` derives the index keys of
    /// an entry: none, one, or several. It must be pure, and must not open a typed keyspace or an
    /// index: it would wait for itself.
    ///
    /// Several entries may have the same index key. A lookup before a write does not keep index
    /// keys unique: another writer may store the same one in between.
    ///
    /// The index is built from all entries if it is new, if its build was interrupted, or if it was
    /// built with another `version` of `keys`, another version of the schema, or data that was
    /// dropped since. Change `version` with each change of `keys`.
    ///
    /// First commit or drop each [`Transaction`] with writes to the keyspace: they would have no
    /// entries in this index.
    ///
    /// During a build, lookups through other handles of the index, and in followers of the store,
    /// find only a part of the entries.
    ///
    /// # Errors
    ///
    /// * [`Error::NoSchema`], [`Error::SchemaMismatch`], [`Error::SchemaRecord`]: the keyspace
    ///   `name` has other entries, or is that of another index or of data, also if it is empty.
    /// * [`Error::DuplicateIndex`]: this `Indexed` has an index `name`.
    /// * As [`rebuild`](Self::rebuild).
    pub fn index<IK: Key, I: IntoIterator<Item = IK>>(
        &mut self,
        name: &str,
        version: u32,
        keys: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Result<Index<IK, K, V, C>> {
        // Without the default TTL and the compaction filter of `Options::keyspace`.
        let keyspace = self.db.keyspace_with(name, &KeyspaceOptions::new())?;
        if self.indexes.iter().any(|index| index.keyspace.id() == keyspace.id()) {
            return Err(Error::DuplicateIndex { index: keyspace.name().into() });
        }
        let index = Maintained::new(keyspace.clone(), keys);
        let record = self.build(&index, version)?;
        self.indexes.push(index);
        Ok(Index::new(self.db.clone(), keyspace, record, self.data.clone()))
    }

    /// Builds `index`, unless it is complete and of this version. Returns its record.
    fn build(&self, index: &Maintained<K, V>, version: u32) -> Result<IndexRecord> {
        let _opening = opening();
        let mut record = IndexRecord {
            data_number: self.data.untyped().id().number,
            data: self.data.untyped().name(),
            data_version: self.data.version(),
            version,
            is_complete: true,
        };
        let keyspace = &index.keyspace;
        match IndexRecord::read(&self.db, keyspace)? {
            Some(stored) if stored == record => return Ok(record),
            // The keyspace of the data was renamed.
            Some(stored) if stored.is_same_build(&record) => {
                record.update(self.db.batch(), &self.db, keyspace)?;
                return Ok(record);
            }
            Some(stored) if stored.has_data_of(&record) => {}
            Some(stored) => {
                // An index of a dropped keyspace is rebuilt.
                if let Some(data) = stored.live_data(&self.db)? {
                    let (keyspace, of) =
                        (Arc::clone(&index.name), |name| format!("index of {name}"));
                    let stored = (of(data), stored.version);
                    let expected = (of(record.data), record.version);
                    return Err(Error::SchemaMismatch { keyspace, stored, expected });
                }
            }
            None if keyspace.iter().is_empty()? => {}
            None => return Err(Error::NoSchema { keyspace: Arc::clone(&index.name) }),
        }
        record.is_complete = false;
        record.write(&self.db, keyspace)?;
        rebuild(self, index)?;
        record.is_complete = true;
        record.write(&self.db, keyspace)?;
        Ok(record)
    }

    /// Sets the durability of writes. Writes in a transaction have that of its commit.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.data = self.data.with_durability(durability);
        self
    }

    /// Returns the indexed keyspace, for reads. **Writes to it do not update the indexes.**
    #[must_use]
    pub fn keyspace(&self) -> &TypedKeyspace<K, V, C> {
        &self.data
    }

    /// Compares all indexes with the data, and corrects them. Other threads may read and write
    /// meanwhile. Returns the number of changes.
    ///
    /// Reads all entries and all index entries. Required only after writes that did not use an
    /// `Indexed`.
    ///
    /// # Errors
    ///
    /// [`Error::Key`], [`Error::Value`]: an entry cannot be decoded. [`Error::Engine`], also
    /// [`KeyTooLong`](sievedb::Error::KeyTooLong) of an index entry.
    pub fn rebuild(&self) -> Result<IndexChanges> {
        let mut changes = IndexChanges::default();
        for index in &self.indexes {
            changes += rebuild(self, index)?;
        }
        Ok(changes)
    }

    /// Runs `body` in transactions until one commits.
    pub(super) fn atomically<T>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        // Snapshot isolation is enough: two writers of one entry both write its key, so they
        // conflict.
        let options =
            TransactionOptions::new().isolation(Isolation::Snapshot).retries_max(u32::MAX);
        let options = match self.data.durability() {
            Some(durability) => options.durability(durability),
            None => options,
        };
        transaction(&self.db, options, body)
    }

    /// Returns the value of an encoded key, its index entries and its time to live. The commit
    /// fails if another write changes the value.
    pub(super) fn before(
        &self,
        transaction: &Transaction,
        key: &[u8],
    ) -> Result<(Option<V>, Before)> {
        let value = self.data.read_for_update(transaction, key)?;
        let derived = self.derive(key, value.as_ref())?;
        let ttl = if value.is_some() { transaction.ttl(&self.data, key)? } else { None };
        Ok((value, Before { derived, ttl }))
    }

    /// Returns the entries of all indexes for a value of an encoded key.
    fn derive(&self, key: &[u8], value: Option<&V>) -> Result<Derived> {
        let Some(value) = value else { return Ok(vec![BTreeSet::new(); self.indexes.len()]) };
        let typed = self.data.decode_key(key)?;
        Ok(self.indexes.iter().map(|index| (index.derive)(&typed, key, value)).collect())
    }

    /// Writes the index entries that a write of `new` to an encoded key changes. The transaction
    /// has that write already. The index entries expire with the value.
    pub(super) fn follow(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        before: &Before,
        new: Option<&V>,
    ) -> Result<()> {
        let ttl = transaction.ttl(&self.data, key)?;
        // A value that expires at once is not stored.
        let new = self.derive(key, new.filter(|_| ttl.is_some()))?;
        let old = &before.derived;
        debug_assert_eq!((old.len(), new.len()), (self.indexes.len(), self.indexes.len()));
        for ((index, old), new) in self.indexes.iter().zip(old).zip(&new) {
            for entry in old.difference(new) {
                transaction.remove(&index.keyspace, entry)?;
            }
            for entry in new.iter().filter(|entry| before.ttl != ttl || !old.contains(*entry)) {
                index.insert(transaction, entry, ttl)?;
            }
        }
        Ok(())
    }
}

impl<K, V, C> fmt::Debug for Indexed<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.indexes.iter().map(|index| &index.name).collect();
        f.debug_struct("Indexed")
            .field("data", &self.data)
            .field("indexes", &names)
            .finish_non_exhaustive()
    }
}
