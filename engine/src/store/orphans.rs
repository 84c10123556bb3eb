//! Unlinks files that no manifest needs.
//!
//! A failure to unlink is harmless: the next opening tries again.

use std::collections::BTreeSet;

use crate::{Result, file_name::FileName, manifest::ManifestState, table::store::TableStore};

/// Unlinks tables, filters, manifests and log segments of a crash or of a recovery that did not
/// finish, before the next recovery writes. `next_file_id` is that of the loaded manifest.
///
/// No durable edit can name such a file. Each edit, and each new manifest, carries a `next_file_id`
/// above all files that it names; an edit without such a `next_file_id` is rejected. So a durable
/// manifest that names the file would be newer, and would have been loaded. Of the segments only
/// the `aborted` ones are unlinked, which have no predecessor: others may count although no
/// manifest names them. Blob files with values of the replayed log, the `value_files`, stay until
/// the log was rewritten.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io) if the directory cannot be synced.
pub(super) fn unlink_unnamed(
    tables: &TableStore,
    names: &[String],
    next_file_id: u64,
    (aborted, value_files): (&[u64], &BTreeSet<u64>),
) -> Result<()> {
    for file in names.iter().filter_map(|name| FileName::parse(name)) {
        let is_unnamed = match file {
            FileName::Table(id) | FileName::Filter(id) | FileName::Manifest(id) => {
                id >= next_file_id
            }
            FileName::Blobs(id) => id >= next_file_id && !value_files.contains(&id),
            FileName::Log(id) => id >= next_file_id && aborted.contains(&id),
            _ => false,
        };
        if is_unnamed {
            push(tables, file);
        }
    }
    tables.unlink_obsolete(usize::MAX)
}

/// Notes that the file is obsolete, unless it was unlinked since the directory was listed.
fn push(tables: &TableStore, file: FileName<'_>) {
    let path = file.path(&tables.folder);
    if tables.fs.exists(&path).unwrap_or(true) {
        tables.obsolete_files.push(path);
    }
}

/// Unlinks the files of `names` that the manifest does not need.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io) if the directory cannot be synced.
pub(super) fn unlink_orphans(
    store: &TableStore,
    names: &[String],
    state: &ManifestState,
    manifest_id: u64,
) -> Result<()> {
    let tables = || state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let live_tables: BTreeSet<_> = tables().map(|table| table.id).collect();
    let live_filters: BTreeSet<_> = tables().flat_map(|table| table.filter_files()).collect();
    let live_blobs: BTreeSet<_> = tables().flat_map(|table| table.blob_file_ids()).collect();
    for file in names.iter().filter_map(|name| FileName::parse(name)) {
        let is_orphan = match file {
            FileName::Log(id) => !state.logs.contains_key(&id) && !state.retains(id),
            FileName::Table(id) => !live_tables.contains(&id),
            FileName::Filter(id) => !live_filters.contains(&id),
            FileName::Blobs(id) => !live_blobs.contains(&id),
            FileName::Manifest(id) => id != manifest_id,
            FileName::Temporary(stem) => {
                // A crash of a reencryption leaves the unfinished copy of a numbered file.
                let is_copy = FileName::parse(stem).is_some_and(|file| file.id().is_some());
                is_copy || stem == "CURRENT" || stem == "STATS"
            }
            // Of an earlier process: readers must not mistake them for present ones.
            FileName::Stats => true,
            FileName::Current | FileName::Closed | FileName::Lock => false,
        };
        if is_orphan {
            push(store, file);
        }
    }
    store.unlink_obsolete(usize::MAX)
}
