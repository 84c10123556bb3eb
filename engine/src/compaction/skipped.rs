//! Which tables to compact because scans step over their tombstones.
//!
//! Every scan pays again for a tombstone that it steps over, a compaction pays once for each entry
//! that it rewrites: some four times as much. It is due when scans have paid as much as it would
//! cost. So all in all no more than twice of what would have been best is paid, whatever scans come
//! after; this is the problem of renting skis. Source: Karlin, Manasse, Rudolph, Sleator,
//! "Competitive Snoopy Caching", Algorithmica 3, 1988.
//!
//! Unlike a table's share of tombstones this also brings down tables of level 0, and finds a short
//! row of tombstones that is scanned again and again, such as the head of a queue.

use std::collections::BTreeMap;

use super::{
    choice::{Compaction, Reason},
    levels::Run,
    picker::{Picker, hull},
};
use crate::table::TableMeta;

/// Tombstones that scans stepped over since the table was opened, by table id; only where there are
/// any.
pub(crate) type Skipped = BTreeMap<u64, u64>;

/// What it costs to rewrite an entry, in tombstones stepped over: about 250 ns and 60.
const SKIPS_PER_REWRITE: u64 = 4;

/// How often scans that stepped over `skipped` tombstones have paid for rewriting so many entries.
pub(crate) fn rewrites_paid(skipped: u64, entries: u64) -> u64 {
    skipped.saturating_mul(SKIPS_PER_REWRITE) / entries.max(1)
}

/// Whether they have paid for it.
pub(crate) fn is_paid(skipped: u64, entries: u64) -> bool {
    rewrites_paid(skipped, entries) > 0
}

impl<'a> Picker<'a> {
    /// The compaction of the table whose tombstones scans stepped over most often, for each entry
    /// that is rewritten, if they have paid for it.
    pub(super) fn pick_skipped(&self) -> Option<Compaction> {
        if self.skipped.is_empty() {
            return None;
        }
        let last = self.levels.last();
        let deeper = (1..=last).flat_map(|level| {
            self.levels.run(level).iter().map(move |&table| (level, vec![table]))
        });
        let groups = self.levels.level0_groups().into_iter().map(|group| (0, group));
        let mut due: Vec<(f64, u8, Run<'a>)> = groups
            .chain(deeper)
            .filter(|(level, tables)| *level < last || tables.iter().all(|t| self.is_droppable(t)))
            .filter_map(|(level, tables)| {
                let skipped = self.skipped_in(&tables);
                // Most have none, and to look for what they overlap takes longer than all else
                // here.
                if skipped == 0 {
                    return None;
                }
                let entries = self.entries_with_overlap(level, &tables);
                is_paid(skipped, entries).then(|| (skipped as f64 / entries as f64, level, tables))
            })
            .collect();
        due.sort_by(|(left, ..), (right, ..)| right.total_cmp(left));
        due.into_iter().find_map(|(_, level, tables)| match level {
            0 => self.bring_down_level0(Reason::SkippedTombstones, tables),
            _ => self.bring_down(Reason::SkippedTombstones, level, tables),
        })
    }

    fn skipped_in(&self, tables: &Run<'a>) -> u64 {
        let of_table = |table: &&TableMeta| match table.tombstones {
            0 => 0,
            _ => self.skipped.get(&table.id).copied().unwrap_or(0),
        };
        tables.iter().map(of_table).fold(0, u64::saturating_add)
    }

    /// Entries of `tables` of `level`, and of those that a compaction would merge with them.
    fn entries_with_overlap(&self, level: u8, tables: &Run<'a>) -> u64 {
        let into = match level {
            0 => self.levels.targets(self.options).base_level,
            level => self.levels.last().min(level.saturating_add(1)),
        };
        let below: &[_] = match hull(tables) {
            Some(bounds) if into > level => self.levels.overlap(into, &bounds),
            _ => &[],
        };
        tables.iter().chain(below).map(|table| table.entries).fold(0, u64::saturating_add).max(1)
    }
}
