//! Statistics of a level.

/// State of a level, and lookups and scans of it.
///
/// A candidate is a table whose bounds contain the key of a lookup. `candidates` is the sum of
/// `filter_negatives`, `true_positives` and `false_positives`; a table without a usable filter
/// counts as a positive. A table that cannot be read counts in neither, but its filter is counted.
/// [`may_contain`](crate::Keyspace::may_contain) counts no candidates, because it is unknown
/// whether positive probes are true.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Sorted runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub bytes: u64,
    /// Entries in the tables, tombstones and old versions included.
    pub entries: u64,
    /// Tombstones in the tables.
    pub tombstones: u64,
    /// Filters in memory, in bytes.
    pub filter_bytes: u64,
    /// Filters if all were whole in memory, in bytes.
    pub filter_bytes_whole: u64,
    /// Tables whose filter cannot be used, in whole or in part.
    pub tables_with_unusable_filters: u64,
    /// Tables whose filter is not, or only partly, in memory: see
    /// [`Stats::filters_not_whole`](super::Stats::filters_not_whole).
    pub filters_not_whole: u64,
    /// Expected false-positive rate of the present filters, from 0 to 1: the mean over runs of the
    /// mean over tables by keys. A table whose filter is not in memory counts as 1.
    pub filter_fpr_expected: f64,
    /// Candidates of lookups.
    pub candidates: u64,
    /// Candidates ruled out by their filter.
    pub filter_negatives: u64,
    /// Candidates that had the key, after a positive probe.
    pub filter_true_positives: u64,
    /// Candidates without the key, after a positive probe.
    pub filter_false_positives: u64,
    /// Expected value of `filter_false_positives`: the sum of the expected rates of the filters at
    /// each probe for a key that the table did not have.
    pub false_positives_expected: f64,
    /// Candidates searched that had the key.
    pub true_positives: u64,
    /// Candidates searched that did not have the key.
    pub false_positives: u64,
    /// Candidates searched because their filter was unusable.
    pub filter_unusable: u64,
    /// Candidates searched because their filter was not in memory: see
    /// [`filters_not_whole`](Self::filters_not_whole).
    pub filter_not_resident: u64,
    /// Prefix filters probed by scans.
    pub prefix_probes: u64,
    /// Tables ruled out for a scan by their prefix filter.
    pub prefix_negatives: u64,
    /// Tables whose prefix filter a scan could not use: damaged, of another extractor, or of one
    /// whose function is missing.
    pub prefix_unusable: u64,
    /// Range filters probed by scans, of tables with keys on both sides of the bounds.
    pub range_probes: u64,
    /// Tables ruled out for a scan by their range filter.
    pub range_negatives: u64,
    /// Tables whose range filter was damaged when a scan came.
    pub range_unusable: u64,
    /// Tombstones that scans skipped, and merge operands that scans applied beyond the first 64 of
    /// a key. Compactions remove both where there are many.
    pub tombstones_skipped: u64,
    /// Data blocks requested by lookups.
    pub data_block_requests: u64,
    /// Index partitions requested by lookups.
    pub index_block_requests: u64,
    /// Blocks read from the file because the cache did not have them.
    pub blocks_read: u64,
    /// Length of these blocks in the file, in bytes.
    pub bytes_read: u64,
}

/// Size of a level of one keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelShape {
    /// Number of the level.
    pub level: u8,
    /// Sorted runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub bytes: u64,
    /// Entries in the tables, tombstones and old versions included.
    pub entries: u64,
}

impl LevelStats {
    /// Returns the number of filters probed by lookups.
    #[must_use]
    pub fn filter_probes(&self) -> u64 {
        self.filter_negatives + self.filter_true_positives + self.filter_false_positives
    }

    /// Returns the measured false-positive rate, from 0 to 1: the share of positive probes among
    /// those for absent keys; 0 without such probes.
    #[must_use]
    pub fn filter_fpr_measured(&self) -> f64 {
        self.per_absent_probe(self.filter_false_positives as f64)
    }

    /// Returns the expected value of [`filter_fpr_measured`](Self::filter_fpr_measured): the mean
    /// of the expected rates of the filters at the time of each probe.
    #[must_use]
    pub fn filter_fpr_expected_of_probes(&self) -> f64 {
        self.per_absent_probe(self.false_positives_expected)
    }

    fn per_absent_probe(&self, sum: f64) -> f64 {
        let absent = self.filter_negatives + self.filter_false_positives;
        if absent == 0 { 0.0 } else { sum / absent as f64 }
    }

    /// Returns the number of requests for data blocks that filters saved: one for each table ruled
    /// out. Some of these blocks would have been in the cache.
    #[must_use]
    pub fn reads_saved(&self) -> u64 {
        self.filter_negatives
    }

    /// Returns the sum of both levels.
    pub(crate) fn plus(mut self, mut other: Self) -> Self {
        let runs = self.runs + other.runs;
        let rates = self.filter_fpr_expected * self.runs as f64
            + other.filter_fpr_expected * other.runs as f64;
        for of in [Self::held_mut, Self::counted_mut] {
            for ((_, sum), (_, more)) in of(&mut self).into_iter().zip(of(&mut other)) {
                *sum += *more;
            }
        }
        self.filter_fpr_expected = rates / (runs as f64).max(1.0);
        self.false_positives_expected += other.false_positives_expected;
        self
    }

    /// Returns the state, by name.
    pub(super) fn held_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        named! {
            "" self => runs tables bytes entries tombstones filter_bytes filter_bytes_whole
                tables_with_unusable_filters filters_not_whole;
        }
    }

    /// Returns the counters, by name.
    pub(super) fn counted_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        named! {
            "" self => candidates filter_negatives filter_true_positives filter_false_positives
                true_positives false_positives filter_unusable filter_not_resident prefix_probes
                prefix_negatives prefix_unusable range_probes range_negatives range_unusable
                tombstones_skipped data_block_requests index_block_requests blocks_read bytes_read;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_filters_that_were_asked() {
        let level = LevelStats {
            filter_negatives: 970,
            filter_true_positives: 100,
            filter_false_positives: 30,
            false_positives_expected: 20.0,
            // A run without a filter was searched as often.
            false_positives: 1_030,
            ..LevelStats::default()
        };
        assert_eq!(level.filter_probes(), 1_100);
        assert_eq!(level.filter_fpr_measured(), 0.03);
        assert_eq!(level.filter_fpr_expected_of_probes(), 0.02);
        assert_eq!(level.reads_saved(), 970);
        assert_eq!(LevelStats::default().filter_fpr_measured(), 0.0);
    }

    #[test]
    fn levels_add_up() {
        let level = |runs, rate, expected, candidates| LevelStats {
            runs,
            filter_fpr_expected: rate,
            false_positives_expected: expected,
            candidates,
            ..LevelStats::default()
        };
        let sum = level(3, 0.01, 1.5, 10).plus(level(1, 0.05, 0.5, 7));
        assert_eq!(sum, level(4, 0.02, 2.0, 17));
    }
}
