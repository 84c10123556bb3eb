//! Whether an older table may still hold a key.

use sievedb_format::TableBounds;

use super::levels::{Levels, Run, overlap};

/// The tables older than the output of a compaction, for a walk over ascending keys.
///
/// The answer stays right while the compaction runs, though deeper levels change: whatever may
/// bring one of its keys down there would have to take one of its inputs.
#[derive(Debug)]
pub(crate) struct DeeperLevels {
    /// Per level the bounds of its tables, and the first table that does not lie
    /// before the last key asked for.
    levels: Vec<(Vec<TableBounds>, usize)>,
}

impl DeeperLevels {
    /// The tables of `levels` below `output_level` that overlap `bounds`; for level 0, also those
    /// of level 0 that are older than `output_run`. `levels` must be without the inputs of the
    /// compaction.
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

    /// Whether one of them may hold `user_key`. Keys must be asked for in ascending order;
    /// repeating one is fine.
    pub(crate) fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.levels.iter_mut().any(|(run, at)| {
            *at += run[*at..].iter().take_while(|it| it.ends_below(user_key)).count();
            run.get(*at).is_some_and(|bounds| !bounds.starts_above(user_key))
        })
    }
}
