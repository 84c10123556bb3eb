//! The stored form of schemas.
//!
//! [`SCHEMA_KEYSPACE`] stores a record under the name of each keyspace. A record is the
//! [key encoding](crate::key) of a tuple, which begins with its layout. For a keyspace of entries:
//!
//! | element           | type              | meaning                                            |
//! |-------------------|-------------------|----------------------------------------------------|
//! | `layout`          | `u8`              | 1                                                  |
//! | `name`            | `String`          | name of the schema                                 |
//! | `version`         | `u32`             | its version                                        |
//! | `migrated_to`     | `Option<Vec<u8>>` | last key that has the next version; a migration runs |
//!
//! For a keyspace of index entries:
//!
//! | element           | type              | meaning                                            |
//! |-------------------|-------------------|----------------------------------------------------|
//! | `layout`          | `u8`              | 2                                                  |
//! | `data`            | `String`          | name of the keyspace that is indexed               |
//! | `data_version`    | `u32`             | version of its schema when the index was built     |
//! | `version`         | `u32`             | version of the index                               |
//! | `is_complete`     | `bool`            | `false` while the index is built                   |

use std::sync::Arc;

use sievedb::{Batch, Db, Durability};

use super::SCHEMA_KEYSPACE;
use crate::{
    error::{Error, Result},
    key::{self, Key},
};

/// A stored record.
pub(crate) trait Stored: Sized {
    const LAYOUT: u8;
    /// Begins with the layout.
    type Tuple: Key;

    fn from_tuple(tuple: Self::Tuple) -> Self;

    fn to_bytes(&self) -> Vec<u8>;

    /// Reads the record of `keyspace`, if there is one.
    fn read(db: &Db, keyspace: &Arc<str>) -> Result<Option<Self>> {
        Ok(read(db, keyspace, Self::LAYOUT)?.map(Self::from_tuple))
    }

    /// Stores the record durably.
    fn write(&self, db: &Db, keyspace: &str) -> Result<()> {
        let mut batch = db.batch();
        self.write_in(&mut batch, db, keyspace)?;
        Ok(batch.commit(Durability::Disk)?)
    }

    fn write_in(&self, batch: &mut Batch, db: &Db, keyspace: &str) -> Result<()> {
        Ok(batch.insert(db.keyspace(SCHEMA_KEYSPACE)?, keyspace, self.to_bytes())?)
    }
}

/// The stored schema of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaRecord {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) migrated_to: Option<Vec<u8>>,
}

impl Stored for SchemaRecord {
    const LAYOUT: u8 = 1;
    type Tuple = (u8, String, u32, Option<Vec<u8>>);

    fn from_tuple((_, name, version, migrated_to): Self::Tuple) -> Self {
        Self { name, version, migrated_to }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let Self { name, version, migrated_to } = self;
        let tuple = (Self::LAYOUT, name.as_str(), *version, migrated_to.as_deref());
        key::to_bytes::<Self::Tuple>(&tuple)
    }
}

/// The stored state of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexRecord {
    pub(crate) data: String,
    pub(crate) data_version: u32,
    pub(crate) version: u32,
    pub(crate) is_complete: bool,
}

impl Stored for IndexRecord {
    const LAYOUT: u8 = 2;
    type Tuple = (u8, String, u32, u32, bool);

    fn from_tuple((_, data, data_version, version, is_complete): Self::Tuple) -> Self {
        Self { data, data_version, version, is_complete }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let Self { data, data_version, version, is_complete } = self;
        let tuple = (Self::LAYOUT, data.as_str(), *data_version, *version, *is_complete);
        key::to_bytes::<Self::Tuple>(&tuple)
    }
}

/// Reads the record of `keyspace`, a tuple that begins with `layout`.
fn read<T: Key>(db: &Db, keyspace: &Arc<str>, layout: u8) -> Result<Option<T>> {
    // Not created: the store may be read-only.
    if !db.keyspace_exists(SCHEMA_KEYSPACE) {
        return Ok(None);
    }
    let Some(bytes) = db.open_keyspace(SCHEMA_KEYSPACE)?.get(&**keyspace)? else {
        return Ok(None);
    };
    let decoded = match bytes.first() {
        Some(first) if *first == layout => key::from_bytes(&bytes),
        _ => Err(key::KeyError::Invalid { what: "layout" }),
    };
    let located = |source| Error::SchemaRecord { keyspace: Arc::clone(keyspace), source };
    decoded.map(Some).map_err(located)
}
