//! Compactions of level 0: into the base level, or of its runs with each other.
//!
//! Tables that overlap, directly or through others, form a group. Level 0 is due from
//! [`level0_runs`](LevelOptions::level0_runs) sorted runs on.
//!
//! * A group is compacted **into the base level** if that rewrites at most [`BELOW_MAX`] bytes
//!   there per byte of the group, or one if the level is [lazy](super::levels::Targets::is_lazy).
//!   Also if level 0 has [`runs_max`](LevelOptions::runs_max) runs, and the tables below are no
//!   more than the least base level. The whole group is compacted, so that no older table is left
//!   above a newer one.
//! * Otherwise, or while another compaction blocks it, its **newest runs are merged into one run of
//!   level 0**. These are at least `level0_runs` runs, and each further run that is not larger than
//!   the newer ones together. From `runs_max` runs on, the runs that are cheapest per removed run
//!   are merged, also of several groups. If there are too few, a group is compacted into the base
//!   level at any cost.
//! * A merge reads at most [`merged_runs_max`](LevelOptions::merged_runs_max) runs, so that its
//!   buffers fit in memory: the base level and the oldest runs of a group that is compacted into
//!   it, or else the cheapest neighbors.
//! * Tables that overlap no other table of level 0 follow the groups. All that can **be moved** are
//!   moved at once, except small ones. From twice `runs_max` of these on, level 0 is merged.
//!
//! With the first rule alone, every four flushes rewrite the whole base level. With a budget of 32
//! MiB and 2 million entries, that is 12.7 bytes per byte flushed. With both, run sizes about
//! double from one to the next, and level 0 rewrites a byte about once for each doubling. This is
//! tiering in level 0 and leveling below it. Source: Dayan and Idreos, "Dostoevsky", SIGMOD 2018,
//! section 4 (lazy leveling).
//!
//! # Quarantined tables
//!
//! A [quarantined](super::levels::Levels::quarantine) table cannot be read, so it is never merged,
//! and no newer data is merged past it. In a group with such a table:
//!
//! 1. Runs older than it are compacted into the base level.
//! 2. Then the table is moved to the deepest level that is above all older data.
//! 3. If there is no such level, it stays. The runs above it are merged with each other, from
//!    [`runs_max`](LevelOptions::runs_max) runs on even if their sizes differ.
//!
//! Rule 3 also applies to a group above a quarantined table of level 1. Deeper levels need no rule:
//! level 0 is then compacted into the level above the table, see [`Levels::targets`].

use sievedb_format::TableBounds;

use super::{
    choice::{Compaction, DEEPER_RUN, Reason},
    levels::{LevelOptions, Levels, Run, Targets, bytes},
    picker::{Picker, hull},
};
use crate::{compaction_style::CompactionStyle, table::TableMeta};

/// Maximum bytes of the base level rewritten for each byte of level 0.
const BELOW_MAX: u64 = 2;
/// The same for a base level that moves down as level 0 grows.
const LAZY_BELOW_MAX: u64 = 1;

impl<'a> Levels<'a> {
    /// Returns the tables of level 0 in groups without a common key, in key order.
    pub(super) fn level0_groups(&self) -> Vec<Run<'a>> {
        let mut tables: Vec<_> = self.level0().iter().flatten().copied().collect();
        tables.sort_by(|left, right| left.bounds.cmp_starts(&right.bounds));
        let mut groups: Vec<Run<'a>> = Vec::new();
        let mut reach: Option<&TableBounds> = None;
        for table in tables {
            match groups.last_mut() {
                Some(group) if reach.is_some_and(|it| !it.is_before(&table.bounds)) => {
                    group.push(table);
                }
                _ => groups.push(vec![table]),
            }
            reach = reach.into_iter().chain([&table.bounds]).max_by(|a, b| a.cmp_ends(b));
        }
        groups
    }

    /// Returns `true` if a group of tables of level 0 is compacted into `base_level` once level 0
    /// is due.
    pub(super) fn goes_down(
        &self,
        group: &Run<'a>,
        targets: &Targets,
        options: &LevelOptions,
    ) -> bool {
        let base_level = targets.base_level;
        let below = hull(group).map_or(0, |bounds| bytes(self.overlap(base_level, &bounds)));
        let own = self.bytes_with_removed(group, base_level);
        let factor = if targets.is_lazy { LAZY_BELOW_MAX } else { BELOW_MAX };
        let is_full = self.level0().len() >= options.runs_max();
        (below <= own.saturating_mul(factor) || is_full && below <= options.base_level_bytes_max)
            && !self.is_kept_in_level0(group, base_level)
    }

    /// Returns the bytes of a group of tables of level 0, plus an upper bound of the bytes in
    /// `base_level` that its tombstones remove. The freed space makes up for the latter.
    pub(super) fn bytes_with_removed(&self, group: &Run<'_>, base_level: u8) -> u64 {
        let below = hull(group).map(|bounds| self.overlap(base_level, &bounds));
        let below: Vec<_> = below.into_iter().flatten().collect();
        let held: u64 = below.iter().map(|table| table.bytes).sum();
        let entries: u64 = below.iter().map(|table| table.entries).sum();
        let tombstones: u64 = group.iter().map(|table| table.tombstones).sum();
        let removed = u128::from(held) * u128::from(tombstones) / u128::from(entries.max(1));
        bytes(group).saturating_add(u64::try_from(removed).unwrap_or(u64::MAX).min(held))
    }

    /// Returns `true` if these tables of level 0 cannot be merged into `base_level`: one of them,
    /// or one that they overlap there, is quarantined.
    pub(super) fn is_kept_in_level0(&self, tables: &Run<'a>, base_level: u8) -> bool {
        let below = hull(tables).map(|bounds| self.overlap(base_level, &bounds));
        let mut all = tables.iter().chain(below.into_iter().flatten());
        all.any(|table| self.is_quarantined(table))
    }

    /// Returns the deepest level below 0 where `table` of level 0, the oldest of its group, is
    /// above all other data in its range.
    fn free_level(&self, table: &TableMeta) -> Option<u8> {
        (1..=self.last()).take_while(|&level| self.overlap(level, &table.bounds).is_empty()).last()
    }
}

impl<'a> Picker<'a> {
    /// Compacts the group of level 0 with most tables among those that can be compacted.
    pub(super) fn pick_level0(&self) -> Option<Compaction> {
        let targets = self.levels.targets(self.options);
        let mut groups = self.levels.level0_groups();
        // The sort is stable: of equal groups, the smallest key is first.
        groups.sort_by_key(|group| usize::MAX - group.len());
        let alone = groups.split_off(groups.partition_point(|group| group.len() > 1));
        let of_group = |group| self.pick_group(group, &targets);
        groups
            .into_iter()
            .find_map(of_group)
            .or_else(|| self.pick_alone(&alone.concat(), targets.base_level))
            .or_else(|| alone.into_iter().find_map(of_group))
    }

    /// Compacts several of `tables`, which overlap no other table of level 0. One by one, each
    /// would take a job and an edit of the manifest.
    fn pick_alone(&self, tables: &Run<'a>, base_level: u8) -> Option<Compaction> {
        let is_small = |table: &&TableMeta| table.bytes < self.small_bytes();
        let moves = |table: &&TableMeta| {
            !is_small(table)
                && !self.levels.is_busy(table)
                && !self.levels.is_quarantined(table)
                && self.levels.overlap(base_level, &table.bounds).is_empty()
                && !self.levels.is_blocked((base_level, DEEPER_RUN), &table.bounds)
                && !self.is_to_rewrite(table, base_level)
        };
        let mut moved: Run<'a> = tables.iter().copied().filter(moves).collect();
        if moved.len() > 1 {
            moved.sort_by_key(|table| u64::MAX - table.run);
            let moves = Compaction::moves(self.levels, Reason::Level0, moved, base_level);
            if moves.is_some() {
                return moves;
            }
        }
        let small = tables.iter().filter(|table| is_small(table)).count();
        let has_many_small = self.is_full() && small >= 2 * self.options.runs_max();
        has_many_small.then(|| self.merge_due(self.all_of_level0()))?
    }

    fn is_full(&self) -> bool {
        self.levels.level0().len() >= self.options.runs_max()
    }

    pub(super) fn all_of_level0(&self) -> Run<'a> {
        self.levels.level0().iter().flatten().copied().collect()
    }

    fn pick_group(&self, group: Run<'a>, targets: &Targets) -> Option<Compaction> {
        let base_level = targets.base_level;
        let oldest_runs = self.oldest_runs(group.clone(), 1);
        if self.levels.goes_down(&oldest_runs, targets, self.options) {
            let down = self.move_level0_down(Reason::Level0, oldest_runs);
            return down.or_else(|| self.merge_due(group));
        }
        let quarantined = group.iter().filter(|table| self.levels.is_quarantined(table));
        if let Some(&oldest) = quarantined.min_by_key(|table| table.run) {
            let older: Run<'a> =
                group.iter().copied().filter(|table| table.run < oldest.run).collect();
            if older.is_empty() {
                if let Some(level) = self.levels.free_level(oldest) {
                    return self.compaction(Reason::Level0, vec![(0, vec![oldest])], level);
                }
            } else if !self.levels.is_kept_in_level0(&older, base_level) {
                return self.move_level0_down(Reason::Level0, older);
            }
        }
        let is_full = self.is_full();
        let goes_down = is_full && !self.levels.is_kept_in_level0(&oldest_runs, base_level);
        self.merge_due(group)
            // Adjacent tables become one run at little cost.
            .or_else(|| is_full.then(|| self.merge_due(self.all_of_level0()))?)
            .or_else(|| goes_down.then(|| self.move_level0_down(Reason::Level0, oldest_runs))?)
    }

    /// Returns the oldest runs of tables of level 0, newest first, that a merge can read beside
    /// `others` deeper ones.
    pub(super) fn oldest_runs(&self, mut tables: Run<'a>, others: usize) -> Run<'a> {
        tables.sort_by_key(|table| u64::MAX - table.run);
        let runs: Vec<_> = tables.chunk_by(|a, b| a.run == b.run).collect();
        let runs_max = self.options.merged_runs_max.saturating_sub(others).max(1);
        runs[runs.len().saturating_sub(runs_max)..].concat()
    }

    /// Merges runs of a group that stays in a due level 0.
    fn merge_due(&self, group: Run<'a>) -> Option<Compaction> {
        self.merge_in_level0(Reason::Level0, group, |runs| self.options.runs_to_merge(runs))
    }

    /// Merges runs of level 0 with numbers from `first_run` on, while a compaction of a range holds
    /// the older ones. The result stays in level 0: below it, the range would have to be compacted
    /// again.
    pub(crate) fn pick_newer_level0(&self, first_run: u64) -> Option<Compaction> {
        match &self.options.style {
            CompactionStyle::Leveled => {
                let tables = self.levels.level0().iter().flatten().copied();
                self.merge_due(tables.filter(|table| table.run >= first_run).collect())
            }
            CompactionStyle::SizeTiered(options) => self.pick_newer_tiered(options, first_run),
            CompactionStyle::Fifo(_) => None,
        }
    }

    /// Compacts a group of overlapping tables of level 0, or its oldest runs, into the base level.
    pub(super) fn move_level0_down(&self, reason: Reason, group: Run<'a>) -> Option<Compaction> {
        self.with_overlap(reason, 0, group, self.levels.targets(self.options).base_level)
    }

    /// Merges adjacent runs of a group within level 0. `count` returns the number of runs to merge,
    /// newest first. Of too many, the cheapest neighbors are merged.
    pub(super) fn merge_in_level0(
        &self,
        reason: Reason,
        mut group: Run<'a>,
        count: impl Fn(&[&[&TableMeta]]) -> Option<usize>,
    ) -> Option<Compaction> {
        // The sort is stable: a run stays in key order.
        group.sort_by_key(|table| u64::MAX - table.run);
        let runs: Vec<&[&TableMeta]> = group.chunk_by(|a, b| a.run == b.run).collect();
        let stays = |run: &&[&TableMeta]| {
            run.iter().any(|table| self.levels.is_busy(table) || self.levels.is_quarantined(table))
        };
        let merged = runs.split(stays).find_map(|free| free.get(..count(free)?))?;
        let cost = |runs: &&[&[&TableMeta]]| -> u64 { runs.iter().map(|run| bytes(*run)).sum() };
        let few = merged.windows(merged.len().min(self.options.merged_runs_max));
        self.compaction(reason, vec![(0, few.min_by_key(cost)?.concat())], 0)
    }
}

impl LevelOptions {
    /// Returns the number of runs of level 0 from which on they are compacted at any cost. It is
    /// less than the number at which writes are delayed.
    pub(super) fn runs_max(&self) -> usize {
        self.level0_runs.saturating_mul(2)
    }

    /// Returns how many of `runs`, newest first, to merge within level 0, if any.
    fn runs_to_merge(&self, runs: &[&[&TableMeta]]) -> Option<usize> {
        let least = self.level0_runs.max(2);
        let mut newer = 0_u64;
        let (mut alike, mut cheapest) = (None, None);
        for (run, before) in runs.iter().zip(0..) {
            let own = bytes(*run);
            if before + 1 >= least {
                if own <= newer {
                    alike = Some(before + 1);
                }
                // Bytes rewritten for each removed run.
                let cost = (newer.saturating_add(own) / before as u64, before + 1);
                cheapest = Some(cheapest.map_or(cost, |least| cost.min(least)));
            }
            newer = newer.saturating_add(own);
        }
        let must = runs.len() >= self.runs_max();
        alike.or_else(|| cheapest.filter(|_| must).map(|(_, count)| count))
    }
}
