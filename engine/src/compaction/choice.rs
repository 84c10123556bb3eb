//! What is chosen, and what may run beside it.

use std::fmt;

use sievedb_format::TableBounds;

use super::levels::{Levels, bytes};
use crate::table::TableMeta;

/// The run of every level below 0: it has only one.
const DEEPER_RUN: u64 = 0;

/// Tables to merge, and the level where the result goes.
///
/// For every input table all older tables with one of its keys are inputs too, as far as they are
/// in the output level or above. The result replaces the inputs in one sorted run of the output
/// level.
///
/// An output in level 0 is different: it replaces adjacent runs, and older runs stay below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compaction {
    /// Why it was chosen.
    pub(crate) reason: Reason,
    /// The inputs, shallowest level first; of level 0 newest run first. No level is there twice,
    /// and none without a table.
    pub(crate) inputs: Vec<LevelInputs>,
    /// Where the result goes.
    pub(crate) output_level: u8,
    /// The number of its run there: in level 0 that of the newest input.
    pub(crate) output_run: u64,
    /// The one input may change its level as it is: nothing is there to merge it with, it has no
    /// tombstone that could be dropped, and its blocks are compressed as they should be there.
    pub(crate) is_trivial_move: bool,
    /// Length of the inputs, in bytes.
    pub(crate) input_bytes: u64,
    /// Range of the user keys of the inputs.
    pub(crate) bounds: TableBounds,
}

/// The tables of one level that a compaction reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LevelInputs {
    /// The level.
    pub(crate) level: u8,
    /// Ids of its tables: of level 0 newest run first, otherwise in key order.
    pub(crate) tables: Vec<u64>,
}

/// Why a compaction was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Level 0 has too many runs.
    Level0,
    /// A level is larger than its target, or is to be emptied.
    LevelBytes,
    /// A table is mostly tombstones.
    Tombstones,
    /// Scans stepped over tombstones of a table again and again.
    SkippedTombstones,
    /// The store is idle, and level 0 is cheap to compact.
    Idle,
    /// The store has too many tables for its memory.
    Tables,
    /// A caller requested this range of keys.
    Range,
}

impl Compaction {
    /// A compaction of `inputs`, given by level, shallowest first. `None` if it has to wait for one
    /// that is running, or if it would read a quarantined table. `is_to_rewrite` tells whether a
    /// table may not just be moved to the output level; a quarantined one always may.
    pub(super) fn new(
        levels: &Levels<'_>,
        reason: Reason,
        mut inputs: Vec<(u8, Vec<&TableMeta>)>,
        output_level: u8,
        is_to_rewrite: impl FnOnce(&TableMeta) -> bool,
    ) -> Option<Self> {
        inputs.retain(|(_, tables)| !tables.is_empty());
        let all = || inputs.iter().flat_map(|(_, tables)| tables);
        if all().any(|table| levels.is_busy(table)) {
            return None;
        }
        let bounds = TableBounds::hull(all().map(|table| &table.bounds))?;
        let output_run = match output_level {
            0 => all().map(|table| table.run).max().unwrap_or(DEEPER_RUN),
            _ => DEEPER_RUN,
        };
        // The result may lie anywhere between its ends, gaps of the inputs included.
        let is_in_the_way = |running: &Self| {
            (running.output_level, running.output_run) == (output_level, output_run)
                && running.bounds.overlaps(&bounds)
        };
        if levels.running().iter().any(is_in_the_way) {
            return None;
        }
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
        Some(Self {
            reason,
            output_level,
            output_run,
            is_trivial_move,
            input_bytes: bytes(all()),
            bounds,
            inputs: inputs
                .into_iter()
                .map(|(level, tables)| LevelInputs {
                    level,
                    tables: tables.iter().map(|table| table.id).collect(),
                })
                .collect(),
        })
    }

    /// The ids of all inputs.
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
        let arrow = if self.is_trivial_move { "moves to" } else { "->" };
        write!(f, " {arrow} L{}", self.output_level)
    }
}
