//! Which tables to compact because the store rests: a short level 0, which is not due.
//!
//! Every scan looks into each run that reaches into its bounds, and the runs of a level 0 that
//! writes have left behind would stay until more come. They are cheap to bring down if little lies
//! below them. So a group of overlapping tables goes into the base level if that rewrites at most
//! [`BELOW_PER_RUN_MAX`] bytes there for each byte of the group and each run that scans are rid of,
//! and never more than [`BELOW_MAX`] for each byte of the group. Otherwise it stays: what waits for
//! a fourth run would be rewritten for little, and level 0 merged into a run of its own once for
//! each pause.
//!
//! A byte leaves level 0 once. So whatever pauses writers make, this writes at most `1 + BELOW_MAX`
//! bytes for each byte that a flush has written; what comes below the base level comes with pauses
//! or without. A compaction that is given up writes in vain, and a byte goes into two of these at
//! most: see `store::background::in_vain`.
//!
//! Others merge early by other measures. LevelDB and Pebble count the reads that met a table in
//! vain, and compact it when they have paid for that: readers wait for what could have been done
//! before. WiredTiger's LSM trees grew more aggressive the longer nothing was merged, without a
//! bound by bytes: after an opening a small run was merged into everything again (pull request
//! 1063).

use super::{
    choice::{Compaction, Reason},
    levels::{Run, bytes},
    picker::{Picker, hull},
};

/// Bytes of the base level that may be rewritten for each byte of level 0 and each run that scans
/// are rid of.
const BELOW_PER_RUN_MAX: u64 = 2;

/// Bytes of the base level that may be rewritten for each byte of level 0, however many runs go. A
/// level 0 that is due rewrites one if both levels have the size that is best for each other.
const BELOW_MAX: u64 = 4;

impl<'a> Picker<'a> {
    /// The compaction of the group of level 0 that rids scans of most runs, if there is one that
    /// costs little enough. For a store that rests: [`pick`](Self::pick) comes first.
    pub(crate) fn pick_quiet(&self) -> Option<Compaction> {
        let base_level = self.levels.targets(self.options).base_level;
        let mut groups: Vec<(usize, Run<'a>)> = self
            .levels
            .level0_groups()
            .into_iter()
            .map(|group| (self.runs_less(&group, base_level), group))
            .filter(|&(runs_less, _)| runs_less > 0)
            .collect();
        // Stable: of equals the one with the smallest key goes first.
        groups.sort_by_key(|&(runs_less, _)| usize::MAX - runs_less);
        groups.into_iter().find_map(|(runs_less, group)| {
            let own = bytes(&group);
            let factor = BELOW_MAX.min((runs_less as u64).saturating_mul(BELOW_PER_RUN_MAX));
            let compaction = self.bring_down_level0(Reason::Quiet, group)?;
            // Also what is merged with it without an overlap.
            let below = compaction.input_bytes.saturating_sub(own);
            (below <= own.saturating_mul(factor)).then_some(compaction)
        })
    }

    /// How many runs fewer there are where `group` lies once it is in the base level.
    fn runs_less(&self, group: &Run<'a>, base_level: u8) -> usize {
        let mut runs: Vec<u64> = group.iter().map(|table| table.run).collect();
        runs.sort_unstable();
        runs.dedup();
        let is_beside =
            hull(group).is_some_and(|bounds| !self.levels.overlap(base_level, &bounds).is_empty());
        (runs.len() + usize::from(is_beside)).saturating_sub(1)
    }
}
