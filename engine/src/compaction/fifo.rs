//! Removal of the oldest tables with [`CompactionStyle::Fifo`](crate::CompactionStyle).
//!
//! The tables form parts in the order of their age. Each run of level 0 is a part, since its tables
//! are equally old. Each table of a deeper level is a part; no flush adds one there. The oldest
//! parts are unlinked without a read, those of one level by one edit of the manifest.
//!
//! An entry is removed only after all older entries that it may hide. These are in older parts or,
//! below level 0, in deeper levels. So no removal makes an older value visible. A part that is too
//! old waits until all older parts are.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    choice::{Compaction, Reason},
    levels::{Levels, Run},
    picker::Picker,
};
use crate::{compaction_style::Fifo, table::TableMeta};

impl<'a> Levels<'a> {
    /// Returns the parts that are removed as a whole, with their levels, newest first.
    fn parts(&self) -> Vec<(u8, Run<'a>)> {
        let mut parts = Vec::new();
        for (level, run) in self.sorted_runs() {
            if level == 0 {
                parts.push((level, run.clone()));
                continue;
            }
            let mut tables = run.clone();
            // The sequence numbers of the last level are mostly 0.
            let age = |table: &&TableMeta| (table.written_ms, table.largest_sequence, table.id);
            tables.sort_by_key(|table| Reverse(age(table)));
            parts.extend(tables.into_iter().map(|table| (level, vec![table])));
        }
        parts
    }
}

impl Picker<'_> {
    /// Unlinks the oldest parts that exceed the size or age limit, of the deepest level with such
    /// parts.
    pub(super) fn pick_fifo(&self, fifo: &Fifo) -> Option<Compaction> {
        // A merge started before a change of the style may move newer data below older data.
        if self.levels.running().iter().any(|running| !running.is_unlink) {
            return None;
        }
        let parts = self.levels.parts();
        let kept = self.kept_parts(&parts, fifo);
        let (level, _) = parts.get(kept..)?.last()?;
        let of_level = parts[kept..].iter().filter(|(other, _)| other == level);
        let tables = of_level.flat_map(|(_, tables)| tables.iter().copied());
        Compaction::unlink(self.levels, Reason::Fifo, *level, tables)
    }

    /// Returns how many parts are kept.
    fn kept_parts(&self, parts: &[(u8, Run<'_>)], fifo: &Fifo) -> usize {
        let mut bytes = 0_u64;
        let mut blob_files = BTreeSet::new();
        let is_too_much = |(_, tables): &(u8, Run<'_>)| {
            for table in tables {
                bytes = bytes.saturating_add(table.bytes);
                for used in &table.blob_files {
                    let is_new = blob_files.insert(used.file_id);
                    bytes = bytes.saturating_add(if is_new { used.bytes } else { 0 });
                }
            }
            bytes > fifo.bytes_max
        };
        let by_bytes = parts.iter().position(is_too_much).map_or(parts.len(), |at| at.max(1));
        // Below level 0 a part may be younger than a newer one: a merge gives all its entries the
        // time of the youngest.
        let due_ms = |(_, tables): &(u8, Run<'_>)| self.fifo_due_ms(tables, fifo);
        let is_young = |part: &_| due_ms(part).is_some_and(|due_ms| self.clock.now_ms < due_ms);
        let young = parts.iter().rposition(is_young).map_or(0, |youngest| youngest + 1);
        // Tables without a time were written before all others.
        let old = parts[young..].iter().position(|part| due_ms(part).is_some());
        old.map_or(by_bytes, |old| by_bytes.min(young + old))
    }

    /// Returns the time when all entries of a part are too old, in milliseconds of the store clock.
    /// Returns `None` if that never happens or is unknown.
    fn fifo_due_ms(&self, part: &Run<'_>, fifo: &Fifo) -> Option<u64> {
        let age_ms = fifo.age_max_ms?;
        let written = part.iter().map(|table| table.written_ms);
        written.reduce(|newest, other| Some(newest?.max(other?)))??.checked_add(age_ms)
    }

    /// Returns the time when the next part will be too old, in milliseconds of the store clock.
    pub(super) fn awaited_fifo_ms(&self, fifo: &Fifo) -> Option<u64> {
        let parts = self.levels.parts();
        let due = parts.iter().filter_map(|(_, tables)| self.fifo_due_ms(tables, fifo));
        due.filter(|&due_ms| self.clock.now_ms < due_ms).min()
    }

    /// Returns the removal of the newest part instead of `removal`: a planted bug.
    pub(crate) fn newest_part_instead(&self, removal: Compaction) -> Compaction {
        let newest = self.levels.parts().into_iter().next();
        let instead = newest.and_then(|(level, tables)| {
            Compaction::unlink(self.levels, Reason::Fifo, level, tables)
        });
        instead.unwrap_or(removal)
    }
}
