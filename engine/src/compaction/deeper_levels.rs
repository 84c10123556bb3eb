//! The tables older than the output of a compaction.

use sievedb_format::TableBounds;

use super::levels::{Levels, Run, overlap};

/// The tables older than the output of a compaction, for a scan over ascending keys.
///
/// Its results stay valid while the compaction runs, although deeper levels change: only a
/// compaction of one of its inputs could move a key of the inputs there.
#[derive(Debug, Clone)]
pub(crate) struct DeeperLevels {
    /// Bounds of the tables of each level, and the first table that does not end before the last
    /// key.
    levels: Vec<(Vec<TableBounds>, usize)>,
}

impl DeeperLevels {
    /// Collects the tables of `levels` below `output_level` that overlap `bounds`. For level 0,
    /// also collects tables of level 0 older than `output_run`. `levels` must not contain the
    /// inputs of the compaction.
    pub(crate) fn new(
        levels: &Levels<'_>,
        output_level: u8,
        output_run: u64,
        bounds: &TableBounds,
    ) -> Self {
        let ranges = |run: &Run<'_>| -> Vec<TableBounds> {
            overlap(run, bounds).iter().map(|table| table.bounds.clone()).collect()
        };
        let deeper = (output_level..=levels.last()).skip(1).map(|level| ranges(levels.run(level)));
        let is_older =
            |run: &&Run<'_>| output_level == 0 && run.iter().all(|table| table.run < output_run);
        let level0 = levels.level0().iter().filter(is_older).map(ranges);
        Self {
            levels: level0
                .chain(deeper)
                .filter(|run| !run.is_empty())
                .map(|run| (run, 0))
                .collect(),
        }
    }

    /// Returns `true` if one of the tables may hold a key within `bounds`.
    pub(crate) fn may_overlap(&self, bounds: &TableBounds) -> bool {
        self.levels.iter().any(|(run, _)| {
            let first = run.partition_point(|table| table.is_before(bounds));
            run.get(first).is_some_and(|table| table.overlaps(bounds))
        })
    }

    /// Returns `true` if one of the tables may hold `user_key`. Keys must be given in ascending
    /// order, with repetitions allowed.
    pub(crate) fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.levels.iter_mut().any(|(run, at)| {
            *at += run[*at..].iter().take_while(|it| it.ends_below(user_key)).count();
            run.get(*at).is_some_and(|bounds| !bounds.starts_above(user_key))
        })
    }
}
