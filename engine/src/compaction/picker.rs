//! Chooses the next compaction.
//!
//! The style of the keyspace selects [`tiered`](super::tiered), [`fifo`](super::fifo), or the
//! leveled rules below. The rules from tombstones on also apply to size-tiered runs.
//!
//! Level 0 is compacted first if it is due: its runs delay reads and finally writes. Then the level
//! with the highest score that no running compaction blocks.
//!
//! * **Level 0** into the base level: see [`level0`](super::level0). Tables that overlap, directly
//!   or through others, are compacted together. The group with the most tables is first; of equals,
//!   the group with the smallest key. A group with a busy table waits.
//! * **Level n** into level n + 1: the table with the least overlap in level n + 1, relative to its
//!   own bytes. Tombstones count double, because they free space. One table at a time, in parallel
//!   where the key ranges permit.
//! * **Tombstones that scans skip**, when no level is due: see [`tombstones`](super::tombstones).
//! * **Range tombstones over much data**, likewise.
//! * **Mostly tombstones**, when none of these is due: a table of level 1 or deeper with more
//!   tombstones than other entries moves one level down. In the last level it is rewritten in
//!   place, once no snapshot is older than any of its entries. Level 0 is excluded: a workload of
//!   inserts and removes would compact each flush by itself. Overwritten entries that a snapshot or
//!   a history kept count like tombstones once they are not needed.
//! * **Expired entries**, when none of these is due: see [`expired`](super::expired).
//! * **Garbage in blob files**, likewise: see [`blob_garbage`](super::blob_garbage).
//!
//! In an idle store, a level 0 that is not due is compacted too: see [`idle`](super::idle). So is
//! that of a store with too many tables for its memory: see [`crowded`](super::crowded).
//!
//! A quarantined table is never merged. It may be moved to a level where it overlaps nothing.
//!
//! A single table without overlap is moved, unless a rewrite helps: see
//! [`Compaction::is_trivial_move`].

use std::{collections::BTreeSet, mem};

use sievedb_format::{SequenceNumber, TableBounds};

use super::{
    choice::{Compaction, Reason},
    expired::ExpiryClock,
    levels::{LAST_LEVEL, LevelOptions, Levels, Run, bytes},
    tombstones::{Covered, Overwritten, Skipped, tombstone_share},
};
use crate::{
    compaction_style::CompactionStyle, iter::bounds::KeyBounds, resolve::ReadPoint,
    table::TableMeta,
};

/// Number of levels: any merge may read a run of each.
const LEVELS: usize = LAST_LEVEL as usize + 1;

/// Divisor of the base level: smaller tables are small, 4 MiB by default.
const SMALL_TABLES_IN_BASE_LEVEL: u64 = 32;

/// Chooses compactions. Pure.
#[derive(Debug)]
pub(crate) struct Picker<'a> {
    /// The tables, and the compactions in flight.
    pub(crate) levels: &'a Levels<'a>,
    pub(crate) options: &'a LevelOptions,
    /// The oldest reader, a live snapshot or the start of the history: newer tombstones must stay.
    pub(crate) oldest_snapshot: Option<SequenceNumber>,
    pub(crate) skipped: &'a Skipped,
    pub(crate) clock: ExpiryClock,
    /// Length in milliseconds of the history whose start is the oldest reader. `u64::MAX` for a
    /// history without a fixed time.
    pub(crate) history_ms: Option<u64>,
    pub(crate) covered: &'a Covered,
    pub(crate) overwritten: &'a Overwritten,
    /// Ids of the tables that the last level compresses differently. Only the compaction of a range
    /// rewrites those already in the last level.
    pub(crate) otherwise_compressed: &'a BTreeSet<u64>,
    /// A compaction of a range rewrites last-level tables with smaller ids, if the compaction
    /// filter, a merge operator or the end of a history may change them.
    pub(crate) rewrites_below: u64,
    /// The keyspace has a compaction filter.
    pub(crate) has_filter: bool,
    /// Ids of the tables that refer to blob files to rewrite.
    pub(crate) with_blob_garbage: &'a BTreeSet<u64>,
}

/// The next step to compact a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RangeChoice {
    /// Run this compaction, then choose again.
    Compact(Compaction),
    /// Choose again when a running compaction ends.
    Wait,
    /// Not possible: the compaction would read this quarantined table.
    Quarantined(u64),
    /// Done: the tables of the range are in the last level, with its compression. None has a
    /// tombstone or an expired entry that could be dropped.
    Done,
}

impl<'a> Picker<'a> {
    /// Chooses the next compaction. Returns `None` if nothing is due or everything due must wait.
    pub(crate) fn pick(&self) -> Option<Compaction> {
        let by_style = match &self.options.style {
            CompactionStyle::Leveled => self.pick_level(),
            CompactionStyle::SizeTiered(options) => self.pick_tiered(options),
            CompactionStyle::Fifo(fifo) => {
                return self.pick_fifo(fifo).or_else(|| self.pick_unlinkable());
            }
        };
        by_style
            .or_else(|| self.pick_covering())
            .or_else(|| self.pick_skipped())
            .or_else(|| self.pick_expired())
            .or_else(|| self.pick_tombstones())
            .or_else(|| self.pick_blob_garbage())
    }

    /// Compacts level 0 if it is due, or else the level with the highest score.
    fn pick_level(&self) -> Option<Compaction> {
        let targets = self.levels.targets(self.options);
        let score = |level| self.levels.score(level, self.options, &targets);
        if score(0) >= 1.0
            && let Some(of_level0) = self.pick_level0()
        {
            return Some(of_level0);
        }
        let mut due: Vec<(f64, u8)> = (1..self.levels.last())
            .map(|level| (score(level), level))
            .filter(|&(score, _)| score >= 1.0)
            .collect();
        // The sort is stable: of equal levels, the shallower is first.
        due.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        due.iter().find_map(|&(_, level)| self.pick_table(Reason::LevelBytes, level))
    }

    /// Compacts tables of `level`, from 1, into the next level; those of the last level into
    /// itself.
    pub(super) fn move_down(
        &self,
        reason: Reason,
        level: u8,
        tables: Run<'a>,
    ) -> Option<Compaction> {
        let output_level = self.levels.last().min(level.saturating_add(1));
        self.with_overlap(reason, level, tables, output_level)
    }

    /// Chooses the table of `level`, from 1, that is cheapest to move one level down.
    pub(super) fn pick_table(&self, reason: Reason, level: u8) -> Option<Compaction> {
        let cost = |table: &TableMeta| {
            let overlap = bytes(self.levels.overlap(level + 1, &table.bounds));
            let weight = table.bytes.max(1) as f64 * (1.0 + tombstone_share(table));
            overlap as f64 / weight
        };
        let mut tables: Vec<_> = self.levels.run(level).iter().map(|&t| (cost(t), t)).collect();
        tables.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        let move_down = |(_, table)| self.with_overlap(reason, level, vec![table], level + 1);
        tables.into_iter().find_map(move_down)
    }

    /// Returns the point that the oldest snapshot must reach before more may be due. Returns `None`
    /// if no snapshot delays a compaction.
    pub(crate) fn awaited_snapshot(&self) -> Option<ReadPoint> {
        let oldest = self.clock.snapshot?;
        if matches!(self.options.style, CompactionStyle::Fifo(_)) {
            return self.awaits_snapshot_to_unlink().then(|| oldest.successor());
        }
        let of_clock = self.awaits_clock_of_snapshot().then(|| oldest.successor());
        if self.history_ms.is_some() {
            return of_clock;
        }
        let deeper = (1..=self.levels.last()).flat_map(|level| self.levels.run(level));
        let tables = self.levels.level0().iter().flatten().chain(deeper);
        let with_tombstones = tables.filter(|table| self.droppable(table) > 0);
        let newest = with_tombstones.map(|table| table.largest_sequence);
        let of_tombstones = newest.filter(|&newest| oldest.sequence < newest).min();
        let of_tombstones = of_tombstones.map(|newest| ReadPoint::at_time(newest, 0));
        of_tombstones.into_iter().chain(of_clock).min()
    }

    /// Chooses the next step towards [`RangeChoice::Done`].
    ///
    /// Merges runs of level 0 if they are too many for a merge. Compacts the tables above the last
    /// level at once, with all tables that they overlap below.
    /// Then rewrites tables of the last level one by one, if one of these holds:
    ///
    /// * Their compression differs.
    /// * The compaction filter has not seen them.
    /// * An entry has expired.
    /// * A tombstone is certain to be dropped, because no snapshot is older than any of their
    ///   entries.
    /// * An overwritten entry may be dropped.
    ///
    /// With [`CompactionStyle::Fifo`] nothing is merged, and due tables are removed.
    pub(crate) fn pick_range(&self, range: &KeyBounds) -> RangeChoice {
        if matches!(self.options.style, CompactionStyle::Fifo(_)) {
            return self.pick().map_or(RangeChoice::Done, RangeChoice::Compact);
        }
        let last = self.levels.last();
        let mut inputs = self.above_last(range);
        let choice = if let Some(bounds) = hull(inputs.iter().flat_map(|(_, t)| t)) {
            inputs.push((last, self.levels.overlap(last, &bounds).to_vec()));
            let mut tables = inputs.iter().flat_map(|(_, tables)| tables);
            if let Some(table) = tables.find(|table| self.levels.is_quarantined(table)) {
                return RangeChoice::Quarantined(table.id);
            }
            let are_too_many = count_runs(&inputs) > self.options.merged_runs_max;
            let count = |free: &[&[&TableMeta]]| (free.len() > 1).then_some(free.len());
            // Whole runs: a newer table beside the range may overlap an older one of the range.
            let all = || self.merge_in_level0(Reason::Range, self.all_of_level0(), count);
            let merged = are_too_many.then(all).flatten();
            let mut tables = inputs.iter().flat_map(|(_, tables)| tables);
            let is_busy = tables.any(|table| self.levels.is_busy(table));
            merged.or_else(|| {
                if is_busy {
                    return None;
                }
                // Quarantined tables may lie between the runs of level 0.
                let (level0, deeper) = inputs.split_first_mut()?;
                level0.1 = self.oldest_runs(mem::take(&mut level0.1), count_runs(deeper));
                self.compaction(Reason::Range, inputs, last)
            })
        } else {
            let run = self.levels.run(last).iter();
            let is_due = |t: &TableMeta| {
                self.is_droppable(t)
                    || self.has_expired(t)
                    || self.otherwise_compressed.contains(&t.id)
                    || self.with_blob_garbage.contains(&t.id)
                    || t.id < self.rewrites_below && (self.has_filter || self.may_drop(t))
            };
            let due = run.filter(|t| overlaps(range, t) && is_due(t));
            let (quarantined, due): (Run<'_>, Run<'_>) =
                due.partition(|table| self.levels.is_quarantined(table));
            match quarantined.first() {
                Some(table) if due.is_empty() => return RangeChoice::Quarantined(table.id),
                None if due.is_empty() => return RangeChoice::Done,
                _ => {}
            }
            let rewrite = |table| self.compaction(Reason::Range, vec![(last, vec![table])], last);
            due.into_iter().find_map(rewrite)
        };
        choice.map_or(RangeChoice::Wait, RangeChoice::Compact)
    }

    /// Returns the tables above the last level with keys in `range`, by level, and the tables that
    /// they overlap below.
    fn above_last(&self, range: &KeyBounds) -> Vec<(u8, Run<'a>)> {
        let mut taken: Vec<(u8, Run<'a>)> = vec![(0, Run::new())];
        let level0 = self.levels.level0().iter().map(|run| (0, run));
        let deeper = (1..self.levels.last()).map(|level| (level, self.levels.run(level)));
        // Newest first: the bounds of newer runs add tables of older ones.
        for (level, run) in level0.chain(deeper) {
            let reach = hull(taken.iter().flat_map(|(_, tables)| tables));
            let is_below = |table: &TableMeta| {
                reach.as_ref().is_some_and(|reach| reach.overlaps(&table.bounds))
            };
            let tables = run.iter().copied().filter(|t| overlaps(range, t) || is_below(t));
            match taken.last_mut() {
                Some((same, earlier)) if *same == level => earlier.extend(tables),
                _ => taken.push((level, tables.collect())),
            }
        }
        taken
    }

    /// Compacts `tables` of `level` with their overlap in `output_level`, if that is deeper. Of
    /// level 0 the oldest runs that a merge can read; without an overlap, with a small neighbor.
    pub(super) fn with_overlap(
        &self,
        reason: Reason,
        level: u8,
        tables: Run<'a>,
        output_level: u8,
    ) -> Option<Compaction> {
        let tables = if level == 0 { self.oldest_runs(tables, 1) } else { tables };
        let bounds = hull(&tables)?;
        let mut inputs = vec![(level, tables)];
        if output_level > level {
            let mut below = self.levels.overlap(output_level, &bounds).to_vec();
            let is_quarantined = inputs[0].1.iter().any(|table| self.levels.is_quarantined(table));
            if below.is_empty() && level == 0 && !is_quarantined {
                below.extend(self.small_neighbour(
                    output_level,
                    &bounds.smallest,
                    bytes(&inputs[0].1),
                ));
            }
            inputs.push((output_level, below));
        }
        self.compaction(reason, inputs, output_level)
    }

    /// Returns a small table of `level` beside `key` to merge with tables of `own_bytes` bytes,
    /// without overlap, if all are small.
    ///
    /// Otherwise a store opened for a few writes at a time would collect a table each time. The
    /// neighbor has at most four times the size, which bounds the cost.
    fn small_neighbour(&self, level: u8, key: &[u8], own_bytes: u64) -> Option<&'a TableMeta> {
        let small_bytes = self.small_bytes();
        if own_bytes >= small_bytes || self.options.style != CompactionStyle::Leveled {
            return None;
        }
        let neighbour_bytes_max = (small_bytes / 16).max(4 * own_bytes);
        let run = self.levels.run(level);
        let behind = run.partition_point(|table| table.bounds.ends_below(key));
        let beside = [behind.checked_sub(1), Some(behind)].into_iter().flatten();
        let tables = beside.filter_map(|at| run.get(at).copied());
        let is_small = |table: &&TableMeta| {
            table.bytes < neighbour_bytes_max
                && !self.levels.is_busy(table)
                && !self.levels.is_quarantined(table)
        };
        tables.filter(is_small).min_by_key(|table| table.bytes)
    }

    /// Returns a compaction of `inputs`, unless it must wait.
    pub(super) fn compaction(
        &self,
        reason: Reason,
        inputs: Vec<(u8, Run<'a>)>,
        output_level: u8,
    ) -> Option<Compaction> {
        debug_assert!(
            count_runs(&inputs) <= self.options.merged_runs_max.max(LEVELS),
            "the buffers of {} runs may exceed the memory",
            count_runs(&inputs)
        );
        let is_to_rewrite = |table: &TableMeta| self.is_to_rewrite(table, output_level);
        Compaction::new(self.levels, reason, inputs, output_level, is_to_rewrite)
    }

    /// Returns `true` if a table must not be moved to `output_level`: a rewrite helps.
    pub(super) fn is_to_rewrite(&self, table: &TableMeta, output_level: u8) -> bool {
        // An estimate. With a settled put, of number 0, `seen` is true even if all tombstones are
        // newer than the oldest snapshot. Then the table is rewritten instead of moved: once for
        // each level, so this ends.
        let seen = self.oldest_snapshot.is_none_or(|oldest| table.smallest_sequence <= oldest);
        let is_bottom = (output_level..=self.levels.last())
            .skip(1)
            .all(|level| self.levels.overlap(level, &table.bounds).is_empty());
        let is_droppable = table.tombstones > 0 && seen && is_bottom;
        let is_last = output_level == self.levels.last();
        is_droppable || is_last && self.otherwise_compressed.contains(&table.id)
    }

    /// Returns the length below which a table is merged with a neighbor, in bytes.
    pub(super) fn small_bytes(&self) -> u64 {
        self.options.base_level_bytes_max / SMALL_TABLES_IN_BASE_LEVEL
    }

    /// Returns `true` if `table` has tombstones or overwritten entries, and a rewrite in the last
    /// level is certain to drop them all. Otherwise a rewrite might change nothing, and be chosen
    /// repeatedly.
    pub(super) fn is_droppable(&self, table: &TableMeta) -> bool {
        self.droppable(table) > 0 && self.is_seen(table)
    }

    /// Returns `true` if every reader sees all entries of `table`.
    pub(super) fn is_seen(&self, table: &TableMeta) -> bool {
        self.oldest_snapshot.is_none_or(|oldest| table.largest_sequence <= oldest)
    }

    /// Returns `true` if `table` has overwritten entries that the history may no longer need, or
    /// that no reader needs unless a merge operator fails.
    fn may_drop(&self, table: &TableMeta) -> bool {
        let seen = match (self.history_ms, self.oldest_snapshot) {
            (Some(_), Some(oldest)) => table.smallest_sequence <= oldest,
            _ => self.is_seen(table),
        };
        seen && self.overwritten.contains_key(&table.id)
    }

    /// Returns the number of tombstones and overwritten entries of `table`.
    pub(super) fn droppable(&self, table: &TableMeta) -> u64 {
        let overwritten = self.overwritten.get(&table.id).filter(|it| !it.has_operands);
        table.tombstones + overwritten.map_or(0, |it| it.entries)
    }
}

/// Returns `true` if `table` may have a key in `range`.
fn overlaps(range: &KeyBounds, table: &TableMeta) -> bool {
    let (start, end) = range.as_slices();
    !range.is_empty() && table.bounds.reaches_above(start) && table.bounds.reaches_below(end)
}

/// Returns the number of sorted runs of these tables, by level.
fn count_runs(inputs: &[(u8, Run<'_>)]) -> usize {
    let runs = inputs.iter().flat_map(|(_, tables)| tables).map(|table| (table.level, table.run));
    runs.collect::<BTreeSet<_>>().len()
}

/// Returns the bounds of `tables` together.
pub(super) fn hull<'t, 'a: 't>(
    tables: impl IntoIterator<Item = &'t &'a TableMeta>,
) -> Option<TableBounds> {
    TableBounds::hull(tables.into_iter().map(|table| &table.bounds))
}
