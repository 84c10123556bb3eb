//! Idle compactions: of a short level 0, which is not due, while the store is idle.
//!
//! Every scan reads each run that overlaps its bounds, and runs of level 0 would stay until more
//! writes arrive. They are cheap to compact if they overlap little. So a group of overlapping
//! tables is compacted into the base level if that rewrites few bytes of it. Per byte of the group,
//! these are at most [`BELOW_PER_RUN_MAX`] for each removed run, and at most [`BELOW_MAX`].
//! Otherwise the group waits for more runs.
//!
//! Once the store has been idle for long, two more compactions undo what
//! [lazy leveling](super::levels) has left:
//!
//! * Level 0 goes down if that rewrites at most `fan_out` bytes for each of its bytes.
//! * The level above the last one goes down, table by table, until the last level is `fan_out`
//!   times as large.
//!
//! A byte leaves level 0 once. So idle compactions write at most `1 + BELOW_MAX` bytes for each
//! byte flushed, whatever short pauses writers make, and `1 + fan_out` with long ones. A byte is in
//! at most two aborted ones: see `store::scheduler::idle_compaction`.
//!
//! LevelDB and Pebble instead count reads without a result, and compact a table when these have
//! paid for it. WiredTiger's LSM trees merged more the longer they were idle, without a bound in
//! bytes. After an open, a small run was merged with all data again (pull request 1063).

use super::{
    choice::{Compaction, Reason},
    levels::{Run, bytes},
    picker::{Picker, hull},
};
use crate::compaction_style::CompactionStyle;

/// Maximum bytes of the base level rewritten for each byte of level 0 and each removed run.
const BELOW_PER_RUN_MAX: u64 = 2;

/// Maximum bytes of the base level rewritten for each byte of level 0. A due level 0 rewrites one
/// byte if both levels have the best sizes for each other.
const BELOW_MAX: u64 = 4;

impl<'a> Picker<'a> {
    /// Chooses the group of level 0 that saves scans most runs, if it is cheap enough. For an idle
    /// store: [`pick`](Self::pick) has precedence. Returns `None` unless the style is leveled.
    pub(crate) fn pick_idle(&self) -> Option<Compaction> {
        let factor = |runs_less: u64| BELOW_MAX.min(runs_less.saturating_mul(BELOW_PER_RUN_MAX));
        self.pick_idle_group(factor)
    }

    /// The same for a store that has been idle for long.
    pub(crate) fn pick_long_idle(&self) -> Option<Compaction> {
        self.pick_idle_group(|_| self.options.fan_out).or_else(|| self.pick_level_between())
    }

    /// Chooses a group of level 0. `factor` maps the number of removed runs to the bytes that may
    /// be rewritten for each byte of the group.
    fn pick_idle_group(&self, factor: impl Fn(u64) -> u64) -> Option<Compaction> {
        if self.options.style != CompactionStyle::Leveled {
            return None;
        }
        let base_level = self.levels.targets(self.options).base_level;
        let mut groups: Vec<(usize, Run<'a>)> = self
            .levels
            .level0_groups()
            .into_iter()
            .map(|group| self.oldest_runs(group, 1))
            .map(|group| (self.runs_less(&group, base_level), group))
            .filter(|&(runs_less, _)| runs_less > 0)
            .collect();
        // The sort is stable: of equal groups, the smallest key is first.
        groups.sort_by_key(|&(runs_less, _)| usize::MAX - runs_less);
        groups.into_iter().find_map(|(runs_less, group)| {
            let (own, weight) = (bytes(&group), self.levels.bytes_with_removed(&group, base_level));
            let compaction = self.move_level0_down(Reason::Idle, group)?;
            // Includes a small neighbor without an overlap.
            let below = compaction.input_bytes.saturating_sub(own);
            (below <= weight.saturating_mul(factor(runs_less as u64))).then_some(compaction)
        })
    }

    /// Moves a table of the level above the last one down, if that level is larger than with plain
    /// leveling.
    fn pick_level_between(&self) -> Option<Compaction> {
        if self.options.style != CompactionStyle::Leveled {
            return None;
        }
        let last = self.levels.last();
        let held = bytes(self.levels.run(last - 1));
        let is_large = held > bytes(self.levels.run(last)) / self.options.fan_out;
        is_large.then(|| self.pick_table(Reason::Idle, last - 1))?
    }

    /// Returns the number of runs overlapping the bounds of `group` that a move to the base level
    /// removes.
    fn runs_less(&self, group: &Run<'a>, base_level: u8) -> usize {
        let mut runs: Vec<u64> = group.iter().map(|table| table.run).collect();
        runs.sort_unstable();
        runs.dedup();
        let is_beside =
            hull(group).is_some_and(|bounds| !self.levels.overlap(base_level, &bounds).is_empty());
        (runs.len() + usize::from(is_beside)).saturating_sub(1)
    }
}
