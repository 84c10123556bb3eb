//! Compactions of a store that has too many tables for its memory.
//!
//! Each live table takes some KiB of memory besides its filter. In a store with many keyspaces and
//! a small budget, each flush would leave a small table in a level 0 that is not due. So the newest
//! runs of a group of level 0 are merged early, into the base level or else within level 0. The
//! condition is that the oldest run (or the base level) has at most `rewrite_max` times the bytes
//! of the newer runs. [`rewrite_max`] grows with the number of tables, from 0 in a store that is
//! not crowded to [`REWRITE_MAX`].
//!
//! **Cost.** Each merge rewrites at most `1 + rewrite_max` bytes for each byte of the newer runs,
//! and enlarges the older one by at least `1 / rewrite_max`. So the bytes rewritten to fill a level
//! are at most `1 + rewrite_max` times its size.
//!
//! **Termination.** Each merge shrinks level 0, or reduces the number of its runs. A single run
//! without data below is not merged. So without flushes the merges end, even if the store stays
//! crowded.

use super::{
    choice::{Compaction, Reason},
    levels::{Run, bytes},
    picker::Picker,
};
use crate::{compaction_style::CompactionStyle, table::TableMeta};

/// Maximum bytes rewritten for each byte of newer runs.
pub(crate) const REWRITE_MAX: u64 = 8;

/// Returns the bytes that may be rewritten for each byte of newer runs. The store has `tables` live
/// tables, of which `ample` fit their share of the memory. Returns 0 below `ample` tables. Doubles
/// with each further `ample` tables, up to [`REWRITE_MAX`].
pub(crate) fn rewrite_max(tables: u64, ample: u64) -> u64 {
    match tables / ample.max(1) {
        0 => 0,
        times => 1_u64 << (times - 1).min(REWRITE_MAX.ilog2().into()),
    }
}

/// Cost of a merge, ordered from cheap to expensive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Price {
    /// Least [`rewrite_max`] that permits the merge.
    pub(crate) rewrite_max: u64,
    /// Bytes rewritten for each removed table.
    pub(crate) bytes_per_table: u64,
}

impl<'a> Picker<'a> {
    /// Chooses the cheapest merge within `rewrite_max`. Returns `None` if no merge reduces the
    /// number of tables. [`pick`](Self::pick) has precedence.
    pub(crate) fn pick_crowded(&self, rewrite_max: u64) -> Option<(Price, Compaction)> {
        if matches!(self.options.style, CompactionStyle::Fifo(_)) {
            return None;
        }
        let groups = self.levels.level0_groups();
        let mut permitted = 1;
        while permitted <= rewrite_max {
            let priced = groups.iter().filter_map(|group| {
                let merge = self.merge_crowded(group, permitted)?;
                let fewer = self.tables_fewer(&merge)?;
                let bytes_per_table = merge.input_bytes / fewer;
                Some((Price { rewrite_max: permitted, bytes_per_table }, merge))
            });
            // Of equal prices, the smallest key is first.
            let cheapest = priced.min_by_key(|&(price, _)| price);
            if cheapest.is_some() {
                return cheapest;
            }
            permitted *= 2;
        }
        None
    }

    /// Merges a group of level 0 into the base level, or else its newest runs.
    fn merge_crowded(&self, group: &Run<'a>, rewrite_max: u64) -> Option<Compaction> {
        let oldest_runs = self.oldest_runs(group.clone(), 1);
        let down = self.move_level0_down(Reason::Tables, oldest_runs.clone());
        let down = down.filter(|merge| {
            // The oldest data: the base level, or else the oldest run.
            let oldest = match merge.input_bytes.saturating_sub(bytes(&oldest_runs)) {
                0 => {
                    let run = oldest_runs.last().map(|table| table.run);
                    bytes(oldest_runs.iter().filter(|table| Some(table.run) == run))
                }
                below => below,
            };
            let newer = merge.input_bytes.saturating_sub(oldest);
            oldest <= newer.saturating_mul(rewrite_max) && self.tables_fewer(merge).is_some()
        });
        down.or_else(|| {
            let count = |runs: &[&[&TableMeta]]| runs_to_merge(runs, rewrite_max);
            self.merge_in_level0(Reason::Tables, group.clone(), count)
        })
    }

    /// Estimates the number of tables that `merge` removes. Returns `None` for no removal.
    fn tables_fewer(&self, merge: &Compaction) -> Option<u64> {
        let outputs = merge.input_bytes.div_ceil(self.options.table_bytes).max(1);
        (merge.tables().count() as u64).checked_sub(outputs).filter(|&fewer| fewer > 0)
    }
}

/// Returns how many of `runs`, newest first, to merge into one, if any.
fn runs_to_merge(runs: &[&[&TableMeta]], rewrite_max: u64) -> Option<usize> {
    let mut newer = 0_u64;
    let mut count = None;
    for (run, before) in runs.iter().zip(0..) {
        let own = bytes(*run);
        if before > 0 && own <= newer.saturating_mul(rewrite_max) {
            count = Some(before + 1);
        }
        newer = newer.saturating_add(own);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_tables_permit_more_rewriting() {
        let of = |tables| rewrite_max(tables, 100);
        let cases = [(0, 0), (99, 0), (100, 1), (199, 1), (200, 2), (300, 4), (400, 8), (9_999, 8)];
        for (tables, want) in cases {
            assert_eq!(of(tables), want, "{tables} tables");
        }
        assert_eq!(rewrite_max(u64::MAX, 0), REWRITE_MAX);
        assert_eq!(rewrite_max(5, u64::MAX), 0);
    }
}
