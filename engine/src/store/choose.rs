//! Chooses compactions from the present version.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use sievedb_format::SequenceNumber;

use crate::{
    Error, HistoryLength,
    compaction::{
        choice::{Compaction, Reason},
        crowded::Price,
        expired::ExpiryClock,
        levels::{LAST_LEVEL, LevelOptions, Levels},
        picker::{Picker, RangeChoice},
        tombstones::{Overwritten, OverwrittenEntries, Skipped},
    },
    compaction_style::CompactionStyle,
    history_length::HistoryStart,
    iter::bounds::KeyBounds,
    keyspace_options::KeyspaceOptions,
    planted::PlantedBug,
    read::tree::Tree,
    resolve::ReadPoint,
    store::Store,
    store::compact::blobs_to_rewrite,
    store::merge_ranges::RUNS_IN_SHARE,
    store::writer::throttle::{Pressure, pressure},
    table::LiveTable,
    table::read_buffers::RunBuffers,
    version::Version,
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

/// Readers of a keyspace: live snapshots, and its history.
struct Readers {
    /// Sequence number of the oldest one.
    oldest: Option<SequenceNumber>,
    clock: ExpiryClock,
    /// Length of the history, in milliseconds, if its start is the oldest reader.
    history_ms: Option<u64>,
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
        let Readers { oldest, clock, history_ms } = self.readers_of(tree);
        let (skipped, overwritten) = (skipped(&view.version), overwritten(&view.version));
        let otherwise_compressed = otherwise_compressed(&view.version, &tree.options());
        let with_blob_garbage = with_blob_garbage(&view.version, &tree.options());
        pick(&Picker {
            levels: &levels,
            options: &options,
            oldest_snapshot: oldest,
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

    fn readers_of(&self, tree: &Tree) -> Readers {
        let now_ms = self.versions.clock().now_ms();
        let snapshot = self.versions.snapshots().oldest();
        let history = self.history_start(tree);
        let is_oldest =
            |start: &HistoryStart| snapshot.is_none_or(|it| start.sequence < it.sequence);
        let length = history.filter(is_oldest).and_then(|_| tree.history_length());
        let history_ms = length.map(HistoryLength::ms);
        let of_snapshot = snapshot.map(|it| (it.sequence, it.clock_ms()));
        let of_history = history.map(|start| (start.sequence, start.clock_ms));
        let all = || of_snapshot.into_iter().chain(of_history);
        let for_all_ms = all().map(|(_, clock_ms)| clock_ms).fold(now_ms, u64::min);
        let delays = |it: &ReadPoint| history_ms.is_none() || it.clock_ms() == for_all_ms;
        let clock = ExpiryClock { for_all_ms, now_ms, snapshot: snapshot.filter(delays) };
        Readers { oldest: all().map(|(sequence, _)| sequence).min(), clock, history_ms }
    }
}

fn skipped(version: &Version) -> Skipped {
    let skipped = version.tables().map(|(_, _, live)| (live.meta.id, live.skipped()));
    skipped.filter(|&(_, tombstones)| tombstones > 0).collect()
}

fn overwritten(version: &Version) -> Overwritten {
    let overwritten = version.tables().map(|(_, _, live)| {
        let properties = live.table.properties();
        let has_operands = properties.merge_operands() > 0;
        (live.meta.id, OverwrittenEntries { entries: properties.overwritten(), has_operands })
    });
    overwritten.filter(|(_, it)| it.entries > 0).collect()
}

/// Returns the ids of the tables that refer to blob files to rewrite.
fn with_blob_garbage(version: &Version, options: &KeyspaceOptions) -> BTreeSet<u64> {
    let rewritten = blobs_to_rewrite(version, options);
    let refers = |live: &LiveTable| live.meta.blob_file_ids().any(|id| rewritten.contains(&id));
    let tables = version.tables().filter(|(_, _, live)| refers(live));
    tables.map(|(_, _, live)| live.meta.id).collect()
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
