//! Which tables to compact next.
//!
//! The level with the highest score goes first; if running compactions are in its way, the next.
//!
//! * **Level 0** into the base level: see [`level0`](super::level0). Tables that overlap, directly
//!   or over others, go together. Of several such groups the one with most tables goes; of equals
//!   the one with the smallest key. A group with a table in a running compaction waits.
//! * **Level n** into level n + 1: the one table that drags the fewest bytes of level n + 1 along,
//!   for each byte of its own; tombstones count double, because they free space. A larger level is
//!   worked off table by table, in parallel where the key ranges permit.
//! * **Mostly tombstones**, when no level is due: a table of level 1 or deeper of which more than
//!   half of the entries are tombstones goes one level down; in the last level it is rewritten
//!   where it is, once no snapshot is older than any of its entries. Level 0 is left out: with a
//!   workload of inserts and removes each flush would be compacted by itself.
//! * **Tombstones that scans step over**, before the last: see [`skipped`](super::skipped).
//!
//! In an idle store, a level 0 that is not due goes down too: see [`idle`](super::idle). So
//! it does in a store with too many tables for its memory: see [`crowded`](super::crowded).
//!
//! A quarantined table is never merged. It may be moved to a level where it meets nothing.
//!
//! A single table that meets nothing below is moved instead, unless a rewrite would do it good: see
//! [`Compaction::is_trivial_move`].

use std::collections::BTreeSet;

use sievedb_format::{SequenceNumber, TableBounds};

use super::{
    choice::{Compaction, Reason},
    levels::{LevelOptions, Levels, Run, bytes},
    skipped::Skipped,
};
use crate::{iter::bounds::KeyBounds, table::TableMeta};

/// Tables below this share of the base level are small: 4 MiB by default.
const SMALL_TABLES_IN_BASE_LEVEL: u64 = 32;

/// Chooses compactions. Every answer follows from what it is given.
#[derive(Debug)]
pub(crate) struct Picker<'a> {
    /// The tables, and the compactions in flight.
    pub(crate) levels: &'a Levels<'a>,
    /// When a level is due.
    pub(crate) options: &'a LevelOptions,
    /// The oldest live snapshot: newer tombstones have to stay.
    pub(crate) oldest_snapshot: Option<SequenceNumber>,
    /// Tombstones that scans stepped over.
    pub(crate) skipped: &'a Skipped,
    /// Ids of the tables that the last level would have otherwise compressed. Only the whole
    /// compaction of a range rewrites those that are there already.
    pub(crate) otherwise_compressed: &'a BTreeSet<u64>,
}

/// What a range of keys needs to be compact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RangeChoice {
    /// This compaction, and then another look.
    Compact(Compaction),
    /// Another look when a running compaction is done.
    Wait,
    /// Nothing can be done: it would have to read this quarantined table.
    Quarantined(u64),
    /// Nothing: its tables are in the last level, compressed as they should be there, and without a
    /// tombstone that could be dropped.
    Done,
}

impl<'a> Picker<'a> {
    /// Chooses the next compaction, or `None` if nothing is due or all of it has to wait.
    pub(crate) fn pick(&self) -> Option<Compaction> {
        let targets = self.levels.targets(self.options);
        let score = |level| self.levels.score(level, self.options, &targets);
        let mut due: Vec<(f64, u8)> = (0..self.levels.last())
            .map(|level| (score(level), level))
            .filter(|&(score, _)| score >= 1.0)
            .collect();
        // Stable: of equals the shallower level goes first.
        due.sort_by(|(left, _), (right, _)| right.total_cmp(left));
        let pick = |&(_, level): &(f64, u8)| match level {
            0 => self.pick_level0(),
            _ => self.pick_table(level),
        };
        let level = due.iter().find_map(pick);
        level.or_else(|| self.pick_skipped()).or_else(|| self.pick_tombstones())
    }

    /// A compaction of tables of `level`, from 1, into the next one; of the last level into itself.
    pub(super) fn bring_down(
        &self,
        reason: Reason,
        level: u8,
        tables: Run<'a>,
    ) -> Option<Compaction> {
        let output_level = self.levels.last().min(level.saturating_add(1));
        self.with_overlap(reason, level, tables, output_level)
    }

    /// The table of `level`, from 1, that is cheapest to bring one level down.
    fn pick_table(&self, level: u8) -> Option<Compaction> {
        let cost = |table: &TableMeta| {
            let dragged = bytes(self.levels.overlap(level + 1, &table.bounds));
            let weight = table.bytes.max(1) as f64 * (1.0 + tombstone_share(table));
            dragged as f64 / weight
        };
        let mut tables: Vec<_> = self.levels.run(level).iter().map(|&t| (cost(t), t)).collect();
        tables.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        let bring_down =
            |(_, table)| self.with_overlap(Reason::LevelBytes, level, vec![table], level + 1);
        tables.into_iter().find_map(bring_down)
    }

    /// The table below level 0 with the largest share of tombstones, if that is more than half.
    fn pick_tombstones(&self) -> Option<Compaction> {
        let last = self.levels.last();
        let is_due = |&(level, table): &(u8, &TableMeta)| {
            table.tombstones > table.entries / 2 && (level < last || self.is_droppable(table))
        };
        let of_level = |level| self.levels.run(level).iter().map(move |&table| (level, table));
        let mut tables: Vec<_> = (1..=last).flat_map(of_level).filter(is_due).collect();
        tables.sort_by(|(_, left), (_, right)| {
            tombstone_share(right).total_cmp(&tombstone_share(left))
        });
        let bring_down = |(level, table)| self.bring_down(Reason::Tombstones, level, vec![table]);
        tables.into_iter().find_map(bring_down)
    }

    /// Which sequence number the oldest snapshot has to reach for something to be due that is not
    /// now, perhaps; `None` if no snapshot is in the way.
    pub(crate) fn awaited_snapshot(&self) -> Option<SequenceNumber> {
        let oldest = self.oldest_snapshot?;
        let deeper = (1..=self.levels.last()).flat_map(|level| self.levels.run(level));
        let tables = self.levels.level0().iter().flatten().chain(deeper);
        let with_tombstones = tables.filter(|table| table.tombstones > 0);
        with_tombstones.map(|table| table.largest_sequence).filter(|&newest| oldest < newest).min()
    }

    /// Chooses the next compaction towards a compact range: all its tables in the last level,
    /// compressed as they should be there, without tombstones that could be dropped.
    ///
    /// The tables above the last level go down in one compaction, with all that they overlap below.
    /// After that, tables of the last level are rewritten one by one if they are otherwise
    /// compressed, or if a tombstone can be dropped for sure: if they have one and no snapshot is
    /// older than any of their entries.
    pub(crate) fn pick_range(&self, range: &KeyBounds) -> RangeChoice {
        let last = self.levels.last();
        let mut inputs = self.above_last(range);
        let choice = if let Some(bounds) = hull(inputs.iter().flat_map(|(_, t)| t)) {
            inputs.push((last, self.levels.overlap(last, &bounds).to_vec()));
            let mut tables = inputs.iter().flat_map(|(_, tables)| tables);
            if let Some(table) = tables.find(|table| self.levels.is_quarantined(table)) {
                return RangeChoice::Quarantined(table.id);
            }
            self.compaction(Reason::Range, inputs, last)
        } else {
            let run = self.levels.run(last).iter();
            let is_due =
                |t: &TableMeta| self.is_droppable(t) || self.otherwise_compressed.contains(&t.id);
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

    /// The tables above the last level with keys in `range`, by level, and all that lie below them.
    fn above_last(&self, range: &KeyBounds) -> Vec<(u8, Run<'a>)> {
        let mut taken: Vec<(u8, Run<'a>)> = vec![(0, Run::new())];
        let level0 = self.levels.level0().iter().map(|run| (0, run));
        let deeper = (1..self.levels.last()).map(|level| (level, self.levels.run(level)));
        // Newest first, so that each run sees how far the newer ones reach.
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

    /// A compaction of `tables` of `level` with what they overlap in `output_level`; from level 0,
    /// or with a small neighbour there. Unless that is the same level: then of these alone.
    pub(super) fn with_overlap(
        &self,
        reason: Reason,
        level: u8,
        tables: Run<'a>,
        output_level: u8,
    ) -> Option<Compaction> {
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

    /// A table of `level` beside `key` that tables of `own_bytes` are merged with, though they do
    /// not overlap, because all of them are small.
    ///
    /// Otherwise a store that is opened for a few writes at a time would collect a table for each
    /// time. Rewriting a neighbour of four times the size at the most bounds what that costs.
    fn small_neighbour(&self, level: u8, key: &[u8], own_bytes: u64) -> Option<&'a TableMeta> {
        let small_bytes = self.options.base_level_bytes_max / SMALL_TABLES_IN_BASE_LEVEL;
        if own_bytes >= small_bytes {
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

    /// A compaction of `inputs`, unless it has to wait.
    pub(super) fn compaction(
        &self,
        reason: Reason,
        inputs: Vec<(u8, Run<'a>)>,
        output_level: u8,
    ) -> Option<Compaction> {
        Compaction::new(self.levels, reason, inputs, output_level, |table| {
            // Only a guess. A settled put has the number 0, so beside one `seen` is true even of
            // tombstones that are all newer than the oldest snapshot. The table is then rewritten
            // where it could be moved: once for each level that it goes down, so this ends.
            let seen = self.oldest_snapshot.is_none_or(|oldest| table.smallest_sequence <= oldest);
            let is_bottom = (output_level..=self.levels.last())
                .skip(1)
                .all(|level| self.levels.overlap(level, &table.bounds).is_empty());
            let is_droppable = table.tombstones > 0 && seen && is_bottom;
            let is_last = output_level == self.levels.last();
            is_droppable || is_last && self.otherwise_compressed.contains(&table.id)
        })
    }

    /// Whether a rewrite in the last level is sure to drop every tombstone of `table`, and there is
    /// one. Short of that it might change nothing, and be chosen again and again.
    pub(super) fn is_droppable(&self, table: &TableMeta) -> bool {
        let seen = self.oldest_snapshot.is_none_or(|oldest| table.largest_sequence <= oldest);
        table.tombstones > 0 && seen
    }
}

/// The tombstones among the entries of `table`, from 0 to 1.
fn tombstone_share(table: &TableMeta) -> f64 {
    table.tombstones as f64 / table.entries.max(1) as f64
}

/// Whether `table` may have a key in `range`.
fn overlaps(range: &KeyBounds, table: &TableMeta) -> bool {
    let (start, end) = range.as_slices();
    !range.is_empty() && table.bounds.reaches_above(start) && table.bounds.reaches_below(end)
}

/// The bounds of `tables` together.
pub(super) fn hull<'t, 'a: 't>(
    tables: impl IntoIterator<Item = &'t &'a TableMeta>,
) -> Option<TableBounds> {
    TableBounds::hull(tables.into_iter().map(|table| &table.bounds))
}
