//! Opens all tables of the manifest, on several threads if they are many, and loads their filters.
//!
//! The opening reports problems of tables, and no lookup has to open one. See `sieve bench open`
//! for the cost.

use std::{num::NonZero, path::Path, sync::Arc, thread};

use sievedb_format::SequenceNumber;

use crate::{
    KeyspaceOptions, Options, Result,
    filters::Filters,
    history_length::HistoryStart,
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::ManifestState,
    on_threads::on_threads,
    read::tree::Tree,
    store::log_state::{corrupt_state, present_options},
    store::versions::keyspaces::KeyspaceTrees,
    table::{LiveTable, TableMeta, store::TableStore},
    version::Version,
};

/// Most threads that open tables. They mostly wait for the device.
const THREADS_MAX: usize = 16;
/// Threads for each processor. More do not help if all is in the page cache.
const THREADS_PER_PROCESSOR: usize = 4;
/// Tables for each thread. A thread starts in the time of two opens from the page cache.
const TABLES_PER_THREAD: usize = 2;

/// Keyspaces with open tables, without their filters.
#[derive(Debug)]
pub(super) struct OpenedTables {
    keyspaces: Vec<OpenedKeyspace>,
    /// Threads that opened the tables, including that of the caller.
    pub(super) threads: usize,
}

#[derive(Debug)]
struct OpenedKeyspace {
    id: u64,
    name: String,
    /// Shared with the keyspace before, if the options are equal.
    options: Arc<KeyspaceOptions>,
    history_from: HistoryStart,
    renamed: SequenceNumber,
    /// Each with its level and run.
    tables: Vec<(u8, u64, Arc<LiveTable>)>,
}

/// Opens all tables of `state`. All threads that it starts have ended at return; without worker
/// threads it starts none.
///
/// # Errors
///
/// As [`TableStore::open`], of the first table in the order of the manifest that failed;
/// [`Error::Corrupt`](crate::Error::Corrupt) if the options of a keyspace are damaged.
pub(super) fn open_tables(
    options: &Options,
    tables: &TableStore,
    folder: &Path,
    state: &ManifestState,
) -> Result<OpenedTables> {
    let mut keyspaces: Vec<OpenedKeyspace> = Vec::with_capacity(state.keyspaces.len());
    let mut jobs = Vec::new();
    for (&id, keyspace) in &state.keyspaces {
        let name = keyspace.name.clone();
        let keyspace_options = present_options(options, &name, &keyspace.options);
        let keyspace_options = keyspace_options.map_err(|source| corrupt_state(folder, source))?;
        // The default keyspace may have an operator or a filter of its own with an equal name.
        let before = keyspaces.last().filter(|before| before.name != DEFAULT_KEYSPACE);
        let keyspace_options = match before.filter(|before| *before.options == keyspace_options) {
            Some(before) => Arc::clone(&before.options),
            None => Arc::new(keyspace_options),
        };
        jobs.extend(keyspace.tables.values().map(|meta| (keyspaces.len(), meta)));
        keyspaces.push(OpenedKeyspace {
            id,
            name,
            options: keyspace_options,
            history_from: keyspace.history_from,
            renamed: keyspace.renamed,
            tables: Vec::with_capacity(keyspace.tables.len()),
        });
    }
    let threads = thread_count(options, jobs.len());
    let open = |&(keyspace, meta): &(usize, &Arc<TableMeta>)| {
        let OpenedKeyspace { name, options, .. } = &keyspaces[keyspace];
        tables.open(options, Arc::clone(meta)).map_err(|error| error.of_keyspace(name))
    };
    let opened = on_threads(threads, &jobs, open)?;
    tables.fit_cache();
    for ((keyspace, meta), live) in jobs.into_iter().zip(opened) {
        let keyspace = &mut keyspaces[keyspace];
        // On this thread: listeners get one event at a time.
        live.report(&keyspace.name, options.listener.as_deref());
        keyspace.tables.push((meta.level, meta.run, Arc::new(live)));
    }
    Ok(OpenedTables { keyspaces, threads })
}

/// Returns the number of threads that open `tables` tables.
fn thread_count(options: &Options, tables: usize) -> usize {
    if options.worker_threads == 0 {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let useful = (processors * THREADS_PER_PROCESSOR).min(THREADS_MAX);
    (tables / TABLES_PER_THREAD).clamp(1, useful)
}

impl OpenedTables {
    /// Loads the filters within their budget. Returns the keyspaces, and the prediction of the
    /// filter plan. `last` is the last sequence number that was recovered.
    pub(super) fn into_trees(
        self,
        options: &Options,
        tables: &TableStore,
        last: SequenceNumber,
    ) -> (KeyspaceTrees, Filters) {
        let filters = self
            .keyspaces
            .iter()
            .map(|it| (it.id, it.name.as_str(), it.options.filter_policy, it.tables.as_slice()));
        let listener = options.listener.as_deref();
        let filters = Filters::load(tables, listener, filters, self.threads);
        let mut trees = KeyspaceTrees::default();
        for it in self.keyspaces {
            let memory = Arc::clone(&tables.memory);
            let changed = Arc::clone(trees.changed());
            let version = Version::new(it.tables);
            let tree = Tree::new(it.id, it.name, it.options, version, memory, changed);
            // A power cut may have taken back the writes before the start of a history: what was
            // recovered is whole.
            let sequence = it.history_from.sequence.min(last);
            tree.raise_history_from(HistoryStart { sequence, ..it.history_from });
            tree.note_renamed(it.renamed);
            trees.insert(Arc::new(tree));
        }
        (trees, filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tables_start_no_thread() {
        let options = Options::new();
        assert_eq!(thread_count(&options, 0), 1);
        assert_eq!(thread_count(&options, TABLES_PER_THREAD), 1);
        assert!(thread_count(&options, 1000) > 1);
        assert!(thread_count(&options, 1_000_000) <= THREADS_MAX);
        assert_eq!(thread_count(&options.worker_threads(0), 1000), 1);
    }
}
