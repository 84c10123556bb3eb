//! A chosen compaction.

use std::fmt;

use sievedb_format::TableBounds;

use super::levels::{Levels, bytes};
use crate::table::TableMeta;

/// The run of every level below 0, each of which has one run.
pub(super) const DEEPER_RUN: u64 = 0;

/// Tables to merge, and the level of the result.
///
/// With an input table, all older tables that overlap it are inputs too, down to the output level.
/// The result replaces the inputs in one sorted run of the output level. In level 0, it replaces
/// adjacent runs, and older runs stay below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compaction {
    pub(crate) reason: Reason,
    /// Shallowest level first; in level 0 newest run first. Each level occurs once, with at least
    /// one table.
    pub(crate) inputs: Vec<LevelInputs>,
    pub(crate) output_level: u8,
    /// The run number of the result: in level 0 that of the newest input.
    pub(crate) output_run: u64,
    /// The inputs move to the output level without a rewrite. They overlap no table, have no
    /// tombstone to drop, and have the compression of the output level.
    pub(crate) is_trivial_move: bool,
    /// The inputs are unlinked without a read. All their entries have expired, or are the oldest of
    /// a keyspace with [`CompactionStyle::Fifo`](crate::CompactionStyle).
    pub(crate) is_unlink: bool,
    /// Length of the inputs, in bytes.
    pub(crate) input_bytes: u64,
    /// Range of the user keys of the inputs.
    pub(crate) bounds: TableBounds,
}

/// The tables of one level that a compaction reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LevelInputs {
    pub(crate) level: u8,
    /// Ids of its tables: in level 0 newest run first, otherwise in key order.
    pub(crate) tables: Vec<u64>,
}

/// The reason for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Level 0 has too many runs.
    Level0,
    /// A level exceeds its target, or must be emptied.
    LevelBytes,
    /// A table is mostly tombstones.
    Tombstones,
    /// Entries of a table have expired.
    Expired,
    /// Scans skipped tombstones of a table repeatedly.
    SkippedTombstones,
    /// The store is idle, and level 0 is cheap to compact.
    Idle,
    /// The store has too many tables for its memory.
    Tables,
    /// A table refers to blob files with too much garbage.
    BlobGarbage,
    /// Sorted runs of similar size exist, or too many runs.
    SizeTiered,
    /// The oldest tables exceed the size limit or the age limit.
    Fifo,
    /// The caller requested this range of keys.
    Range,
}

impl Compaction {
    /// Returns `true` if the compaction writes tables, up to the bytes of its inputs.
    pub(crate) fn writes_tables(&self) -> bool {
        !self.is_trivial_move && !self.is_unlink
    }

    /// Returns `true` if the compaction merges tables of more than two levels.
    pub(crate) fn has_many_levels(&self) -> bool {
        self.writes_tables() && self.inputs.len() > 2
    }

    /// Returns a compaction of level 0 with an input of this length.
    #[cfg(test)]
    pub(crate) fn of_bytes(input_bytes: u64) -> Self {
        Self {
            reason: Reason::Level0,
            inputs: Vec::new(),
            output_level: 6,
            output_run: 0,
            is_trivial_move: false,
            is_unlink: false,
            input_bytes,
            bounds: TableBounds::inclusive([b'a'], [b'b']),
        }
    }

    /// Creates a compaction of `inputs`, by level, shallowest first. Returns `None` if it must wait
    /// for a running compaction, or would read a quarantined table. `is_to_rewrite` returns `true`
    /// if a table must not be moved to the output level; a quarantined table may always be moved.
    pub(super) fn new(
        levels: &Levels<'_>,
        reason: Reason,
        inputs: Vec<(u8, Vec<&TableMeta>)>,
        output_level: u8,
        is_to_rewrite: impl FnOnce(&TableMeta) -> bool,
    ) -> Option<Self> {
        let all = || inputs.iter().flat_map(|(_, tables)| tables);
        let mut tables = all();
        let is_trivial_move = match (tables.next(), tables.next()) {
            (Some(only), None) if only.level != output_level => {
                levels.is_quarantined(only) || !is_to_rewrite(only)
            }
            _ => false,
        };
        if !is_trivial_move && all().any(|table| levels.is_quarantined(table)) {
            return None;
        }
        let new = Self::unblocked(levels, reason, inputs, output_level)?;
        // The result may span the whole range between its ends, including gaps of the inputs.
        let is_blocked = levels.is_blocked((output_level, new.output_run), &new.bounds);
        (!is_blocked).then_some(Self { is_trivial_move, ..new })
    }

    /// Creates a merge of `inputs` as [`new`](Self::new), beside any compaction that does not read
    /// them.
    fn unblocked(
        levels: &Levels<'_>,
        reason: Reason,
        mut inputs: Vec<(u8, Vec<&TableMeta>)>,
        output_level: u8,
    ) -> Option<Self> {
        inputs.retain(|(_, tables)| !tables.is_empty());
        let all = || inputs.iter().flat_map(|(_, tables)| tables);
        if all().any(|table| levels.is_busy(table)) {
            return None;
        }
        let output_run = match output_level {
            0 => all().map(|table| table.run).max().unwrap_or(DEEPER_RUN),
            _ => DEEPER_RUN,
        };
        Some(Self {
            reason,
            output_level,
            output_run,
            is_trivial_move: false,
            is_unlink: false,
            input_bytes: bytes(all()),
            bounds: TableBounds::hull(all().map(|table| &table.bounds))?,
            inputs: inputs
                .into_iter()
                .map(|(level, tables)| LevelInputs {
                    level,
                    tables: tables.iter().map(|table| table.id).collect(),
                })
                .collect(),
        })
    }

    /// Creates the removal of `tables` of `level` without a read. Returns `None` if a running
    /// compaction reads one.
    pub(super) fn unlink<'t>(
        levels: &Levels<'_>,
        reason: Reason,
        level: u8,
        tables: impl IntoIterator<Item = &'t TableMeta>,
    ) -> Option<Self> {
        // Beside compactions that write between the tables, since no gap is filled.
        let inputs = vec![(level, tables.into_iter().collect())];
        let removal = Self::unblocked(levels, reason, inputs, level)?;
        Some(Self { is_unlink: true, ..removal })
    }

    /// Creates the move of `tables` of level 0 to `output_level`, from 1. They overlap no table
    /// there, need no rewrite, and no running compaction [blocks](Levels::is_blocked) one of them.
    /// Returns `None` if a running compaction reads one.
    pub(super) fn moves(
        levels: &Levels<'_>,
        reason: Reason,
        tables: Vec<&TableMeta>,
        output_level: u8,
    ) -> Option<Self> {
        // Tables that others write between them stay apart, since no gap is filled.
        let moves = Self::unblocked(levels, reason, vec![(0, tables)], output_level)?;
        Some(Self { is_trivial_move: true, ..moves })
    }

    /// Returns the ids of all inputs.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().flat_map(|level| level.tables.iter().copied())
    }
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LevelInputs { level, tables }) in self.inputs.iter().enumerate() {
            let plus = if index > 0 { " + " } else { "" };
            write!(f, "{plus}L{level} {tables:?}")?;
        }
        if self.is_unlink {
            return write!(f, " is unlinked");
        }
        let arrow = if self.is_trivial_move { "moves to" } else { "->" };
        write!(f, " {arrow} L{}", self.output_level)
    }
}
