//! The stored form of schemas.
//!
//! A record is the value of the name of its keyspace in [`SCHEMA_KEYSPACE`]. It is a
//! [key encoding](crate::key) of a tuple, which begins with its layout. A keyspace of entries:
//!
//! | element           | type              | meaning                                            |
//! |-------------------|-------------------|----------------------------------------------------|
//! | `layout`          | `u8`              | 1                                                  |
//! | `name`            | `String`          | name of the schema                                 |
//! | `version`         | `u32`             | its version                                        |
//! | `migrated_to`     | `Option<Vec<u8>>` | last key that has the next version; a migration runs |

use std::sync::Arc;

use sievedb::{Batch, Db, Durability};

use super::SCHEMA_KEYSPACE;
use crate::{
    error::{Error, Result},
    key::{self, Key},
};

const SCHEMA_LAYOUT: u8 = 1;

/// The stored schema of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaRecord {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) migrated_to: Option<Vec<u8>>,
}

type SchemaTuple = (u8, String, u32, Option<Vec<u8>>);

impl SchemaRecord {
    pub(super) fn read(db: &Db, keyspace: &Arc<str>) -> Result<Option<Self>> {
        let stored = read::<SchemaTuple>(db, keyspace, SCHEMA_LAYOUT)?;
        Ok(stored.map(|(_, name, version, migrated_to)| Self { name, version, migrated_to }))
    }

    /// Stores the record durably.
    pub(super) fn write(&self, db: &Db, keyspace: &str) -> Result<()> {
        let mut batch = db.batch();
        self.write_in(&mut batch, db, keyspace)?;
        Ok(batch.commit(Durability::Disk)?)
    }

    pub(super) fn write_in(&self, batch: &mut Batch, db: &Db, keyspace: &str) -> Result<()> {
        let Self { name, version, migrated_to } = self;
        let bytes = key::to_bytes::<SchemaTuple>(&(
            SCHEMA_LAYOUT,
            name.as_str(),
            *version,
            migrated_to.as_deref(),
        ));
        Ok(batch.insert(db.keyspace(SCHEMA_KEYSPACE)?, keyspace, bytes)?)
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
