//! Renames typed keyspaces with their stored schemas.
//!
//! The record of the new name is durable before the rename, that of the old name is removed after
//! it. A record without a keyspace has no effect: an empty keyspace accepts any schema.

use std::sync::Arc;

use sievedb::{Bytes, Db, Durability};

use super::{
    SCHEMA_KEYSPACE, opening,
    record::{IndexRecord, Stored},
};
use crate::error::{Error, Result};

/// Renames the keyspace `old` to `new`, with its schema and the state of its indexes.
///
/// Use it for typed keyspaces and for indexes, in place of [`Db::rename_keyspace`], which leaves the
/// schema at the old name. Handles remain valid. After a crash, the keyspace has one of the two
/// names and its schema. Call it again with the same names to complete it: indexes cannot be opened
/// before.
///
/// ```
/// use sievedb_typed::{Error, Schema, TypedKeyspace, rename_keyspace, sievedb::Db};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let users = TypedKeyspace::<u64, String>::open(&db, "users.new", Schema::new("user", 1))?;
/// users.insert(7, "anna".to_owned())?;
/// rename_keyspace(&db, "users.new", "users")?;
/// let other = TypedKeyspace::<u64, u32>::open(&db, "users", Schema::new("count", 1));
/// assert!(matches!(other, Err(Error::SchemaMismatch { .. })));
/// # Ok::<(), sievedb_typed::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::ReservedName`]; [`Error::SchemaRecord`]; [`Error::Engine`] as of
/// [`Db::rename_keyspace`].
pub fn rename_keyspace(db: &Db, old: &str, new: &str) -> Result<()> {
    if let Some(reserved) = [old, new].into_iter().find(|name| *name == SCHEMA_KEYSPACE) {
        return Err(Error::ReservedName { keyspace: reserved.into() });
    }
    let _opening = opening();
    let record = |name: &str| -> Result<Option<Bytes>> {
        match db.keyspace_exists(SCHEMA_KEYSPACE) {
            true => Ok(db.open_keyspace(SCHEMA_KEYSPACE)?.get(name)?),
            false => Ok(None),
        }
    };
    let of_old = record(old)?;
    let is_renamed = !db.keyspace_exists(old)
        && db.keyspace_exists(new)
        && of_old.is_some()
        && of_old == record(new)?;
    if !is_renamed {
        if db.keyspace_exists(old) && !db.keyspace_exists(new) {
            let mut batch = db.batch();
            match &of_old {
                Some(bytes) => batch.insert(db.keyspace(SCHEMA_KEYSPACE)?, new, bytes)?,
                None if record(new)?.is_some() => {
                    batch.remove(db.keyspace(SCHEMA_KEYSPACE)?, new)?;
                }
                None => {}
            }
            batch.commit(Durability::Disk)?;
        }
        db.rename_keyspace(old, new)?;
    }
    if of_old.is_none() {
        return Ok(());
    }
    let records = db.keyspace(SCHEMA_KEYSPACE)?;
    let mut batch = db.batch();
    batch.remove(&records, old)?;
    for name in records.iter().keys() {
        let name: Arc<str> = String::from_utf8_lossy(&name?).into();
        // A record of another layout is no index.
        let Ok(Some(index)) = IndexRecord::read(db, &name) else { continue };
        if index.data == old {
            IndexRecord { data: new.to_owned(), ..index }.write_in(&mut batch, db, &name)?;
        }
    }
    Ok(batch.commit(Durability::Disk)?)
}
