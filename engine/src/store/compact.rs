//! Executes compactions.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use sievedb_sstable::{Completed, TableOrigin};

use crate::{
    Error, Result,
    compaction::{
        blob_depth::must_rewrite,
        blob_garbage::files_to_rewrite,
        borders::{Borders, largest_bytes},
        choice::{Compaction, Reason},
        deeper_levels::DeeperLevels,
        filtering::Filtering,
        levels::Levels,
    },
    compaction_filter::CompactionFilter,
    filters::choose_filter,
    keyspace_options::KeyspaceOptions,
    listener::Event,
    planted::PlantedBug,
    read::tree::Tree,
    store::Store,
    store::merge_ranges::Merge,
    store::table_output::NewTables,
    store::versions::change::{ByFilter, Change, Move},
    table::TablePlace,
    table::cache_room::WorkerShare,
    table::{LiveTable, TableMeta},
    version::{Run, Version},
};

/// End of a compaction that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    /// Nothing has changed, and the next attempt may succeed: the caller interrupted it, or a read
    /// error was temporary.
    Interrupted,
    /// Nothing has changed: the disk is full, and no thread waits for the compaction.
    Aborted,
    /// Nothing has changed: an input cannot be read, and is quarantined.
    Quarantined,
}

impl Store {
    /// Executes `compaction` until `interrupts` returns `true`, or the keyspace is dropped or
    /// cleared. Its buffers are part of `share`.
    ///
    /// An input that cannot be read is quarantined, which is reported and is no error.
    ///
    /// # Errors
    ///
    /// Errors of writing and installing. The inputs are unchanged; written files are orphans.
    pub(crate) fn run_compaction(
        &self,
        tree: &Arc<Tree>,
        compaction: &Compaction,
        share: &Arc<WorkerShare>,
        interrupts: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        self.merge_and_install(tree, compaction, share, interrupts)
            .or_else(|error| self.quarantine_input(tree, compaction, error))
    }

    fn merge_and_install(
        &self,
        tree: &Arc<Tree>,
        compaction: &Compaction,
        share: &Arc<WorkerShare>,
        interrupts: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        self.renew_manifest()?;
        // Only the version: memtables that are flushed during the merge must be freed.
        let (version, cleared) = {
            let view = tree.view_seldom();
            (Arc::clone(&view.version), view.cleared)
        };
        let Some(inputs) = input_runs(&version, compaction) else {
            // The keyspace was dropped or cleared.
            return Ok(Ended::Done);
        };
        let change = if compaction.is_trivial_move {
            let (level, run) = (compaction.output_level, compaction.output_run);
            let moved = compaction.tables().map(|id| Move { id, level, run }).collect();
            Change { moved, cleared, ..Change::default() }
        } else if compaction.is_unlink {
            Change { cleared, ..self.removal_of_inputs(tree, &version, compaction) }
        } else {
            let is_gone = || tree.is_dropped() || tree.view_seldom().cleared != cleared;
            let stops_here = || interrupts() || is_gone();
            let stops_there = || self.scheduler.is_paused() || is_gone();
            let stops = (stops_here, stops_there);
            match self.merge_to_change(tree, &version, compaction, inputs, share, stops)? {
                Some(merged) => Change { cleared, ..merged },
                None => return Ok(Ended::Interrupted),
            }
        };
        self.install(tree, &change)?;
        let level = compaction.output_level;
        let bytes_written: u64 = change.added.iter().map(|table| table.written_bytes()).sum();
        let is_unread = compaction.is_trivial_move || compaction.is_unlink;
        let bytes_read = if is_unread { 0 } else { compaction.input_bytes };
        self.scheduler.count(|done| {
            if compaction.is_trivial_move {
                done.trivial_moves += 1;
            } else {
                done.compactions += 1;
            }
            if compaction.is_unlink {
                done.tables_unlinked_unread += compaction.tables().count() as u64;
            }
            done.compaction_bytes_read += bytes_read;
            done.compaction_bytes_written += bytes_written;
        });
        self.tables.cache_room.note_merge(bytes_read + bytes_written, self.table_bytes());
        let keyspace = tree.name();
        self.notify(&Event::Compacted { keyspace, level, bytes_read, bytes_written });
        self.report_failed_merge(tree);
        Ok(Ended::Done)
    }

    /// Raises the start of the history. Returns the change that removes the inputs: all their
    /// entries have expired, or `Fifo` deletes them.
    fn removal_of_inputs(&self, tree: &Tree, version: &Version, compaction: &Compaction) -> Change {
        // The compaction was chosen without readers below the new start of the history.
        let _ = self.versions.snapshots().exclude(|| self.cut_history(tree));
        let removed: Vec<_> = compaction.tables().collect();
        let mut change = Change { removed, ..Change::default() };
        if compaction.reason == Reason::Fifo {
            // Open snapshots keep the oldest tables, which their entries may be in.
            change.filtered = Some(ByFilter { newest_snapshot: None });
            let tables = version.tables().filter(|it| change.removed.contains(&it.2.meta.id));
            let newest = tables.map(|(_, _, live)| live.meta.largest_sequence).max();
            change.unlinked_to = newest.unwrap_or_default();
        }
        change
    }

    /// Merges the inputs. Returns the change that replaces them, or `None` if one of `stops`
    /// returned `true` or the compaction filter failed, which is reported.
    fn merge_to_change(
        &self,
        tree: &Tree,
        version: &Version,
        compaction: &Compaction,
        inputs: Vec<Vec<Arc<LiveTable>>>,
        share: &Arc<WorkerShare>,
        (stops_here, stops_there): (impl Fn() -> bool, impl Fn() -> bool + Sync),
    ) -> Result<Option<Change>> {
        let was_interrupted = AtomicBool::new(false);
        let stops = |is_interrupted| {
            was_interrupted.fetch_or(is_interrupted, Relaxed);
            is_interrupted || self.tables.is_closing()
        };
        let stops = (|| stops(stops_here()), || stops(stops_there()));
        let filter = tree.compaction_filter();
        let called = filter.as_ref();
        let (added, filtered) =
            match self.merge_inputs(tree, version, compaction, inputs, called, share, stops) {
                Err(Error::Closed) if was_interrupted.load(Relaxed) => return Ok(None),
                Err(error @ Error::CompactionFilterFailed { .. }) => {
                    self.fail_compaction_filter(tree, called, &error);
                    return Ok(None);
                }
                merged => merged?,
            };
        let removed = compaction.tables().collect();
        Ok(Some(Change { added, removed, filtered, ..Change::default() }))
    }

    /// Notes and reports that the compaction filter of `tree` has failed.
    fn fail_compaction_filter(
        &self,
        tree: &Tree,
        filter: Option<&Arc<dyn CompactionFilter>>,
        error: &Error,
    ) {
        if filter.is_some_and(|filter| tree.fail_compaction_filter(filter)) {
            let keyspace = tree.name();
            self.notify(&Event::CompactionFilterFailed { keyspace, error: error.clone() });
            self.scheduler.fail_requests(tree, error);
        }
    }

    /// Returns the bytes of all tables.
    fn table_bytes(&self) -> u64 {
        let of_tree = |tree: &Arc<Tree>| {
            let view = tree.view_seldom();
            view.version.tables().map(|(_, _, live)| live.meta.bytes).sum::<u64>()
        };
        self.versions.trees().values().map(of_tree).sum()
    }

    /// Merges the inputs into new tables, until one of `stops` returns `true`: the first one on
    /// this thread, the second one on others. Shows values to `filter`.
    #[expect(clippy::too_many_arguments, reason = "one caller, which has them all apart")]
    fn merge_inputs(
        &self,
        tree: &Tree,
        version: &Version,
        compaction: &Compaction,
        inputs: Vec<Vec<Arc<LiveTable>>>,
        filter: Option<&Arc<dyn CompactionFilter>>,
        share: &Arc<WorkerShare>,
        stops: (impl FnMut() -> bool, impl Fn() -> bool + Sync),
    ) -> Result<(Vec<Arc<TableMeta>>, Option<ByFilter>)> {
        let metas = version.metas();
        let is_gone = |id| compaction.tables().any(|gone| gone == id);
        let gone = || metas.iter().filter(|table| is_gone(table.id));
        let first = gone().map(|table| table.smallest_sequence).min().unwrap_or(0);
        let last = gone().map(|table| table.largest_sequence).max().unwrap_or(0);
        // After inputs and clock: a snapshot that is not listed is newer than all of them.
        let clock_ms = self.versions.clock().now_ms();
        let readers = self
            .versions
            .snapshots()
            .readers_between(first, last, clock_ms, || self.cut_history(tree));
        // After the readers: a snapshot taken in between is as new as all inputs.
        let newest_snapshot = filter.and_then(|_| self.versions.snapshots().newest());
        let ignores_snapshots = self.options.has_bug(PlantedBug::FilterVersionsOfSnapshots);
        let newest_seen = newest_snapshot.filter(|_| !ignores_snapshots);
        let kept = metas.iter().filter(|table| !is_gone(table.id));
        let levels = Levels::new(kept.map(Cow::as_ref), &[]);
        let Compaction { output_level, output_run, .. } = *compaction;
        let older = DeeperLevels::new(&levels, output_level, output_run, &compaction.bounds);
        let mut filtering = filter.map(|filter| {
            let is_bottommost = !older.may_overlap(&compaction.bounds);
            let filter = Arc::clone(filter);
            Filtering::new(filter, tree.name(), output_level, is_bottommost, newest_seen)
        });
        let runs = inputs.iter().map(|run| run.iter().map(|live| &*live.meta));
        let is_too_deep = must_rewrite(runs, tree.options().blob_depth_max);
        let place = TablePlace { level: output_level, run: output_run };
        let entries = gone().map(|table| table.entries).sum();
        let filter = choose_filter(tree, is_gone, place, entries);
        let mut replaced: Vec<_> = compaction.tables().collect();
        replaced.sort_unstable();
        let flushed = self.versions.read_manifest(|manifest| {
            manifest.state().keyspaces.get(&tree.id).map_or(0, |known| known.flushed)
        });
        let completed = Some(Completed { flushed, replaced });
        let origin = TableOrigin { completed, level: output_level, ..tree.origin() };
        let mut options = KeyspaceOptions::clone(&tree.options());
        if output_level == levels.last() {
            options = options.of_last_level();
        }
        let mut rewritten_blobs = blobs_to_rewrite(version, &options);
        // Without blob files for new values, rewritten ones would be in memory as a whole.
        if is_too_deep && options.blob_value_bytes.is_some() {
            let unreadable = unreadable_blobs(version);
            let files = gone().flat_map(|table| table.blob_file_ids());
            rewritten_blobs.extend(files.filter(|id| !unreadable.contains(id)));
        }
        let written = gone().map(|table| table.written_ms.unwrap_or(clock_ms));
        let written_ms = written.max();
        let entry_bytes = compaction.input_bytes / entries.max(1);
        let misplaces_blobs = self.options.has_bug(PlantedBug::MisplaceBlobs);
        let new = NewTables {
            options: &options,
            filter,
            entries_max: entries,
            table_entries_max: largest_bytes(options.table_bytes) / entry_bytes.max(1),
            place,
            origin,
            rewritten_blobs,
            written_ms,
            flushed_values: None,
            misplaces_blobs,
        };
        let borders =
            Borders::of_merge(&levels, output_level, &compaction.bounds, options.table_bytes);
        let operator = tree.operator().clone();
        let merge = Merge { store: self, runs: inputs, readers, older, operator, borders, new };
        let ranges = merge.split(compaction, filtering.is_some(), share);
        let written = merge.run(&ranges, filtering.as_mut(), share, stops.0, stops.1)?;
        let has_changed = filtering.is_some_and(|filtering| filtering.has_changed());
        Ok((written, has_changed.then_some(ByFilter { newest_snapshot })))
    }
}

/// Returns the blob files of a keyspace whose values compactions move.
pub(super) fn blobs_to_rewrite(version: &Version, options: &KeyspaceOptions) -> BTreeSet<u64> {
    let metas = version.tables().map(|(_, _, live)| &*live.meta);
    files_to_rewrite(metas, options.blob_garbage_ratio, &unreadable_blobs(version))
}

/// Returns the blob files of a keyspace with a value that a compaction could not read.
fn unreadable_blobs(version: &Version) -> BTreeSet<u64> {
    let files = version.tables().flat_map(|(_, _, live)| live.blobs.iter());
    files.filter(|it| it.is_unreadable()).map(|it| it.file.file_id).collect()
}

/// Returns the tables that a compaction reads, newest run first; `None` if one is gone.
fn input_runs(version: &Version, compaction: &Compaction) -> Option<Vec<Vec<Arc<LiveTable>>>> {
    let ids: BTreeSet<u64> = compaction.tables().collect();
    let is_input = |live: &&Arc<LiveTable>| ids.contains(&live.meta.id);
    let of_run = |run: &Run| run.tables().iter().filter(is_input).cloned().collect::<Vec<_>>();
    let mut runs: Vec<_> = version.runs().iter().map(of_run).collect();
    runs.retain(|run| !run.is_empty());
    (runs.iter().map(Vec::len).sum::<usize>() == ids.len()).then_some(runs)
}
