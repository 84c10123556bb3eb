//! Chooses a compaction for an idle store: a short level 0 that is not due.
//!
//! A scan reads each run that overlaps its bounds, and a level 0 that writes left behind stays until
//! more writes come. It is cheap to compact if little lies below. So a group of overlapping tables
//! goes into the base level if that rewrites at most [`BELOW_PER_RUN_MAX`] bytes there for each byte
//! of the group and each run less, and at most [`BELOW_MAX`] for each byte of the group. Otherwise
//! it stays: a group that waits for a fourth run would be rewritten for little, and level 0 would be
//! merged within itself at each pause.
//!
//! A byte leaves level 0 once. So this writes at most `1 + BELOW_MAX` bytes for each flushed byte,
//! whatever the pauses of the writers. An aborted compaction writes in vain, and each byte is in at
//! most two of these: see `store::scheduler::idle_compaction`.
//!
//! Other engines merge early by other measures. LevelDB and Pebble count reads that met a table in
//! vain, so readers pay first. WiredTiger's LSM trees merged more the longer nothing was merged,
//! without a bound by bytes: after an opening a small run was merged into everything (pull request
//! 1063).

use super::{
    choice::{Compaction, Reason},
    levels::{Run, bytes},
    picker::{Picker, hull},
};

/// Bytes of the base level that may be rewritten for each byte of level 0 and each run less.
const BELOW_PER_RUN_MAX: u64 = 2;

/// Bytes of the base level that may be rewritten for each byte of level 0, however many runs go. A
/// level 0 that is due rewrites one if both levels have the size that is best for each other.
const BELOW_MAX: u64 = 4;

impl<'a> Picker<'a> {
    /// Chooses the affordable compaction of a group of level 0 that saves scans the most runs.
    /// [`pick`](Self::pick) comes first.
    pub(crate) fn pick_idle(&self) -> Option<Compaction> {
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
            let compaction = self.bring_down_level0(Reason::Idle, group)?;
            // Also what is merged with it without an overlap.
            let below = compaction.input_bytes.saturating_sub(own);
            (below <= own.saturating_mul(factor)).then_some(compaction)
        })
    }

    /// Returns how many runs fewer there are where `group` lies once it is in the base level.
    fn runs_less(&self, group: &Run<'a>, base_level: u8) -> usize {
        let mut runs: Vec<u64> = group.iter().map(|table| table.run).collect();
        runs.sort_unstable();
        runs.dedup();
        let is_beside =
            hull(group).is_some_and(|bounds| !self.levels.overlap(base_level, &bounds).is_empty());
        (runs.len() + usize::from(is_beside)).saturating_sub(1)
    }
}
