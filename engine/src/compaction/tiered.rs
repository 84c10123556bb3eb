//! Compactions of a keyspace with [`CompactionStyle::SizeTiered`](crate::CompactionStyle).
//!
//! Each run of level 0 and each deeper level is a sorted run. Only runs adjacent in age are merged,
//! as a whole, in this order:
//!
//! 1. **Space**: all runs, if those above the oldest exceed
//!    [`space_percent_max`](SizeTiered::space_percent_max) of it.
//! 2. **Size**: neighbors of similar size, by
//!    [`size_ratio_percent`](SizeTiered::size_ratio_percent).
//! 3. **Count**: neighbors of any size, from more than [`runs_max`](SizeTiered::runs_max) runs on.
//!
//! A merge reads at most [`merged_runs_max`](super::levels::LevelOptions::merged_runs_max) runs:
//! the cheapest neighbors of those that the rule chooses.
//!
//! Among merges by one rule, the merge that rewrites the fewest bytes per removed run is chosen. A
//! run with a busy or quarantined table is not merged, and no other run is merged past it.
//!
//! The result replaces its inputs: in level 0 with the number of the newest, below it in the
//! deepest level of the inputs. A merge with the oldest run goes to the last level. Nothing is
//! older, so its tombstones are dropped.
//!
//! RocksDB's universal compaction has the same three rules, and extends a merge from its newest run
//! on. Cassandra's `SizeTieredCompactionStrategy` merges by size alone, in any order: its entries
//! have timestamps of their own.

use std::ops::Range;

use super::{
    choice::{Compaction, Reason},
    levels::{Levels, Run, bytes},
    picker::Picker,
};
use crate::{compaction_style::SizeTiered, table::TableMeta};

/// Runs of the longest window that the second and third rule consider. Another style or a pause may
/// leave any number of runs, and the search takes the time of all windows.
const WINDOW_RUNS_MAX: usize = 300;

impl<'a> Levels<'a> {
    /// Returns the sorted runs with their levels, newest first.
    pub(super) fn sorted_runs(&self) -> impl Iterator<Item = (u8, &Run<'a>)> {
        let deeper = (1..=self.last()).map(|level| (level, self.run(level)));
        let level0 = self.level0().iter().map(|run| (0, run));
        level0.chain(deeper).filter(|(_, run)| !run.is_empty())
    }
}

impl Picker<'_> {
    /// Merges neighboring sorted runs.
    pub(super) fn pick_tiered(&self, options: &SizeTiered) -> Option<Compaction> {
        self.merge_neighbors(options, |_| false)
    }

    /// Merges neighboring runs of level 0 with numbers from `first_run` on.
    pub(super) fn pick_newer_tiered(
        &self,
        options: &SizeTiered,
        first_run: u64,
    ) -> Option<Compaction> {
        self.merge_neighbors(options, |table| table.level > 0 || table.run < first_run)
    }

    /// Merges neighboring sorted runs without a table that `is_excluded`.
    fn merge_neighbors(
        &self,
        options: &SizeTiered,
        is_excluded: impl Fn(&TableMeta) -> bool,
    ) -> Option<Compaction> {
        let runs: Vec<_> = self.levels.sorted_runs().collect();
        let size_of = |&(_, run): &(u8, &Run<'_>)| {
            let stays = |table: &TableMeta| {
                self.levels.is_busy(table)
                    || self.levels.is_quarantined(table)
                    || is_excluded(table)
            };
            (!run.iter().any(|table| stays(table))).then(|| bytes(run))
        };
        let sizes: Vec<_> = runs.iter().map(size_of).collect();
        let merged = runs_to_merge(&sizes, options)?;
        let merged = self.few_of(merged, &sizes);
        let is_with_oldest = merged.end == runs.len();
        let merged = &runs[merged];
        let output_level = match merged {
            _ if is_with_oldest => self.levels.last(),
            [.., (level, _)] => *level,
            [] => return None,
        };
        let by_level = merged.chunk_by(|(newer, _), (older, _)| newer == older);
        let inputs = by_level.map(|runs| {
            let tables = runs.iter().flat_map(|(_, run)| run.iter().copied());
            (runs[0].0, tables.collect())
        });
        self.compaction(Reason::SizeTiered, inputs.collect(), output_level)
    }

    /// Returns the cheapest neighbors of the runs `merged`, if these are too many for a merge.
    fn few_of(&self, merged: Range<usize>, sizes: &[Option<u64>]) -> Range<usize> {
        let runs = merged.len().min(self.options.merged_runs_max);
        let starts = merged.start..=merged.end - runs;
        let cost = |start: &usize| -> u64 { sizes[*start..start + runs].iter().flatten().sum() };
        let start = starts.min_by_key(cost).unwrap_or(merged.start);
        start..start + runs
    }

    /// Returns `merge` without a run between two others: a planted bug.
    pub(crate) fn without_middle_run(&self, mut merge: Compaction) -> Compaction {
        if let Some(input) = merge.inputs.iter_mut().find(|input| input.level == 0) {
            let runs = self.levels.level0().iter();
            let is_input = |table: u64| input.tables.contains(&table);
            let inputs: Vec<&Run<'_>> = runs.filter(|run| is_input(run[0].id)).collect();
            if let [_, middle, ..] = &*inputs
                && inputs.len() > 2
            {
                input.tables.retain(|id| middle.iter().all(|table| table.id != *id));
            }
        }
        merge
    }
}

/// Returns the runs to merge, if any. `sizes` has the bytes of each run, newest first; `None` for a
/// run that must stay.
fn runs_to_merge(sizes: &[Option<u64>], options: &SizeTiered) -> Option<Range<usize>> {
    let percent = |bytes: u64, percent: u64| u128::from(bytes) * u128::from(percent);
    let free: Vec<u64> = sizes.iter().copied().flatten().collect();
    let runs = free.len() as u64;
    if runs < options.merge_runs_min {
        return None;
    }
    if free.len() == sizes.len()
        && let Some((&oldest, newer)) = free.split_last()
    {
        let newer = newer.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        if percent(newer, 100) > percent(oldest, options.space_percent_max) {
            return Some(0..sizes.len());
        }
    }
    let is_similar = |window: &Window| {
        let others = window.bytes - window.largest;
        window.runs.len() as u64 >= options.merge_runs_min
            && percent(window.largest, 100).saturating_mul(window.runs.len() as u128 - 1)
                <= percent(others, options.size_ratio_percent)
    };
    let of_count = runs.checked_sub(options.runs_max).filter(|&excess| excess > 0);
    let is_enough = |window: &Window| {
        of_count.is_some_and(|excess| window.runs.len() as u64 == excess.saturating_add(1))
    };
    // Of equal windows, the newest is first.
    let by_size = windows(sizes).filter(is_similar).min_by_key(Window::bytes_per_run);
    // If blocked runs lie between, a shorter window must suffice.
    let by_count = || windows(sizes).filter(is_enough).min_by_key(Window::bytes_per_run);
    let any = || windows(sizes).filter(|_| of_count.is_some()).min_by_key(Window::bytes_per_run);
    by_size.or_else(by_count).or_else(any).map(|window| window.runs)
}

/// At least two neighboring runs that can be merged.
#[derive(Debug, Clone)]
struct Window {
    runs: Range<usize>,
    bytes: u64,
    largest: u64,
}

impl Window {
    /// Returns the bytes rewritten for each removed run.
    fn bytes_per_run(&self) -> u64 {
        self.bytes / (self.runs.len() as u64 - 1)
    }
}

/// Returns the windows of at most [`WINDOW_RUNS_MAX`] runs.
fn windows(sizes: &[Option<u64>]) -> impl Iterator<Item = Window> {
    (0..sizes.len()).flat_map(move |start| {
        let (mut bytes, mut largest) = (0_u64, 0);
        let free = sizes[start..].iter().map_while(|size| *size).zip(start + 1..);
        let free = free.take(WINDOW_RUNS_MAX);
        let longer = free.map(move |(size, end)| {
            bytes = bytes.saturating_add(size);
            largest = size.max(largest);
            Window { runs: start..end, bytes, largest }
        });
        longer.skip(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_of_similar_size_are_merged() {
        let merged = |sizes: &[u64], options: SizeTiered| {
            let sizes: Vec<_> = sizes.iter().map(|&size| Some(size).filter(|&it| it > 0)).collect();
            runs_to_merge(&sizes, &options)
        };
        let new = SizeTiered::new;
        // Bytes by run, newest first; 0 for a run that stays.
        type Case<'a> = (&'a str, &'a [u64], SizeTiered, Option<Range<usize>>);
        let cases: [Case<'_>; 15] = [
            ("nothing", &[], new(), None),
            ("two of one size", &[10, 10, 99], new().merge_runs_min(2), Some(0..2)),
            ("too few", &[1, 1, 1], new(), None),
            ("of one size", &[10, 10, 10, 10, 99], new(), Some(0..4)),
            ("similar", &[10, 9, 14, 10, 99], new(), Some(0..4)),
            ("not similar", &[10, 10, 10, 20, 99], new(), None),
            ("a small one between", &[10, 1, 10, 10, 10, 99], new(), Some(0..4)),
            ("the cheapest tier", &[4, 4, 4, 4, 1, 1, 1, 1, 99], new(), Some(4..8)),
            ("a tier below", &[1, 1, 1, 9, 9, 9, 9, 99], new(), Some(2..6)),
            ("much space", &[50, 50, 50, 50, 99], new(), Some(0..5)),
            ("much space, but not free", &[50, 0, 150, 90, 99], new(), None),
            ("never past one that stays", &[1, 1, 0, 1, 1, 99], new(), None),
            ("too many", &[3, 9, 2, 8, 30], new().runs_max(4), Some(2..4)),
            ("far too many", &[1, 9, 2, 8, 30], new().merge_runs_min(3).runs_max(3), Some(0..3)),
            ("too many, one stays", &[3, 9, 0, 8, 30, 99], new().runs_max(4), Some(0..2)),
        ];
        for (name, sizes, options, want) in cases {
            let is_blocked = sizes.contains(&0);
            let got = merged(sizes, options);
            assert_eq!(got, want, "{name}");
            let stays = |range: Range<usize>| sizes[range].contains(&0);
            assert!(!is_blocked || !got.is_some_and(stays), "{name}");
        }
    }

    /// Such as FIFO leaves them, with a quarantined one.
    #[test]
    fn a_search_in_many_runs_ends() {
        let mut sizes = vec![Some(10); 10_000];
        sizes[5_000] = None;
        let merged = runs_to_merge(&sizes, &SizeTiered::new());
        assert_eq!(merged, Some(0..12));
        assert_eq!(windows(&sizes).map(|window| window.runs.len()).max(), Some(300));
    }
}
