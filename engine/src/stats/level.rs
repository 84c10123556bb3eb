//! What a level holds, and what lookups did there.

/// What a level holds, and what lookups did there.
///
/// `candidates` is the sum of `filter_negatives`, `true_positives` and `false_positives`, where a
/// table without a usable filter counts as a positive. Filters were asked of
/// [`filter_probes`](Self::filter_probes) of them. What filters tell
/// [`may_contain`](crate::Keyspace::may_contain) is not counted: nobody looks whether a positive is
/// true.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Sorted runs at present.
    pub runs: u64,
    /// Tables at present.
    pub tables: u64,
    /// Length of the tables, in bytes.
    pub bytes: u64,
    /// Entries in the tables, tombstones and old versions included.
    pub entries: u64,
    /// Tombstones in the tables.
    pub tombstones: u64,
    /// Memory of the filters, in bytes.
    pub filter_bytes: u64,
    /// Memory that they would take if all of each were in memory, in bytes.
    pub filter_bytes_whole: u64,
    /// Tables whose filter cannot be used at present, or not all of it.
    pub tables_with_unusable_filters: u64,
    /// Tables of whose filter only a part is in memory, or nothing, for want of room.
    pub filters_not_whole: u64,
    /// Expected false-positive rate of the present filters, from 0 to 1: the mean over runs, each
    /// of which a lookup asks once; of a run the mean over its tables by their keys. A table whose
    /// filter is not in memory counts as 1.
    pub filter_fpr_expected: f64,
    /// Tables whose range held the key looked up.
    pub candidates: u64,
    /// Candidates that their filter ruled out.
    pub filter_negatives: u64,
    /// Candidates that had the key, and whose filter said maybe.
    pub filter_true_positives: u64,
    /// Candidates asked in vain because their filter said maybe.
    pub filter_false_positives: u64,
    /// What `filter_false_positives` should be: the expected rates of the filters, as they were at
    /// the time, added up over all probes for a key that the table did not have.
    pub false_positives_expected: f64,
    /// Candidates asked that had the key.
    pub true_positives: u64,
    /// Candidates asked in vain.
    pub false_positives: u64,
    /// Candidates asked because their filter could not be used.
    pub filter_unusable: u64,
    /// Candidates asked because memory had no room for their filter.
    pub filter_not_resident: u64,
    /// Prefix filters that scans asked.
    pub prefix_probes: u64,
    /// Tables that their prefix filter ruled out for a scan.
    pub prefix_negatives: u64,
    /// Tables that a scan could not ask because their prefix filter could not be used: damaged, of
    /// another extractor than the present one, or of one whose function is missing.
    pub prefix_unusable: u64,
    /// Range filters that scans asked: of tables with keys on both sides of the bounds.
    pub range_probes: u64,
    /// Tables that their range filter ruled out for a scan.
    pub range_negatives: u64,
    /// Tables that a scan could not ask because their range filter is damaged.
    pub range_unusable: u64,
    /// Tombstones of the tables that scans stepped over. Where that is often, compactions remove
    /// them.
    pub tombstones_skipped: u64,
    /// Data blocks that lookups asked the cache for.
    pub data_block_requests: u64,
    /// Index partitions that lookups asked the cache for.
    pub index_block_requests: u64,
    /// Blocks that the cache did not have, so that they were read from the file.
    pub blocks_read: u64,
    /// Length of those blocks in the file, in bytes.
    pub bytes_read: u64,
}

/// What one keyspace holds on a level.
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
    /// Filters that lookups asked and that could answer.
    #[must_use]
    pub fn filter_probes(&self) -> u64 {
        self.filter_negatives + self.filter_true_positives + self.filter_false_positives
    }

    /// Measured false-positive rate: of the filters asked for a key that their table did not have,
    /// the share that said maybe, from 0 to 1; 0 if there were none.
    #[must_use]
    pub fn filter_fpr_measured(&self) -> f64 {
        self.per_absent_probe(self.filter_false_positives as f64)
    }

    /// What [`filter_fpr_measured`](Self::filter_fpr_measured) should be: the mean of the expected
    /// rates of the filters, as often as each was asked, and as it was then.
    #[must_use]
    pub fn filter_fpr_expected_of_probes(&self) -> f64 {
        self.per_absent_probe(self.false_positives_expected)
    }

    fn per_absent_probe(&self, sum: f64) -> f64 {
        let absent = self.filter_negatives + self.filter_false_positives;
        if absent == 0 { 0.0 } else { sum / absent as f64 }
    }

    /// Data blocks that lookups would have asked for without filters, and did not: one for each
    /// table ruled out. Some of them would have been in the cache.
    #[must_use]
    pub fn reads_saved(&self) -> u64 {
        self.filter_negatives
    }

    /// Both levels together.
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

    /// What the level holds, by name.
    pub(super) fn held_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("runs", &mut self.runs),
            ("tables", &mut self.tables),
            ("bytes", &mut self.bytes),
            ("entries", &mut self.entries),
            ("tombstones", &mut self.tombstones),
            ("filter_bytes", &mut self.filter_bytes),
            ("filter_bytes_whole", &mut self.filter_bytes_whole),
            ("tables_with_unusable_filters", &mut self.tables_with_unusable_filters),
            ("filters_not_whole", &mut self.filters_not_whole),
        ]
    }

    /// What lookups did, by name; `candidates` and the like only grow.
    pub(super) fn counted_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("candidates", &mut self.candidates),
            ("filter_negatives", &mut self.filter_negatives),
            ("filter_true_positives", &mut self.filter_true_positives),
            ("filter_false_positives", &mut self.filter_false_positives),
            ("true_positives", &mut self.true_positives),
            ("false_positives", &mut self.false_positives),
            ("filter_unusable", &mut self.filter_unusable),
            ("filter_not_resident", &mut self.filter_not_resident),
            ("prefix_probes", &mut self.prefix_probes),
            ("prefix_negatives", &mut self.prefix_negatives),
            ("prefix_unusable", &mut self.prefix_unusable),
            ("range_probes", &mut self.range_probes),
            ("range_negatives", &mut self.range_negatives),
            ("range_unusable", &mut self.range_unusable),
            ("tombstones_skipped", &mut self.tombstones_skipped),
            ("data_block_requests", &mut self.data_block_requests),
            ("index_block_requests", &mut self.index_block_requests),
            ("blocks_read", &mut self.blocks_read),
            ("bytes_read", &mut self.bytes_read),
        ]
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
