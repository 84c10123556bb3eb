//! The stored form of schemas.
//!
//! [`SCHEMA_KEYSPACE`] stores a record under the id of each keyspace. The key is the [key
//! encoding](crate::key) of `(store, number)` of a [`KeyspaceId`], so a renamed keyspace keeps its
//! record. A record is the key encoding of this tuple:
//!
//! | element    | type      | meaning                                                            |
//! |------------|-----------|--------------------------------------------------------------------|
//! | `layout`   | `u8`      | 3 for a keyspace of entries, 4 for one of index entries            |
//! | `keyspace` | `String`  | name of the keyspace when the record was written                   |
//! | `contents` | `Vec<u8>` | a tuple that depends on the layout                                 |
//!
//! Contents for a keyspace of entries:
//!
//! | element           | type              | meaning                                            |
//! |-------------------|-------------------|----------------------------------------------------|
//! | `name`            | `String`          | name of the schema                                 |
//! | `version`         | `u32`             | its version                                        |
//! | `migrated_to`     | `Option<Vec<u8>>` | last key that has the next version; a migration runs |
//!
//! For a keyspace of index entries:
//!
//! | element           | type              | meaning                                            |
//! |-------------------|-------------------|----------------------------------------------------|
//! | `data_number`     | `u64`             | number of the keyspace that is indexed; 0: unknown |
//! | `data`            | `String`          | its name when the record was written               |
//! | `data_version`    | `u32`             | version of its schema when the index was built     |
//! | `version`         | `u32`             | version of the index                               |
//! | `is_complete`     | `bool`            | `false` while the index is built                   |
//!
//! A repair gives store and keyspaces new ids, and keeps their names. So a record of another store
//! counts for the keyspace of its name, and moves to the id of that keyspace. A new record replaces
//! those of dropped keyspaces with its name.

use std::ops::Bound;

use sievedb::{Batch, Bytes, Db, Durability, Keyspace, KeyspaceId, KeyspaceOptions, Snapshot};

use super::SCHEMA_KEYSPACE;
use crate::{
    error::{Error, Result},
    key::{self, Key, KeyError},
    transaction::{Expiry, sealed::Writes},
};

/// A record without its contents decoded.
type Record = (u8, String, Vec<u8>);

/// A stored record.
pub(crate) trait Stored: Sized {
    const LAYOUT: u8;
    type Contents: Key;

    fn from_contents(contents: Self::Contents) -> Self;

    fn contents(&self) -> Vec<u8>;

    /// Converts a record of another store into one for a keyspace of this store.
    fn of_other_store(self) -> Self {
        self
    }

    /// Reads the record of `keyspace`, if there is one. Moves it after a repair, and updates the
    /// name after a rename.
    fn read(db: &Db, keyspace: &Keyspace) -> Result<Option<Self>> {
        let Some((key, bytes)) = find(db, keyspace)? else { return Ok(None) };
        let (stored_name, mut record) = Self::decode(&bytes, keyspace)?;
        let is_moved = key != key_of(keyspace.id());
        if is_moved {
            record = record.of_other_store();
        }
        if is_moved || stored_name != keyspace.name() {
            let mut batch = db.batch();
            if is_moved {
                batch.remove(db.open_keyspace(SCHEMA_KEYSPACE)?, key)?;
            }
            record.update(batch, db, keyspace)?;
        }
        Ok(Some(record))
    }

    /// Reads the record of `keyspace` at the time of `snapshot`.
    fn read_at(snapshot: &Snapshot, db: &Db, keyspace: &Keyspace) -> Result<Option<Self>> {
        let records = snapshot.keyspace(db.open_keyspace(SCHEMA_KEYSPACE)?)?;
        let bytes = records.get(key_of(keyspace.id()))?;
        bytes.map(|bytes| Ok(Self::decode(&bytes, keyspace)?.1)).transpose()
    }

    /// Decodes the record of `keyspace`, and the stored name.
    fn decode(bytes: &Bytes, keyspace: &Keyspace) -> Result<(String, Self)> {
        let located = |source| Error::SchemaRecord { keyspace: keyspace.name().into(), source };
        let (name, contents) = split(bytes, Self::LAYOUT).map_err(located)?;
        let record = key::from_bytes(&contents).map(Self::from_contents).map_err(located)?;
        Ok((name, record))
    }

    /// Writes the record with `batch`, unless the store is read-only: the record counts as it is.
    fn update(&self, batch: Batch, db: &Db, keyspace: &Keyspace) -> Result<()> {
        match self.write_with(batch, db, keyspace) {
            Err(Error::Engine(sievedb::Error::ReadOnly { .. })) => Ok(()),
            written => written,
        }
    }

    /// Stores the record durably.
    fn write(&self, db: &Db, keyspace: &Keyspace) -> Result<()> {
        self.write_with(db.batch(), db, keyspace)
    }

    fn write_with(&self, mut batch: Batch, db: &Db, keyspace: &Keyspace) -> Result<()> {
        self.write_in(&mut batch, db, keyspace)?;
        remove_dropped(&mut batch, db, keyspace)?;
        batch.commit(Durability::Disk)?;
        Ok(())
    }

    /// Adds a write of the record.
    fn write_in(&self, writes: &mut impl Writes, db: &Db, keyspace: &Keyspace) -> Result<()> {
        // Without the default TTL and the compaction filter of `Options::keyspace`.
        let records = db.keyspace_with(SCHEMA_KEYSPACE, &KeyspaceOptions::new())?;
        let record = (Self::LAYOUT, keyspace.name(), self.contents());
        let bytes = key::to_bytes::<Record>(&record);
        Ok(writes.put(&records, &key_of(keyspace.id()), &bytes, Expiry::Never)?)
    }
}

/// Returns the key of a keyspace's record.
pub(super) fn key_of(id: KeyspaceId) -> Vec<u8> {
    key::to_bytes::<(u128, u64)>(&(id.store, id.number))
}

/// Returns name and contents of a record with this layout.
fn split(bytes: &Bytes, layout: u8) -> Result<(String, Vec<u8>), KeyError> {
    match bytes.first() {
        Some(first) if *first == layout => {
            let (_, name, contents) = key::from_bytes::<Record>(bytes)?;
            Ok((name, contents))
        }
        _ => Err(KeyError::Invalid { what: "layout" }),
    }
}

/// Removes records of dropped keyspaces with the name of `keyspace`. A repair keeps the names only,
/// so these records would count for `keyspace`.
fn remove_dropped(batch: &mut Batch, db: &Db, keyspace: &Keyspace) -> Result<()> {
    let records = db.open_keyspace(SCHEMA_KEYSPACE)?;
    let (name, own) = (keyspace.name(), key_of(keyspace.id()));
    let mut others = Vec::new();
    for entry in records.iter() {
        let (key, bytes) = entry?;
        if key != own && is_of(&bytes, &name) {
            others.push(key);
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let key_of_name = |name: &String| Ok(key_of(db.open_keyspace(name)?.id()));
    let live: sievedb::Result<Vec<_>> = db.keyspaces()?.iter().map(key_of_name).collect();
    // After a concurrent rename the next write removes them.
    let Ok(live) = live else { return Ok(()) };
    // A renamed keyspace keeps its record, which may have its former name.
    others.retain(|key| !live.iter().any(|live| live == key));
    Ok(others.iter().try_for_each(|key| batch.remove(&records, key))?)
}

/// Returns `true` if this is a record with the keyspace name `name`.
fn is_of(record: &[u8], name: &str) -> bool {
    key::from_bytes::<Record>(record).is_ok_and(|(_, stored, _)| stored == name)
}

/// Returns the record of `keyspace`, or else that of a keyspace of the same name of another store.
/// A keyspace that was renamed may have a record with its former name. The newest keyspace of a
/// name has the largest number.
fn find(db: &Db, keyspace: &Keyspace) -> Result<Option<(Bytes, Bytes)>> {
    // Not created: the store may be read-only.
    if !db.keyspace_exists(SCHEMA_KEYSPACE)? {
        return Ok(None);
    }
    let records = db.open_keyspace(SCHEMA_KEYSPACE)?;
    let (name, id) = (keyspace.name(), keyspace.id());
    let key = key_of(id);
    if let Some(bytes) = records.get(&key)? {
        return Ok(Some((key.into(), bytes)));
    }
    let (mut first, mut last) = (id, id);
    (first.number, last.number) = (0, u64::MAX);
    let (first, last) = (key_of(first), key_of(last));
    let others =
        records.range(..first).chain(records.range((Bound::Excluded(last), Bound::Unbounded)));
    for entry in others.rev() {
        let (key, bytes) = entry?;
        if is_of(&bytes, &name) {
            return Ok(Some((key, bytes)));
        }
    }
    Ok(None)
}

/// The stored schema of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaRecord {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) migrated_to: Option<Vec<u8>>,
}

impl Stored for SchemaRecord {
    const LAYOUT: u8 = 3;
    type Contents = (String, u32, Option<Vec<u8>>);

    fn from_contents((name, version, migrated_to): Self::Contents) -> Self {
        Self { name, version, migrated_to }
    }

    fn contents(&self) -> Vec<u8> {
        let Self { name, version, migrated_to } = self;
        key::to_bytes::<Self::Contents>(&(name.as_str(), *version, migrated_to.as_deref()))
    }
}

/// The stored state of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexRecord {
    pub(crate) data_number: u64,
    pub(crate) data: String,
    pub(crate) data_version: u32,
    pub(crate) version: u32,
    pub(crate) is_complete: bool,
}

impl IndexRecord {
    /// Returns `true` if both are indexes of one keyspace. `other` is of the present store.
    pub(crate) fn has_data_of(&self, other: &Self) -> bool {
        match self.data_number {
            0 => self.data == other.data,
            number => number == other.data_number,
        }
    }

    /// Returns `true` if both are equal except for names.
    pub(crate) fn is_same_build(&self, other: &Self) -> bool {
        Self { data: other.data.clone(), ..self.clone() } == *other
    }

    /// Returns the present name of the keyspace that is indexed, if it exists.
    pub(crate) fn live_data(&self, db: &Db) -> Result<Option<String>> {
        for name in db.keyspaces()? {
            let is_indexed = match self.data_number {
                0 => name == self.data,
                number => number == db.open_keyspace(&name)?.id().number,
            };
            if is_indexed {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

impl Stored for IndexRecord {
    const LAYOUT: u8 = 4;
    type Contents = (u64, String, u32, u32, bool);

    fn from_contents(contents: Self::Contents) -> Self {
        let (data_number, data, data_version, version, is_complete) = contents;
        Self { data_number, data, data_version, version, is_complete }
    }

    fn contents(&self) -> Vec<u8> {
        let Self { data_number, data, data_version, version, is_complete } = self;
        let contents = (*data_number, data.as_str(), *data_version, *version, *is_complete);
        key::to_bytes::<Self::Contents>(&contents)
    }

    /// Marks the index as incomplete: a repair may have lost entries of the data or of the index.
    fn of_other_store(self) -> Self {
        Self { data_number: 0, is_complete: false, ..self }
    }
}
