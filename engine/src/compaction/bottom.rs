//! Whether a deeper level may still hold a key.

use std::sync::Arc;

use super::levels::{Levels, Run, overlap};

/// The tables below the output of a compaction, for a walk over ascending keys.
///
/// The answer stays right while the compaction runs, though deeper levels change: whatever may bring
/// one of its keys down there would have to take one of its inputs.
#[derive(Debug)]
pub(crate) struct DeeperLevels {
    /// Per level the smallest and largest keys of its tables, and the first table that does not lie
    /// before the last key asked for.
    levels: Vec<(Vec<KeyRange>, usize)>,
}

/// The smallest and the largest user key of a table.
type KeyRange = (Arc<[u8]>, Arc<[u8]>);

impl DeeperLevels {
    /// The tables of `levels` below `output_level` with keys from `smallest` to `largest`.
    pub(crate) fn new(
        levels: &Levels<'_>,
        output_level: u8,
        smallest: &[u8],
        largest: &[u8],
    ) -> Self {
        let ranges = |run: &Run<'_>| -> Vec<KeyRange> {
            let tables = overlap(run, smallest, largest).iter();
            tables.map(|table| (table.smallest.clone(), table.largest.clone())).collect()
        };
        let deeper = (output_level..=levels.last()).skip(1).map(|level| ranges(levels.run(level)));
        Self { levels: deeper.filter(|run| !run.is_empty()).map(|run| (run, 0)).collect() }
    }

    /// Whether one of them may hold `user_key`. Keys must be asked for in ascending order; repeating
    /// one is fine.
    pub(crate) fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.levels.iter_mut().any(|(run, at)| {
            *at += run[*at..].iter().take_while(|(_, largest)| **largest < *user_key).count();
            run.get(*at).is_some_and(|(smallest, _)| **smallest <= *user_key)
        })
    }
}
