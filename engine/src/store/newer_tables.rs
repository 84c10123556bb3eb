//! Tables of a later release, found before a recovery writes.

use std::{path::Path, sync::Arc};

use sievedb_format::Corruption;
use sievedb_sstable::FoundTable;

use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    manifest::ManifestState,
    table::{files::TableFiles, store::check_kinds, table_error},
};

/// Refuses a store with a table that this release cannot read, although it is whole.
///
/// Reads footer and properties of each table. What else is wrong with a table is found when it is
/// opened.
///
/// # Errors
///
/// [`Error::Corrupt`] with [`Corruption::Unsupported`].
pub(super) fn check_tables(fs: &Arc<dyn Fs>, folder: &Path, state: &ManifestState) -> Result<()> {
    let files = TableFiles::one_by_one(Arc::clone(fs), Arc::default());
    for &id in state.keyspaces.values().flat_map(|keyspace| keyspace.tables.keys()) {
        let path = FileName::Table(id).path(folder);
        let Ok(source) = files.source_once(&path) else { continue };
        let found = FoundTable::read(&source, id).map_err(|error| table_error(&path, error));
        let checked = found.and_then(|found| {
            check_kinds(&found.properties).map_err(|source| Error::corrupt(&path, 0, source))
        });
        if let Err(error @ Error::Corrupt { source: Corruption::Unsupported { .. }, .. }) = checked
        {
            return Err(error);
        }
    }
    Ok(())
}
