//! Writes of entries together with their index entries.

use std::{borrow::Borrow, collections::BTreeSet, fmt, sync::Arc};

use sievedb::{Db, Isolation, Transaction, TransactionOptions};

use super::{Index, IndexChanges, Maintained, rebuild::rebuild};
use crate::{
    codec::{Codec, Postcard},
    error::{Error, Result},
    key::{self, EncodeAs, Key},
    keyspace::TypedKeyspace,
    schema::{
        opening,
        record::{IndexRecord, Stored},
    },
    transaction::transaction,
};

/// A typed keyspace with secondary indexes. Each write changes the entry and all its index entries
/// in one [transaction](Transaction), which runs again after a conflict, as often as needed.
///
/// All writes to the keyspace must use an `Indexed` with the same indexes. A write to the keyspace
/// itself does not update them; nor does the expiry of a value. [`rebuild`](Self::rebuild) corrects
/// the indexes.
///
/// A write costs a read of the old value, and a write for each index entry that changes. It has the
/// durability of [`Options::durability`](sievedb::Options::durability).
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
    /// an entry: none, one, or several. It must be pure. Several entries may have the same index
    /// key.
    ///
    /// The index is built from all entries if it is new, if its build was interrupted, or if it was
    /// built with another `version` of `keys` or another version of the schema. Change `version`
    /// with each change of `keys`.
    ///
    /// # Errors
    ///
    /// * [`Error::NoSchema`], [`Error::SchemaMismatch`]: the keyspace `name` has other entries.
    /// * As [`rebuild`](Self::rebuild).
    pub fn index<IK: Key, I: IntoIterator<Item = IK>>(
        &mut self,
        name: &str,
        version: u32,
        keys: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Result<Index<IK, K, V, C>> {
        let keyspace = self.db.keyspace(name)?;
        let index = Maintained::new(keyspace.clone(), keys);
        self.build(&index, version)?;
        self.indexes.push(index);
        Ok(Index::new(self.db.clone(), keyspace, self.data.clone()))
    }

    /// Builds `index`, unless it is complete and of this version.
    fn build(&self, index: &Maintained<K, V>, version: u32) -> Result<()> {
        let _opening = opening();
        let mut record = IndexRecord {
            data: self.data.name().to_owned(),
            data_version: self.data.version(),
            version,
            is_complete: true,
        };
        let name = &index.name;
        let stored = match IndexRecord::read(&self.db, name) {
            Ok(Some(stored)) if stored == record => return Ok(()),
            Err(error @ Error::Engine(_)) => return Err(error),
            stored => stored,
        };
        if !index.keyspace.iter().is_empty()? {
            match stored? {
                None => return Err(Error::NoSchema { keyspace: Arc::clone(name) }),
                Some(stored) if stored.data != record.data => {
                    let of = |record: &IndexRecord| {
                        (format!("index of {}", record.data), record.version)
                    };
                    let (stored, expected) = (of(&stored), of(&record));
                    let keyspace = Arc::clone(name);
                    return Err(Error::SchemaMismatch { keyspace, stored, expected });
                }
                Some(_) => {}
            }
        }
        record.is_complete = false;
        record.write(&self.db, name)?;
        rebuild(self, index)?;
        record.is_complete = true;
        record.write(&self.db, name)
    }

    /// Returns the indexed keyspace, for reads. **Writes to it do not update the indexes.**
    #[must_use]
    pub fn keyspace(&self) -> &TypedKeyspace<K, V, C> {
        &self.data
    }

    /// Stores `value` under `key`, and replaces the index entries of the old value.
    ///
    /// # Errors
    ///
    /// [`Error::Encode`]; [`Error::Value`] if the old value cannot be decoded; [`Error::Engine`].
    pub fn insert(&self, key: impl EncodeAs<K>, value: impl Borrow<V>) -> Result<()> {
        let (key, value) = (key::to_bytes(&key), value.borrow());
        self.atomically(|transaction| self.replace(transaction, &key, Some(value)))
    }

    /// Removes `key` and its index entries. The key need not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the old value cannot be decoded; [`Error::Engine`].
    pub fn remove(&self, key: impl EncodeAs<K>) -> Result<()> {
        let key = key::to_bytes(&key);
        self.atomically(|transaction| self.replace(transaction, &key, None))
    }

    /// Adds the writes of [`insert`](Self::insert) to `transaction`, which may have any isolation
    /// level.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert). After an error, roll the transaction back: it may contain only
    /// some of the writes.
    pub fn insert_in(
        &self,
        transaction: &mut Transaction,
        key: impl EncodeAs<K>,
        value: impl Borrow<V>,
    ) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), Some(value.borrow()))
    }

    /// Adds the writes of [`remove`](Self::remove) to `transaction`.
    ///
    /// # Errors
    ///
    /// As [`insert_in`](Self::insert_in).
    pub fn remove_in(&self, transaction: &mut Transaction, key: impl EncodeAs<K>) -> Result<()> {
        self.replace(transaction, &key::to_bytes(&key), None)
    }

    /// Replaces the value of `key` by the result of `change`, which takes the present value. `None`
    /// stands for no value, in both places. Read and write are one atomic step. Returns the **new**
    /// value, unlike [`Keyspace::update`](sievedb::Keyspace::update).
    ///
    /// `change` is called again if another write changes the key in between.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn update(
        &self,
        key: impl EncodeAs<K>,
        mut change: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>> {
        let key = key::to_bytes(&key);
        self.atomically(|transaction| {
            let new = change(self.read(transaction, &key)?);
            self.replace(transaction, &key, new.as_ref())?;
            Ok(new)
        })
    }

    /// Compares all indexes with the data, and corrects them. Other threads may read and write
    /// meanwhile. Returns the number of changes.
    ///
    /// Reads all entries and all index entries. Only needed after writes that did not use an
    /// `Indexed`.
    ///
    /// # Errors
    ///
    /// [`Error::Key`], [`Error::Value`]: an entry cannot be decoded. [`Error::Engine`].
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
        transaction(&self.db, options, body)
    }

    /// Reads the value of an encoded key. The commit fails if another writer changes it.
    pub(super) fn read(&self, transaction: &Transaction, key: &[u8]) -> Result<Option<V>> {
        let value = transaction.get_for_update(self.data.untyped(), key)?;
        value.map(|value| self.data.decode_value(key, value)).transpose()
    }

    /// Writes the value of an encoded key, and the index entries that change. `None` removes it.
    fn replace(&self, transaction: &mut Transaction, key: &[u8], new: Option<&V>) -> Result<()> {
        let old = self.read(transaction, key)?;
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        let old = self.derive(key, old.as_ref())?;
        let (entries, data) = (self.derive(key, new)?, self.data.untyped());
        match new {
            Some(value) => {
                let mut bytes = Vec::new();
                C::encode(value, &mut bytes)
                    .map_err(|source| Error::encode(self.data.shared_name(), source))?;
                transaction.insert(data, key, bytes)?;
            }
            None => transaction.remove(data, key)?,
        }
        self.write_indexes(transaction, &old, &entries)
    }

    /// Returns the entries of all indexes for a value of an encoded key.
    fn derive(&self, key: &[u8], value: Option<&V>) -> Result<Derived> {
        let Some(value) = value else { return Ok(vec![BTreeSet::new(); self.indexes.len()]) };
        let typed = self.data.decode_key(key)?;
        Ok(self.indexes.iter().map(|index| (index.derive)(&typed, key, value)).collect())
    }

    fn write_indexes(
        &self,
        transaction: &mut Transaction,
        old: &Derived,
        new: &Derived,
    ) -> Result<()> {
        debug_assert_eq!((old.len(), new.len()), (self.indexes.len(), self.indexes.len()));
        for ((index, old), new) in self.indexes.iter().zip(old).zip(new) {
            for entry in old.difference(new) {
                transaction.remove(&index.keyspace, entry)?;
            }
            for entry in new.difference(old) {
                transaction.insert(&index.keyspace, entry, [])?;
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
