//! Shape of a store and counters of its tables, level by level.

use serde::Serialize;
use sievedb::Stats;

/// A level of the tree and its counters since the store was opened. [`since`] returns levels with
/// the counters of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Level {
    pub(crate) level: u8,
    pub(crate) runs: u64,
    pub(crate) tables: u64,
    pub(crate) entries: u64,
    pub(crate) table_bytes: u64,
    pub(crate) filter_memory_bytes: u64,
    /// Expected false-positive rate of a probe of this level's filters, from 0 to 1.
    pub(crate) false_positive_rate_expected: f64,
    pub(crate) counters: Counters,
}

/// Counters of lookups. Never decrease while a store is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counters {
    /// Tables whose bounds contain the key, so that their filter was probed.
    pub(crate) candidates: u64,
    /// Candidates with an unusable filter.
    pub(crate) filter_unusable: u64,
    /// Candidates skipped by their filter.
    pub(crate) negatives: u64,
    /// Searched candidates that have the key.
    pub(crate) true_positives: u64,
    /// Searched candidates without the key, filtered or not.
    pub(crate) false_positives: u64,
    pub(crate) data_block_requests: u64,
    pub(crate) index_block_requests: u64,
    /// Blocks of either kind that were not in the cache.
    pub(crate) blocks_read: u64,
    /// Size of those blocks in their files.
    pub(crate) bytes_read: u64,
}

impl Counters {
    fn combined(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let by = |field: fn(&Self) -> u64| combine(field(&self), field(&other));
        Self {
            candidates: by(|c| c.candidates),
            filter_unusable: by(|c| c.filter_unusable),
            negatives: by(|c| c.negatives),
            true_positives: by(|c| c.true_positives),
            false_positives: by(|c| c.false_positives),
            data_block_requests: by(|c| c.data_block_requests),
            index_block_requests: by(|c| c.index_block_requests),
            blocks_read: by(|c| c.blocks_read),
            bytes_read: by(|c| c.bytes_read),
        }
    }

    /// Returns the number of searched candidates: their filter did not reject the key.
    pub(crate) fn searched(&self) -> u64 {
        self.true_positives + self.false_positives
    }
}

/// Returns the levels of `stats` that have tables.
pub(crate) fn levels(stats: &Stats) -> Vec<Level> {
    let levels = stats.levels.iter().zip(0..).filter(|(stats, _)| stats.tables > 0);
    let levels = levels.map(|(stats, level)| Level {
        level,
        runs: stats.runs,
        tables: stats.tables,
        entries: stats.entries,
        table_bytes: stats.bytes,
        filter_memory_bytes: stats.filter_bytes,
        false_positive_rate_expected: stats.filter_fpr_expected,
        counters: Counters {
            candidates: stats.candidates,
            filter_unusable: stats.filter_unusable,
            negatives: stats.filter_negatives,
            true_positives: stats.true_positives,
            false_positives: stats.false_positives,
            data_block_requests: stats.data_block_requests,
            index_block_requests: stats.index_block_requests,
            blocks_read: stats.blocks_read,
            bytes_read: stats.bytes_read,
        },
    });
    levels.collect()
}

/// Returns the counts between `before` and `after`, of a store whose tables did not change.
pub(crate) fn since(before: &[Level], after: &[Level]) -> Vec<Level> {
    let counted = after.iter().map(|after| {
        let before = before.iter().find(|before| before.level == after.level);
        let start = before.map(|before| before.counters).unwrap_or_default();
        // A counter that decreased becomes a huge number, which the checks reject.
        let counters = after.counters.combined(start, u64::wrapping_sub);
        Level { counters, ..after.clone() }
    });
    counted.collect()
}

/// Adds up the counters of all levels.
pub(crate) fn total(levels: &[Level]) -> Counters {
    let counters = levels.iter().map(|level| level.counters);
    counters.fold(Counters::default(), |sum, level| sum.combined(level, u64::wrapping_add))
}

/// Returns the number of filter probes for keys that the table does not have, and their expected
/// false-positive rate. `None` without probes.
pub(crate) fn false_positives_expected(levels: &[Level]) -> Option<(u64, f64)> {
    let (mut probes, mut expected) = (0, 0.0);
    for level in levels {
        // Without a filter, each search that finds nothing counts as a false positive.
        if level.filter_memory_bytes > 0 && level.counters.filter_unusable == 0 {
            let of_level = level.counters.negatives + level.counters.false_positives;
            probes += of_level;
            expected += of_level as f64 * level.false_positive_rate_expected;
        }
    }
    (probes > 0).then(|| (probes, expected / probes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(number: u8, counters: Counters, rate: f64) -> Level {
        Level { level: number, counters, false_positive_rate_expected: rate, ..Level::default() }
    }

    #[test]
    fn counts_since_a_measurement_are_per_level() {
        let counted = |negatives| Counters { negatives, candidates: 100, ..Counters::default() };
        let before = [level(0, counted(5), 0.0)];
        let after = [level(0, counted(7), 0.0), level(6, counted(9), 0.0)];
        let levels = since(&before, &after);
        assert_eq!(levels.iter().map(|l| l.counters.negatives).collect::<Vec<_>>(), [2, 9]);
        assert_eq!((total(&levels).negatives, total(&levels).candidates), (11, 100));
    }

    #[test]
    fn expected_rates_are_weighted_by_probes() {
        let probed = |negatives, false_positives, rate, filter_memory_bytes| {
            let counters = Counters { negatives, false_positives, ..Counters::default() };
            Level { filter_memory_bytes, ..level(0, counters, rate) }
        };
        let filtered = [probed(90, 10, 0.02, 64), probed(300, 0, 0.01, 64)];
        let (count, rate) = false_positives_expected(&filtered).unwrap();
        assert_eq!(count, 400);
        assert!((rate - 0.0125).abs() < 1e-12, "{rate}");
        assert_eq!(false_positives_expected(&[probed(0, 10, 1.0, 0)]), None);
        assert_eq!(false_positives_expected(&[]), None);
    }
}
