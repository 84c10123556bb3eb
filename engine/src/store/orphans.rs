//! Unlinks files that no manifest needs.
//!
//! A failure to unlink is harmless: the next opening tries again.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{file_name::FileName, manifest::ManifestState, table::store::TableStore};

/// Unlinks tables, filters, manifests and log segments of a crash or of a recovery that did not
/// finish, before the next recovery writes. `next_file_id` is that of the loaded manifest.
///
/// No durable edit can name such a file. Each edit, and each new manifest, carries a `next_file_id`
/// above all files that it names; an edit that breaks this does not apply. So a durable manifest
/// that names the file would be newer, and would have been loaded. Of the segments only the
/// `aborted` ones are unlinked, which have no predecessor: others may count although no manifest
/// names them.
pub(super) fn unlink_unnamed(
    tables: &TableStore,
    names: &[String],
    next_file_id: u64,
    aborted: &[u64],
) {
    for file in newest_first(names) {
        let is_unnamed = match file {
            FileName::Table(id) | FileName::Filter(id) | FileName::Manifest(id) => {
                id >= next_file_id
            }
            FileName::Log(id) => id >= next_file_id && aborted.contains(&id),
            _ => false,
        };
        if is_unnamed {
            unlink(tables, file);
        }
    }
}

/// Returns the files of the store, newest first. So the last table of a group, which vouches for
/// the others, is unlinked before them.
fn newest_first(names: &[String]) -> Vec<FileName<'_>> {
    let mut files: Vec<_> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    files.sort_by_key(|file| Reverse(file.id()));
    files
}

/// Unlinks a file. A table is listed in all tables written until its unlink is durable.
fn unlink(tables: &TableStore, file: FileName<'_>) {
    let path = file.path(&tables.folder);
    if let FileName::Table(_) = file {
        tables.obsolete_files.unlink_now(&*tables.fs, &path);
    } else {
        let _ = tables.fs.unlink(&path);
    }
}

/// Unlinks the files of `names` that the manifest does not need.
pub(super) fn unlink_orphans(
    store: &TableStore,
    names: &[String],
    state: &ManifestState,
    manifest_id: u64,
) {
    let tables = || state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let live_tables: BTreeSet<_> = tables().map(|table| table.id).collect();
    let live_filters: BTreeSet<_> = tables().flat_map(|table| table.filter_files()).collect();
    for file in newest_first(names) {
        let is_orphan = match file {
            FileName::Log(id) => !state.logs.contains_key(&id),
            FileName::Table(id) => !live_tables.contains(&id),
            FileName::Filter(id) => !live_filters.contains(&id),
            FileName::Manifest(id) => id != manifest_id,
            FileName::Temporary(stem) => stem == "CURRENT" || stem == "STATS",
            // Of an earlier process: readers must not mistake them for present ones.
            FileName::Stats => true,
            FileName::Current | FileName::Closed | FileName::Lock => false,
        };
        if is_orphan {
            unlink(store, file);
        }
    }
}
