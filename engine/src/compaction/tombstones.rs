//! Compactions that remove tombstones: of tables whose tombstones scans skip, or whose range
//! tombstones delete much data.
//!
//! Every scan pays for each tombstone that it skips. A compaction pays once for each entry that it
//! rewrites, some four times as much. It is due when scans have paid as much as it costs. So the
//! total cost is at most twice the best possible, whatever scans follow (the ski rental problem).
//! Source: Karlin, Manasse, Rudolph, Sleator, "Competitive Snoopy Caching", Algorithmica 3, 1988.
//! If tables below are rewritten too, it is at most three times the best: [`makes_due`] does not
//! know them, so the search may be late by as much again.
//!
//! Merge operands of a key with many count like tombstones.
//!
//! Unlike the share of tombstones, this rule also compacts tables of level 0. It finds short
//! sequences of tombstones that are scanned often, such as the head of a queue.

use std::collections::BTreeMap;

use super::{
    choice::{Compaction, Reason},
    levels::Run,
    picker::{Picker, hull},
};
use crate::table::TableMeta;

/// Tombstones that scans skipped since the table was opened, and merge operands that reads applied,
/// by table id. Without zeros.
pub(crate) type Skipped = BTreeMap<u64, u64>;

/// Entries with a newer version of their key in the same table, by table id. Without zeros. Flushes
/// and compactions drop them, unless a snapshot or a history has a reader in between.
pub(crate) type Overwritten = BTreeMap<u64, OverwrittenEntries>;

/// Entries of a table with a newer version of their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverwrittenEntries {
    pub(crate) entries: u64,
    /// The table has merge operands. If their operator fails, older versions must stay.
    pub(crate) has_operands: bool,
}

/// Bytes of other tables, and of the table itself, that the range tombstones of a table delete, by
/// table id. Without zeros.
pub(crate) type Covered = BTreeMap<u64, u64>;

/// Maximum bytes rewritten for each byte that range tombstones delete.
const REWRITE_OF_COVERED_MAX: u64 = 2;

/// Cost of rewriting an entry, in skipped tombstones: about 250 ns and 60 ns.
const SKIPS_PER_REWRITE: u64 = 4;

/// Returns how many times the skipped tombstones have paid for rewriting `entries` entries.
fn rewrites_paid(skipped: u64, entries: u64) -> u64 {
    skipped.saturating_mul(SKIPS_PER_REWRITE) / entries.max(1)
}

/// Returns `true` if [`rewrites_paid`] is at least 1.
pub(crate) fn is_paid(skipped: u64, entries: u64) -> bool {
    rewrites_paid(skipped, entries) > 0
}

/// Returns whether a compaction may be due after `added` more tombstones than `before`: scans have
/// paid for 1, 2, 4, 8, or twice as many rewrites of `entries` entries.
///
/// Not for each: a snapshot may keep the tombstones, and each scan would search for a compaction.
pub(crate) fn makes_due(before: u64, added: u64, entries: u64) -> bool {
    let doublings = |skipped| rewrites_paid(skipped, entries).checked_ilog2();
    doublings(before) < doublings(before.saturating_add(added))
}

impl<'a> Picker<'a> {
    /// Chooses the tables whose range tombstones delete most bytes for each byte rewritten.
    /// Requires at least one deleted byte per [`REWRITE_OF_COVERED_MAX`] rewritten, and that no
    /// snapshot needs the deleted data.
    pub(super) fn pick_covering(&self) -> Option<Compaction> {
        if self.covered.is_empty() {
            return None;
        }
        self.pick_highest(Reason::Tombstones, |level, tables| {
            let droppable = tables.iter().filter(|table| self.is_droppable(table));
            let covered = droppable.filter_map(|table| self.covered.get(&table.id)).sum::<u64>();
            if covered == 0 {
                return None;
            }
            let rewritten = self.with_overlap_below(level, tables, |table| table.bytes);
            let is_due = rewritten <= covered.saturating_mul(REWRITE_OF_COVERED_MAX);
            is_due.then(|| covered as f64 / rewritten as f64)
        })
    }

    /// Chooses the table with most skipped tombstones per entry to rewrite, if they have paid for
    /// the rewrite.
    pub(super) fn pick_skipped(&self) -> Option<Compaction> {
        if self.skipped.is_empty() {
            return None;
        }
        let last = self.levels.last();
        self.pick_highest(Reason::SkippedTombstones, |level, tables| {
            let skipped = self.skipped_in(tables);
            // Most tables have none, and the search for the overlap is the longest part.
            if skipped == 0 || level == last && !tables.iter().all(|t| self.is_droppable(t)) {
                return None;
            }
            let entries = self.with_overlap_below(level, tables, |table| table.entries);
            is_paid(skipped, entries).then(|| skipped as f64 / entries as f64)
        })
    }

    /// Moves the tables with the highest score that can move: groups of level 0, or single tables
    /// below. Those without a score stay.
    fn pick_highest(
        &self,
        reason: Reason,
        score: impl Fn(u8, &Run<'a>) -> Option<f64>,
    ) -> Option<Compaction> {
        let groups = self.levels.level0_groups().into_iter().map(|group| (0, group));
        let deeper = (1..=self.levels.last()).flat_map(|level| {
            self.levels.run(level).iter().map(move |&table| (level, vec![table]))
        });
        let mut due: Vec<(f64, u8, Run<'a>)> = groups
            .chain(deeper)
            .filter_map(|(level, tables)| Some((score(level, &tables)?, level, tables)))
            .collect();
        due.sort_by(|(left, ..), (right, ..)| right.total_cmp(left));
        due.into_iter().find_map(|(_, level, tables)| match level {
            0 => self.move_level0_down(reason, tables),
            _ => self.move_down(reason, level, tables),
        })
    }

    /// Chooses the table below level 0 with the largest share of tombstones, if that is more than
    /// half. Overwritten entries count like tombstones once all can be dropped.
    pub(super) fn pick_tombstones(&self) -> Option<Compaction> {
        let last = self.levels.last();
        let is_due = |&(level, table): &(u8, &TableMeta)| {
            let is_more_than_half = |entries: u64| entries > table.entries / 2;
            is_more_than_half(table.tombstones) && level < last
                || is_more_than_half(self.droppable(table)) && self.is_droppable(table)
        };
        let of_level = |level| self.levels.run(level).iter().map(move |&table| (level, table));
        let mut tables: Vec<_> = (1..=last).flat_map(of_level).filter(is_due).collect();
        let share = |table: &TableMeta| self.droppable(table) as f64 / table.entries.max(1) as f64;
        tables.sort_by(|(_, left), (_, right)| share(right).total_cmp(&share(left)));
        let move_down = |(level, table)| self.move_down(Reason::Tombstones, level, vec![table]);
        tables.into_iter().find_map(move_down)
    }

    fn skipped_in(&self, tables: &Run<'a>) -> u64 {
        let of_table = |table: &&TableMeta| self.skipped.get(&table.id).copied().unwrap_or(0);
        tables.iter().map(of_table).fold(0, u64::saturating_add)
    }

    /// Returns the sum of `count` for `tables` of `level`, and for those that a compaction merges
    /// with them; at least 1.
    fn with_overlap_below(
        &self,
        level: u8,
        tables: &Run<'a>,
        count: impl Fn(&TableMeta) -> u64,
    ) -> u64 {
        let into = match level {
            0 => self.levels.targets(self.options).base_level,
            level => self.levels.last().min(level.saturating_add(1)),
        };
        let below: &[_] = match hull(tables) {
            Some(bounds) if into > level => self.levels.overlap(into, &bounds),
            _ => &[],
        };
        tables.iter().chain(below).map(|table| count(table)).fold(0, u64::saturating_add).max(1)
    }
}

/// Returns the share of tombstones among the entries of `table`, from 0 to 1.
pub(super) fn tombstone_share(table: &TableMeta) -> f64 {
    table.tombstones as f64 / table.entries.max(1) as f64
}
