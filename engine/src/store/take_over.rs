//! Takes over a recovered store: opens its tables, and makes the replayed entries durable again.
//!
//! 1. Open the tables. Nothing is written or unlinked before: a table may require a later release.
//! 2. Unlink files that the manifest never named.
//! 3. Rewrite the log as one durable segment. A log that is known to be durable is continued
//!    instead, if it has at most 64 segments and no values in blob files.
//! 4. Persist the manifest, which names the segments that exist by then.
//! 5. Unlink the files that it no longer names.
//!
//! After an error all that the old manifest names is still there.

use std::{collections::BTreeSet, mem, path::Path, sync::Arc, time::Duration};

use sievedb_format::SequenceNumber;

#[cfg(doc)]
use crate::Error;
use crate::{
    Options, Result,
    clock::Clock,
    filters::Filters,
    log::Position,
    manifest::{ManifestFile, ManifestState, VersionEdit},
    open_files::OpenFiles,
    planted::PlantedBug,
    stats::OpeningStats,
    store::log_state::{begun_history, changed_options, corrupt_state},
    store::open_tables::open_tables,
    store::orphans::{unlink_orphans, unlink_unnamed},
    store::recovery::Recovered,
    store::retained_logs::{changed_retention, keeps_changes},
    store::versions::keyspaces::KeyspaceTrees,
    store::writer::rewrite_log::{ReplayedLog, unlink_segment},
    table::store::TableStore,
    wal::replay::ReplayedSegment,
};

/// A log of more segments is rewritten as one at the opening: each opening may add a segment, and
/// each segment takes time to open.
const CONTINUED_SEGMENTS_MAX: usize = 64;

/// A recovered store with open tables.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) manifest: ManifestFile,
    pub(crate) tables: TableStore,
    pub(crate) trees: KeyspaceTrees,
    pub(crate) last_sequence: SequenceNumber,
    /// Durable segments that the log continues, oldest first. The replayed ones of a read-only
    /// store.
    pub(crate) continued: Vec<ReplayedSegment>,
    /// Blob files with values of these segments, of a read-only store.
    pub(crate) value_files: BTreeSet<u64>,
    pub(crate) filters: Filters,
    /// Durations, without that of the log.
    pub(crate) opening: OpeningStats,
}

/// Opens the tables and makes what was recovered durable again. The caller holds the lock.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Corrupt`] if a table is damaged where it must be whole, or if it
/// requires a later release: then nothing was written or unlinked.
pub(crate) fn take_over(
    options: &Options,
    folder: &Path,
    recovered: Recovered,
    open_files: Arc<OpenFiles>,
) -> Result<Beginning> {
    let Recovered { kept, mut state, mut edit, memtables, last_sequence, .. } = recovered;
    let Recovered { next_file_id, names, segments, batches, is_durable, aborted, .. } = recovered;
    let Recovered { value_files, room, mut opening, .. } = recovered;
    let mut stopwatch = Stopwatch::start(&*options.clock);
    let (fs, store_id, hash_seed) = (&*options.fs, state.store_id, state.hash_seed);
    let tables =
        TableStore::new(options, folder, store_id, hash_seed, next_file_id, room, open_files);
    change_by_options(&mut edit, options, &state, last_sequence);
    let mut replayed = state.clone();
    replayed.apply(&edit).map_err(|source| corrupt_state(folder, source))?;
    let opened = open_tables(options, &tables, folder, &replayed)?;
    opening.tables = stopwatch.lap();
    opening.threads = opened.threads;

    unlink_unnamed(&tables, &names, state.next_file_id, (&aborted, &value_files))?;

    let known_end = kept.as_ref().map(|loaded| loaded.end);
    let manifest = known_end
        .unwrap_or_else(|| Position { file_id: tables.new_file_id(), ..Position::default() });
    // The rewritten log has the values: no file is kept for a log of an earlier opening.
    let continues =
        is_durable && segments.len() <= CONTINUED_SEGMENTS_MAX && value_files.is_empty();
    let keeps_all = keeps_changes(&state, edit.retention_changed.as_ref());
    let is_needed = !memtables.is_empty() || (keeps_all && batches > 0);
    let rewritten = if continues || !is_needed {
        None
    } else {
        let (fs, compresses) = (&options.fs, options.log_compression);
        let (state, segments, memtables) = (&state, &*segments, &memtables);
        let log = ReplayedLog { fs, folder, state, segments, memtables, keeps_all, compresses };
        Some(log.rewrite(tables.new_file_id(), manifest)?)
    };
    let unlink_rewritten = || {
        rewritten.iter().for_each(|(segment, _)| unlink_segment(fs, folder, segment.id));
    };
    opening.replayed = stopwatch.lap();

    if !continues {
        // The old log is dropped.
        edit.last_sequence = Some(last_sequence).filter(|&last| last > state.last_sequence);
    }
    let is_changed = edit != VersionEdit::default()
        || (!continues && !state.logs.is_empty())
        || tables.next_file_id() > state.next_file_id;
    if is_changed {
        if !continues {
            replace_log(&mut edit, rewritten, &tables);
        }
        edit.next_file_id = Some(tables.next_file_id());
    }
    let applied = state.apply(&edit).map_err(|source| corrupt_state(folder, source));
    applied.inspect_err(|_| unlink_rewritten())?;
    if options.has_bug(PlantedBug::DeleteOrphansEarly) {
        unlink_orphans(&tables, &names, &state, manifest.file_id)?;
    }
    let (trees, filters) = opened.into_trees(options, &tables, last_sequence);
    trees.set_replayed(&memtables);
    opening.filters = stopwatch.lap();
    let (shared_fs, folder_path) = (Arc::clone(&options.fs), folder.to_owned());
    let manifest = match kept {
        None => {
            let created = ManifestFile::create(shared_fs, folder_path, manifest.file_id, state);
            created.inspect_err(|error| {
                if error.is_retryable() {
                    // The old manifest is still the present one.
                    unlink_rewritten();
                }
            })?
        }
        Some(loaded) => {
            let mut manifest = ManifestFile::reopen(shared_fs, folder_path, loaded)?;
            if is_changed {
                let _ = manifest.append(&edit, || tables.new_file_id())?;
            }
            manifest
        }
    };
    opening.manifest = stopwatch.lap();

    unlink_orphans(&tables, &names, manifest.state(), manifest.position().file_id)?;

    let rewritten = rewritten.map(|(segment, _)| segment);
    let continued = if continues { segments } else { rewritten.into_iter().collect() };
    let value_files = BTreeSet::new();
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

/// Adds to `edit` what the options of the opening change: the default keyspace, and the retention.
fn change_by_options(
    edit: &mut VersionEdit,
    options: &Options,
    state: &ManifestState,
    last_sequence: SequenceNumber,
) {
    if let Some(begun) = begun_history(options, state, edit, last_sequence) {
        // The clock may return to the last one stored: the history would begin in the future.
        edit.store_clock_ms = Some(begun.1.clock_ms);
        edit.history_from.push(begun);
    }
    edit.keyspaces_changed.extend(changed_options(options, state, edit));
    edit.retention_changed = changed_retention(options, state, last_sequence);
}

/// Drops the replayed log in `edit`, and names the segment that replaces it, with its secret.
fn replace_log(
    edit: &mut VersionEdit,
    rewritten: Option<(ReplayedSegment, u64)>,
    tables: &TableStore,
) {
    if let Some((ReplayedSegment { id, bytes, .. }, secret)) = rewritten {
        edit.logs_created.push((id, secret));
        edit.log_mark = Some(Position { file_id: id, offset: bytes });
    }
    // Drops all older segments. Later ones have higher ids.
    let floor = rewritten.map(|(segment, _)| segment.id);
    edit.log_floor = Some(floor.unwrap_or_else(|| tables.new_file_id()));
}

/// Measures the duration of each part.
pub(super) struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    last: Duration,
}

impl<'a> Stopwatch<'a> {
    pub(super) fn start(clock: &'a dyn Clock) -> Self {
        Self { clock, last: clock.now() }
    }

    /// Returns the time since the start, or since the last call.
    pub(super) fn lap(&mut self) -> Duration {
        let now = self.clock.now();
        now.saturating_sub(mem::replace(&mut self.last, now))
    }
}
