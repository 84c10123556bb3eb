//! Detects a manifest whose last edits are lost, although its own bytes do not show it.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use sievedb_format::Corruption;

use super::lost::lost_as_none;
use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    manifest::load::Loaded,
    table::files::TableFiles,
    wal::{chain::Segments, segment::segment_ids},
};

/// Rejects a manifest without its last edits. Such a manifest names tables that were replaced and
/// ignores their replacements.
///
/// # Errors
///
/// [`Error::Corrupt`] if a log segment saw more of the manifest, or if a table that it does not
/// name replaced a missing one that it names. [`Error::Io`] unrelated to the file.
pub(super) fn check_not_stale(
    fs: &Arc<dyn Fs>,
    folder: &Path,
    names: &[String],
    loaded: &Loaded,
) -> Result<()> {
    let logs = segment_ids(names);
    let segments = Segments::unnamed(fs, folder, loaded.state.store_id, &logs);
    for &id in &logs {
        let seen = lost_as_none(segments.manifest_of(id))?.flatten();
        // A segment of an interrupted recovery names a manifest that was never current.
        let seen = seen.filter(|seen| seen.file_id == loaded.end.file_id);
        loaded.check_vouched(folder, seen.unwrap_or_default())?;
    }

    let on_disk: BTreeSet<u64> = names.iter().filter_map(|name| table_id(name)).collect();
    let tables = || loaded.state.keyspaces.values().flat_map(|known| known.tables.keys().copied());
    let missing: BTreeSet<u64> = tables().filter(|id| !on_disk.contains(id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let named: BTreeSet<u64> = tables().collect();
    let files = TableFiles::one_by_one(Arc::clone(fs), Arc::default());
    for &id in on_disk.difference(&named) {
        let found = lost_as_none(super::rebuild::read(&files, folder, id))?;
        let Some(found) = found else { continue };
        let is_ours = found.store_id() == loaded.state.store_id;
        if is_ours && found.replaced().iter().any(|id| missing.contains(id)) {
            let path = FileName::Manifest(loaded.end.file_id).path(folder);
            let reason = Corruption::Missing { what: "edit that replaced a table" };
            return Err(Error::corrupt(path, loaded.end.offset, reason));
        }
    }
    Ok(())
}

fn table_id(name: &str) -> Option<u64> {
    match FileName::parse(name) {
        Some(FileName::Table(id)) => Some(id),
        _ => None,
    }
}
