//! Recovers a read-only store, without a write.
//!
//! [`take_over`](super::take_over) rewrites log and manifest, because later writes build
//! on bytes that may not be on the disk. Here no write follows, and both stay as they are.

use std::{path::Path, sync::Arc};

use crate::{
    Error, Options, Result,
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::{ManifestFile, ManifestState},
    open_files::OpenFiles,
    read::tree::Tree,
    store::log_state::{begun_history, corrupt_state},
    store::open_tables::open_tables,
    store::recovery::Recovered,
    store::take_over::{Beginning, Stopwatch},
    store::versions::keyspaces::KeyspaceTrees,
    table::store::TableStore,
    version::Version,
};

/// Opens the recovered tables. The file system of the options refuses writes.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Corrupt`] if a table is damaged where it must be whole;
/// [`Error::NoStore`].
pub(super) fn take_in(
    options: &Options,
    folder: &Path,
    recovered: Recovered,
    open_files: Arc<OpenFiles>,
) -> Result<Beginning> {
    let Recovered { kept, mut state, mut edit, memtables, last_sequence, .. } = recovered;
    let Recovered { next_file_id, segments: continued, value_files, room, mut opening, .. } =
        recovered;
    let loaded = kept.ok_or_else(|| Error::NoStore { path: folder.to_owned() })?;
    let mut stopwatch = Stopwatch::start(&*options.clock);
    let (store_id, hash_seed) = (state.store_id, state.hash_seed);
    let tables =
        TableStore::new(options, folder, store_id, hash_seed, next_file_id, room, open_files);
    edit.history_from.extend(begun_history(options, &state, &edit, last_sequence));
    state.apply(&edit).map_err(|source| corrupt_state(folder, source))?;
    let opened = open_tables(options, &tables, folder, &state)?;
    opening.tables = stopwatch.lap();
    opening.threads = opened.threads;
    let (mut trees, filters) = opened.into_trees(options, &tables, last_sequence);
    opening.filters = stopwatch.lap();
    trees.set_replayed(&memtables);
    if trees.get(DEFAULT_KEYSPACE).is_none() {
        if options.follow {
            // The writer has not created the default keyspace yet.
            return Err(Error::NoStore { path: folder.to_owned() });
        }
        trees.insert(missing_default(options, &state, &tables, &trees));
    }
    let manifest = ManifestFile::reopen(Arc::clone(&options.fs), folder.to_owned(), loaded)?;
    Ok(Beginning {
        manifest,
        tables,
        trees,
        last_sequence,
        continued,
        value_files,
        filters,
        opening,
    })
}

/// Returns the empty default keyspace of a store whose creation was interrupted before the log had
/// it.
fn missing_default(
    options: &Options,
    state: &ManifestState,
    tables: &TableStore,
    trees: &KeyspaceTrees,
) -> Arc<Tree> {
    Arc::new(Tree::new(
        state.next_keyspace_id,
        DEFAULT_KEYSPACE.to_owned(),
        options.new_keyspace(),
        Version::default(),
        Arc::clone(&tables.memory),
        Arc::clone(trees.changed()),
    ))
}
