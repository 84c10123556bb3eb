//! The copy and its verification.

use std::path::Path;

use sievedb::{Durability, Options};
use sievedb_migrate::{
    export::OutputDirectory,
    store::{Copied, KeyspaceWriter, digest},
};

use crate::{
    error::{Error, Result},
    source::Source,
};

/// Copies all entries of `source` into a new store `path`, a missing or empty directory. Then reads
/// the store, and compares the number of entries and the digest of each keyspace.
///
/// The store is `NAME.partial` until it is durable and verified. An error deletes it, unless only
/// the rename or its sync failed: the store is complete then.
///
/// # Errors
///
/// * [`Error::Output`]: `path` is not empty, or an interrupted call has left an unfinished store.
///   Delete the unfinished store, then migrate again. Or the complete store cannot be renamed, or
///   its new name cannot be synced.
/// * [`Error::Source`], [`Error::Unsupported`]: the source cannot be read.
/// * [`Error::Store`]: the new store cannot be written, or refuses an entry.
/// * [`Error::Differs`]: a keyspace differs from the source.
pub fn migrate(source: &dyn Source, path: &Path) -> Result<Vec<Copied>> {
    let names = source.keyspaces()?;
    let output = OutputDirectory::create(path)?;
    let db = Options::new().open(output.partial())?;
    let mut copied = Vec::new();
    for name in &names {
        let mut writer = KeyspaceWriter::create(&db, name)?;
        source.entries(name, &mut |key, value| Ok(writer.add(key, value)?))?;
        copied.push(writer.finish()?);
    }
    db.flush()?;
    db.persist(Durability::Disk)?;
    drop(db);
    verify(output.partial(), &copied)?;
    output.finish()?;
    Ok(copied)
}

fn verify(path: &Path, copied: &[Copied]) -> Result<()> {
    let db = Options::new().create_if_missing(false).read_only(true).open(path)?;
    for Copied { name, digest: want, .. } in copied {
        if digest(&db.open_keyspace(name)?)? != *want {
            return Err(Error::Differs { name: name.clone() });
        }
    }
    Ok(())
}
