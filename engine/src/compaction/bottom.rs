//! Whether a deeper level may still hold a key.

use sievedb_format::TableBounds;

use super::levels::{Levels, Run, overlap};

/// The tables below the output of a compaction, for a walk over ascending keys.
///
/// The answer stays right while the compaction runs, though deeper levels change: whatever may bring
/// one of its keys down there would have to take one of its inputs.
#[derive(Debug)]
pub(crate) struct DeeperLevels {
    /// Per level the bounds of its tables, and the first table that does not lie
    /// before the last key asked for.
    levels: Vec<(Vec<TableBounds>, usize)>,
}

impl DeeperLevels {
    /// The tables of `levels` below `output_level` that overlap `bounds`.
    pub(crate) fn new(levels: &Levels<'_>, output_level: u8, bounds: &TableBounds) -> Self {
        let ranges = |run: &Run<'_>| -> Vec<TableBounds> {
            overlap(run, bounds).iter().map(|table| table.bounds.clone()).collect()
        };
        let deeper = (output_level..=levels.last()).skip(1).map(|level| ranges(levels.run(level)));
        Self { levels: deeper.filter(|run| !run.is_empty()).map(|run| (run, 0)).collect() }
    }

    /// Whether one of them may hold `user_key`. Keys must be asked for in ascending order; repeating
    /// one is fine.
    pub(crate) fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.levels.iter_mut().any(|(run, at)| {
            *at += run[*at..].iter().take_while(|it| it.ends_below(user_key)).count();
            run.get(*at).is_some_and(|bounds| !bounds.starts_above(user_key))
        })
    }
}
