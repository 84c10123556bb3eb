//! Pending compactions of a keyspace.

use std::collections::HashSet;

use super::levels::{LAZY_PART, LevelOptions, Levels, Run, Targets, bytes};
use crate::compaction_style::CompactionStyle;

/// Pending compactions, for back-pressure on writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Sorted runs of level 0, including those being compacted.
    pub(crate) level0_runs: usize,
    /// Runs that writers must not wait for, since no compaction reduces them. With quarantined
    /// tables, only the runs above the newest quarantined one of an overlapping group are reduced.
    /// The group with most such runs counts.
    pub(crate) level0_runs_kept: usize,
    /// Estimate of the bytes that compactions write until no level is due. 0 unless the style is
    /// leveled.
    pub(crate) bytes: u64,
}

impl Levels<'_> {
    /// Returns the pending compactions, including those in flight. Bytes of kept tables do not
    /// count.
    pub(crate) fn debt(&self, options: &LevelOptions) -> Debt {
        let level0_runs = self.level0().len();
        let level0_runs_kept = level0_runs - self.level0_runs_free();
        if options.style != CompactionStyle::Leveled {
            return Debt { level0_runs, level0_runs_kept, bytes: 0 };
        }
        let targets = self.targets(options);
        let mut debt = 0_u64;
        // Bytes that arrive from above, and then move on with their share of the next level.
        let mut arriving = 0;
        if level0_runs >= options.level0_runs {
            arriving = self.level0_bytes(&targets, options);
            if arriving > 0 {
                debt = arriving.saturating_add(bytes(self.run(targets.base_level)));
            }
        }
        // A level 0 of this size is planned, and no reason to delay writes.
        let planned = if targets.is_lazy { targets.of(self.last()) / LAZY_PART } else { 0 };
        debt = debt.saturating_sub(planned);
        for level in targets.base_level..self.last() {
            let held = bytes(self.run(level)).saturating_add(arriving);
            // Level 0 counts in the target until it arrives.
            let counted = if level == targets.base_level { arriving.min(planned) } else { 0 };
            let excess = held.saturating_sub(targets.of(level).saturating_add(counted));
            if excess > 0 {
                let below = bytes(self.run(level + 1)) as f64 / held as f64;
                // The cast from a float saturates.
                let written = (excess as f64 * (1.0 + below)) as u64;
                debt = debt.saturating_add(written);
            }
            arriving = excess;
        }
        Debt { level0_runs, level0_runs_kept, bytes: debt }
    }

    /// Returns the runs of level 0 that compactions reduce.
    fn level0_runs_free(&self) -> usize {
        if !self.has_quarantined() {
            return self.level0().len();
        }
        let of_group = |group: &Run<'_>| {
            let quarantined = group.iter().filter(|table| self.is_quarantined(table));
            let newest = quarantined.map(|table| table.run).max();
            let runs = group.iter().map(|table| table.run).filter(|&run| newest < Some(run));
            runs.collect::<HashSet<_>>().len()
        };
        self.level0_groups().iter().map(of_group).max().unwrap_or(0)
    }

    /// Returns the bytes of level 0 that are merged into the base level next.
    fn level0_bytes(&self, targets: &Targets, options: &LevelOptions) -> u64 {
        let groups = self.level0_groups();
        bytes(groups.iter().filter(|group| self.goes_down(group, targets, options)).flatten())
    }
}
