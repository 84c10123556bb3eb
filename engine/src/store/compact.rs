//! Chooses compactions from the present version, and executes them.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use sievedb_sstable::{Completed, TableOrigin};

use crate::{
    Error, HistoryLength, Result,
    compaction::{
        blob_depth::must_rewrite,
        blob_garbage::files_to_rewrite,
        borders::{Borders, largest_bytes},
        choice::{Compaction, Reason},
        crowded::Price,
        deeper_levels::DeeperLevels,
        expired::ExpiryClock,
        filtering::Filtering,
        levels::{LAST_LEVEL, LevelOptions, Levels},
        picker::{Picker, RangeChoice},
        tombstones::{Overwritten, OverwrittenEntries, Skipped},
    },
    compaction_filter::CompactionFilter,
    compaction_style::CompactionStyle,
    filters::choose_filter,
    history_length::HistoryStart,
    iter::bounds::KeyBounds,
    keyspace_options::KeyspaceOptions,
    listener::Event,
    planted::PlantedBug,
    read::tree::Tree,
    resolve::ReadPoint,
    store::Store,
    store::merge_ranges::{Merge, RUNS_IN_SHARE},
    store::table_output::NewTables,
    store::versions::change::{ByFilter, Change, Move},
    store::writer::throttle::{Pressure, pressure},
    table::TablePlace,
    table::cache_room::WorkerShare,
    table::read_buffers::RunBuffers,
    table::{LiveTable, TableMeta},
    version::{Run, Version},
};

/// The next compaction of a keyspace.
#[derive(Debug)]
pub(crate) enum Chosen {
    Compaction(Compaction),
    /// None, until a running compaction ends, the oldest snapshot reaches this point, or it is
    /// this time by the clock of the options.
    Nothing {
        awaited_snapshot: Option<ReadPoint>,
        awaited_time: Option<Duration>,
    },
    /// The requested range is compact.
    RangeIsDone,
    /// The requested range cannot be compacted: a table is quarantined because of this error.
    RangeFails(Error),
}

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
    /// Chooses the next compaction of `tree` beside those `running` in it. A `requested` range
    /// comes first. The second field excludes level-0 runs with this number or a larger one.
    pub(crate) fn choose_compaction(
        &self,
        tree: &Tree,
        running: &[Compaction],
        requested: Option<(&KeyBounds, u64)>,
    ) -> Chosen {
        let id_limit = requested.map(|(_, id_limit)| id_limit);
        self.with_picker(tree, running, id_limit, |picker| {
            let clock = self.versions.clock();
            let nothing = || Chosen::Nothing {
                awaited_snapshot: picker.awaited_snapshot(),
                awaited_time: picker.awaited_clock_ms().and_then(|ms| clock.time_of(ms)),
            };
            let Some((range, _)) = requested else {
                let style = tree.options().compaction_style;
                let rewrites = !matches!(style, CompactionStyle::Fifo(_));
                if rewrites && !self.may_rewrite(tree) {
                    return nothing();
                }
                let picked = picker.pick().map(|chosen| self.plant_bug_in(picker, chosen));
                return picked.map_or_else(nothing, Chosen::Compaction);
            };
            match picker.pick_range(range) {
                RangeChoice::Compact(compaction) => Chosen::Compaction(compaction),
                RangeChoice::Wait => nothing(),
                RangeChoice::Done => Chosen::RangeIsDone,
                RangeChoice::Quarantined(id) => {
                    let version = tree.kept_view().version;
                    let live = version.tables().find(|(_, _, live)| live.meta.id == id);
                    let quarantined = live.and_then(|(_, _, live)| live.quarantine.present());
                    // The keyspace may have been dropped, or the table verified, meanwhile.
                    quarantined.map_or_else(nothing, |it| Chosen::RangeFails(it.error.clone()))
                }
            }
        })
    }

    /// Returns whether compactions of `tree` that no caller requested may rewrite tables. Without
    /// background rewrites, only those for which writes wait.
    pub(in crate::store) fn may_rewrite(&self, tree: &Tree) -> bool {
        self.options.background_rewrites
            || pressure(self.debt(tree)) != Pressure::Delay(Duration::ZERO)
    }

    fn plant_bug_in(&self, picker: &Picker<'_>, chosen: Compaction) -> Compaction {
        let has_bug = |bug| self.options.has_bug(bug);
        match chosen.reason {
            Reason::SizeTiered if has_bug(PlantedBug::MergeApartRuns) => {
                picker.without_middle_run(chosen)
            }
            Reason::Fifo if has_bug(PlantedBug::UnlinkNewestTables) => {
                picker.newest_part_instead(chosen)
            }
            _ => chosen,
        }
    }

    /// Chooses a compaction of `tree` for an idle store with nothing in flight; `for_long` if it
    /// has been idle for long.
    pub(crate) fn choose_idle(&self, tree: &Tree, for_long: bool) -> Option<Compaction> {
        self.with_picker(tree, &[], None, |picker| {
            let cheap = picker.pick_idle();
            cheap.or_else(|| for_long.then(|| picker.pick_long_idle())?)
        })
    }

    /// Chooses the cheapest merge of `tree` that makes its tables fewer, beside those `running` in
    /// it.
    pub(crate) fn choose_crowded(
        &self,
        tree: &Tree,
        running: &[Compaction],
        rewrite_max: u64,
    ) -> Option<(Price, Compaction)> {
        self.with_picker(tree, running, None, |picker| picker.pick_crowded(rewrite_max))
    }

    /// Calls `pick` with a picker for the present version of `tree` and the compactions `running`
    /// in it. With `id_limit` the picker sees only runs of level 0 with smaller numbers.
    pub(in crate::store) fn with_picker<T>(
        &self,
        tree: &Tree,
        running: &[Compaction],
        id_limit: Option<u64>,
        pick: impl FnOnce(&Picker<'_>) -> T,
    ) -> T {
        let view = tree.view_seldom();
        let mut metas = view.version.metas();
        if let Some(id_limit) = id_limit {
            // By run, not by table id: a run that was merged within level 0 has newer tables than
            // runs above it.
            metas.retain(|table| table.level > 0 || table.run < id_limit);
        }
        let now = self.options.clock.now();
        let quarantined =
            view.version.tables().filter(|(_, _, live)| live.quarantine.is_in_force(now));
        let quarantined = quarantined.map(|(_, _, live)| live.meta.id);
        let levels = Levels::new(metas.iter().map(Cow::as_ref), running).quarantine(quarantined);
        if cfg!(debug_assertions) {
            levels.check_invariants();
        }
        let mut options = LevelOptions::of(&tree.options());
        let buffers = RunBuffers::of_tables(view.version.tables().map(|(_, _, live)| &**live));
        let bytes_max = self.tables.writing_bytes_max() / RUNS_IN_SHARE;
        options.limit_merges(bytes_max, buffers.bytes());
        if tree.set_compaction_debt(levels.debt(&options)) {
            // A stopped writer may go on, and no job may follow that notifies it.
            self.scheduler.notify_waiting();
        }
        let snapshots = self.versions.snapshots();
        let now_ms = self.versions.clock().now_ms();
        let snapshot = snapshots.oldest();
        let history = self.history_start(tree);
        let is_history =
            |start: &HistoryStart| snapshot.is_none_or(|it| start.sequence < it.sequence);
        let history_ms = history.as_ref().filter(|start| is_history(start));
        let history_ms = history_ms.and_then(|_| tree.history_length()).map(HistoryLength::ms);
        let of_history = history.map(|start| start.sequence);
        let of_snapshot = snapshot.map(|it| it.sequence);
        let oldest_snapshot = of_snapshot.into_iter().chain(of_history).min();
        let of_history = history.map(|start| start.clock_ms);
        let clocks_ms = snapshot.map(ReadPoint::clock_ms).into_iter().chain(of_history);
        let for_all_ms = clocks_ms.fold(now_ms, u64::min);
        let delays = |it: &ReadPoint| history_ms.is_none() || it.clock_ms() == for_all_ms;
        let clock = ExpiryClock { for_all_ms, now_ms, snapshot: snapshot.filter(delays) };
        let skipped = view.version.tables().map(|(_, _, live)| (live.meta.id, live.skipped()));
        let skipped: Skipped = skipped.filter(|&(_, tombstones)| tombstones > 0).collect();
        let overwritten = view.version.tables().map(|(_, _, live)| {
            let properties = live.table.properties();
            let has_operands = properties.merge_operands() > 0;
            let entries = properties.overwritten();
            (live.meta.id, OverwrittenEntries { entries, has_operands })
        });
        let overwritten: Overwritten = overwritten.filter(|(_, it)| it.entries > 0).collect();
        let otherwise_compressed = otherwise_compressed(&view.version, &tree.options());
        let rewritten = blobs_to_rewrite(&view.version, &tree.options());
        let refers = |live: &LiveTable| live.meta.blob_file_ids().any(|id| rewritten.contains(&id));
        let with_blob_garbage = view.version.tables().filter(|(_, _, live)| refers(live));
        let with_blob_garbage = with_blob_garbage.map(|(_, _, live)| live.meta.id).collect();
        pick(&Picker {
            levels: &levels,
            options: &options,
            oldest_snapshot,
            clock,
            history_ms,
            skipped: &skipped,
            covered: view.version.covered(),
            overwritten: &overwritten,
            otherwise_compressed: &otherwise_compressed,
            rewrites_below: id_limit.unwrap_or(0),
            has_filter: tree.compaction_filter().is_some(),
            with_blob_garbage: &with_blob_garbage,
        })
    }

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
        let level = compaction.output_level;
        let mut bytes_written = 0;
        let change = if compaction.is_trivial_move {
            let to = |id| Move { id, level, run: compaction.output_run };
            Change { moved: compaction.tables().map(to).collect(), cleared, ..Change::default() }
        } else if compaction.is_unlink {
            // The choice was made for the readers from there on.
            let _ = self.versions.snapshots().exclude(|| self.cut_history(tree));
            let removed: Vec<_> = compaction.tables().collect();
            let mut change = Change { removed, cleared, ..Change::default() };
            if compaction.reason == Reason::Fifo {
                // Open snapshots keep the oldest tables, which their entries may be in.
                change.filtered = Some(ByFilter { newest_snapshot: None });
                let tables = version.tables().filter(|it| change.removed.contains(&it.2.meta.id));
                let newest = tables.map(|(_, _, live)| live.meta.largest_sequence).max();
                change.unlinked_to = newest.unwrap_or_default();
            }
            change
        } else {
            let was_interrupted = AtomicBool::new(false);
            let is_gone = || tree.is_dropped() || tree.view_seldom().cleared != cleared;
            let stops = |is_interrupted| {
                was_interrupted.fetch_or(is_interrupted, Relaxed);
                is_interrupted || self.tables.is_closing()
            };
            let stops_here = || stops(interrupts() || is_gone());
            let stops_there = || stops(self.scheduler.is_paused() || is_gone());
            let filter = tree.compaction_filter();
            let called = filter.as_ref();
            let stops = (stops_here, stops_there);
            let merged =
                self.merge_inputs(tree, &version, compaction, inputs, called, share, stops);
            let (added, filtered) = match merged {
                Err(Error::Closed) if was_interrupted.load(Relaxed) => {
                    return Ok(Ended::Interrupted);
                }
                Err(error @ Error::CompactionFilterFailed { .. }) => {
                    self.fail_compaction_filter(tree, called, &error);
                    return Ok(Ended::Interrupted);
                }
                merged => merged?,
            };
            bytes_written = added.iter().map(|table| table.written_bytes()).sum();
            let removed = compaction.tables().collect();
            Change { added, removed, cleared, filtered, ..Change::default() }
        };
        self.install(tree, &change)?;
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

/// Returns the ids of tables whose compression is not that of the last level.
///
/// A table stores the kind of its compression, not the level of zstd. If the levels of zstd differ,
/// tables above the last level count as different, and those in it do not.
fn otherwise_compressed(version: &Version, options: &KeyspaceOptions) -> BTreeSet<u64> {
    let of_others = options.compression;
    let of_last = options.bottommost_compression.unwrap_or(of_others);
    let numbers_differ = of_others != of_last && of_others.kind() == of_last.kind();
    let differs = |&(level, _, live): &(u8, u64, &Arc<LiveTable>)| {
        live.table.properties().compression != of_last.kind()
            || level < LAST_LEVEL && numbers_differ
    };
    version.tables().filter(differs).map(|(_, _, live)| live.meta.id).collect()
}

/// Returns the blob files of a keyspace whose values compactions move.
fn blobs_to_rewrite(version: &Version, options: &KeyspaceOptions) -> BTreeSet<u64> {
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
