//! Merges the inputs of a compaction into new tables, several ranges of keys at the same time.
//!
//! The thread of the compaction merges the first range, and carries out flushes and unlinks
//! meanwhile. Each other range has a thread, which counts as one of the idle workers: see
//! `scheduler::lent`. All ranges write one group of tables. An error or an interruption of one
//! range stops the others, and the tables of all are removed. So does a panic, but tables may stay
//! until the next open.
//!
//! A compaction is one range if the keyspace has a compaction filter, which is called in the order
//! of the keys, or if it is for an idle store, in which it must cost little.

use std::{
    iter,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use sievedb_format::{RangeTombstone, TableBounds};

use super::{
    Store,
    table_output::{NewTables, RangeTables, discard_ranges, finish_group, write_range},
};
use crate::{
    Error, Result,
    compaction::{
        borders::Borders,
        choice::{Compaction, Reason},
        deeper_levels::DeeperLevels,
        filtering::Filtering,
        ranges::{RangeFragments, cut},
        readers::Readers,
        retain::RetainStream,
        split::{Piece, SplitLimits, split},
    },
    fold::OperatorCell,
    iter::{bounds::KeyBounds, merge::MergeCursor},
    on_threads::beside_threads,
    planted::PlantedBug,
    read::source::{ScanOptions, Source},
    table::{
        LiveTable, TableMeta,
        cache_room::WorkerShare,
        read_buffers::{ReadBuffers, RunBuffers},
    },
};

/// Read-ahead of all inputs takes at most this share of a worker's part for writing: 2 MiB of 16,
/// enough for eight runs. The tables that are written need the rest.
const READ_AHEAD_IN_SHARE: u64 = 8;

/// Blocks and index partitions of all inputs take at most this share of a worker's part for
/// writing, unless a few runs take more.
pub(super) const RUNS_IN_SHARE: u64 = 4;

/// Workers that a compaction has borrowed, until it is dropped.
struct LentWorkers<'a> {
    store: &'a Store,
    count: usize,
}

impl LentWorkers<'_> {
    /// Returns all workers except the first `count`.
    fn keep(&mut self, count: usize) {
        let returned = self.count.saturating_sub(count);
        self.count -= returned;
        self.store.scheduler.take_back(returned);
    }
}

impl Drop for LentWorkers<'_> {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// A merge of sorted runs into new tables.
pub(super) struct Merge<'a> {
    pub(super) store: &'a Store,
    /// Tables to read, newest run first.
    pub(super) runs: Vec<Vec<Arc<LiveTable>>>,
    pub(super) readers: Readers,
    pub(super) older: DeeperLevels,
    pub(super) operator: OperatorCell,
    pub(super) borders: Borders,
    pub(super) new: NewTables<'a>,
}

/// Ranges of the keys of a merge, ascending, with the workers that merge them.
pub(super) struct Ranges<'a> {
    ranges: Vec<TableBounds>,
    workers: Option<LentWorkers<'a>>,
}

/// Stops the other ranges when it is dropped, also by a panic, unless the range has succeeded.
struct StopsOthers<'a> {
    stopped: &'a AtomicBool,
    has_succeeded: bool,
}

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            self.stopped.store(true, Relaxed);
        }
    }
}

impl<'a> Merge<'a> {
    /// Cuts `compaction` into the ranges for which memory, processors and workers suffice.
    pub(super) fn split(
        &self,
        compaction: &Compaction,
        has_filter: bool,
        share: &WorkerShare,
    ) -> Ranges<'a> {
        let store = self.store;
        let one = || Ranges { ranges: vec![TableBounds::of_range(&[], &[])], workers: None };
        if has_filter || compaction.reason == Reason::Idle {
            return one();
        }
        let limits = SplitLimits {
            input_bytes: self.runs.iter().flatten().map(|live| live.meta.bytes).sum(),
            table_bytes: self.new.options.table_bytes,
            buffer_bytes: self.runs.iter().map(|run| buffers_of(run).bytes()).sum(),
            buffer_bytes_max: share.bytes_max() / RUNS_IN_SHARE,
        };
        let forced = store.options.compaction_ranges;
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        let ranges_max = forced.unwrap_or_else(|| limits.ranges_max(processors));
        if ranges_max < 2 {
            return one();
        }
        let mut workers = LentWorkers { store, count: store.lend_workers(ranges_max - 1) };
        let ranges_max = forced.unwrap_or(workers.count + 1);
        if ranges_max < 2 {
            return one();
        }
        let piece_bytes = limits.piece_bytes(ranges_max);
        let pieces = self.runs.iter().flatten().flat_map(|live| live.table.pieces(piece_bytes));
        let ranges = split(pieces.map(|(last, bytes)| Piece { last, bytes }).collect(), ranges_max);
        workers.keep(ranges.len() - 1);
        Ranges { ranges, workers: Some(workers) }
    }

    /// Merges `ranges` until `stops` returns `true` on this thread, or `others_stop` on another.
    /// The buffers of this thread are part of `share`. Shows values to `filtering`, with one range.
    ///
    /// # Errors
    ///
    /// As [`write_tables`](super::table_output::write_tables).
    pub(super) fn run(
        &self,
        ranges: &Ranges<'_>,
        mut filtering: Option<&mut Filtering>,
        share: &Arc<WorkerShare>,
        mut stops: impl FnMut() -> bool,
        others_stop: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Arc<TableMeta>>> {
        let Ranges { ranges, workers } = ranges;
        debug_assert!(filtering.is_none() || ranges.len() == 1, "a filter sees ascending keys");
        let threads = workers.as_ref().map_or(0, |workers| workers.count);
        let stopped = AtomicBool::new(false);
        let is_stopped = || stopped.load(Relaxed);
        // Before the first range begins: it runs no merge beside threads that share its turn.
        let others = ranges[1..].iter().map(|range| (range, share.of_another_thread()));
        let ranges: Vec<_> = iter::once((&ranges[0], Arc::clone(share))).chain(others).collect();
        let here = |(range, share): &(&TableBounds, Arc<WorkerShare>)| {
            let filtering = filtering.as_deref_mut();
            self.merge(range, filtering, share, &stopped, || is_stopped() || stops())
        };
        let there = |(range, share): &(&TableBounds, Arc<WorkerShare>)| {
            self.merge(range, None, share, &stopped, || is_stopped() || others_stop())
        };
        let (mut written, mut failed) = (Vec::with_capacity(ranges.len()), None);
        for result in beside_threads(threads, &ranges, here, there) {
            match result {
                Ok(tables) => written.push(tables),
                // A range that another one stopped fails with `Closed`.
                Err(error) if matches!(failed, None | Some(Error::Closed)) => failed = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failed {
            discard_ranges(&self.store.tables, written);
            return Err(error);
        }
        finish_group(&self.store.tables, &self.new, written, threads)
    }

    /// Merges the keys of `range` until `stops` returns `true`.
    fn merge(
        &self,
        range: &TableBounds,
        filtering: Option<&mut Filtering>,
        share: &Arc<WorkerShare>,
        stopped: &AtomicBool,
        stops: impl FnMut() -> bool,
    ) -> Result<RangeTables> {
        let mut guard = StopsOthers { stopped, has_succeeded: false };
        let tombstones = cut(&range_tombstones(&self.runs), range);
        let stripes = self.readers.stripes();
        let is_bottom = |bounds: &TableBounds| !self.older.may_overlap(bounds);
        let fragments = RangeFragments::new(&tombstones, stripes, is_bottom);
        let is_read = |live: &&Arc<LiveTable>| {
            live.meta.bounds.overlaps(range) && !fragments.hides(&live.meta, range)
        };
        let read = |run: &Vec<_>| run.iter().filter(is_read).cloned().collect::<Vec<_>>();
        let runs = self.runs.iter().map(read).filter(|run| !run.is_empty()).collect::<Vec<_>>();
        let of_runs: Vec<_> = runs.iter().map(|run| buffers_of(run)).collect();
        let read_ahead_bytes_max = share.bytes_max() / READ_AHEAD_IN_SHARE;
        let buffers = ReadBuffers::take(share, &of_runs, read_ahead_bytes_max);
        let (start, end) = range.as_range();
        let bounds = Arc::new(KeyBounds::copy(start, end));
        let scan = ScanOptions { cursor: buffers.cursor_options(), bounds, skipped: None };
        let runs = runs.into_iter().map(|run| Source::tables(run, &scan)).collect();
        let drops_early = self.store.options.has_bug(PlantedBug::DropTombstoneEarly);
        let mut older = self.older.clone();
        let is_bottom = |key: &[u8]| drops_early || !older.may_hold(key);
        let readers = self.readers.clone();
        let kept = RetainStream::new(MergeCursor::new(runs, 0), readers, is_bottom, stops);
        let kept = kept
            .from(&range.smallest)
            .with_ranges(fragments)
            .settling()
            .folding(self.operator.clone())
            .charging(buffers.share());
        let mut kept = kept.filtered_by(filtering);
        let (tables, borders) = (&self.store.tables, self.borders.clone());
        let written = write_range(tables, &self.new, &mut kept, buffers.share(), borders)?;
        guard.has_succeeded = true;
        Ok(written)
    }
}

fn buffers_of(run: &[Arc<LiveTable>]) -> RunBuffers {
    RunBuffers::of_tables(run.iter().map(Arc::as_ref))
}

/// Returns the range tombstones of all inputs.
fn range_tombstones(inputs: &[Vec<Arc<LiveTable>>]) -> Vec<RangeTombstone> {
    let tables = inputs.iter().flatten();
    tables.flat_map(|live| live.table.range_tombstones().iter().cloned()).collect()
}
