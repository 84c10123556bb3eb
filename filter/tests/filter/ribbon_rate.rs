//! The rate of a ribbon is the stated one, as built and after columns were dropped.

use sievedb_filter::{Expected, FilterKind, Ribbon, TableFilter, filter_block};

use crate::random::{Random, seed};
use crate::rates::{assert_within_three_sigmas, sigmas_of_sample};

const SEEDS: u64 = 20;

/// Hashes probed per filter.
const PROBES: usize = 100_000;

/// Sums the results of filters with different stated rates.
#[derive(Default)]
struct Sample {
    matched: f64,
    want: f64,
    variance: f64,
}

impl Sample {
    fn add(&mut self, filter: &Ribbon, probed: &[u64]) {
        let rate = filter.expected_fpr();
        let count = probed.len() as f64;
        self.matched += probed.iter().filter(|&&hash| filter.may_contain_hash(hash)).count() as f64;
        self.want += rate * count;
        self.variance += rate * (1.0 - rate) * count;
    }

    /// The results are a binomial sample of the stated rates.
    fn sigmas(&self) -> f64 {
        sigmas_of_sample(self.matched, self.want, self.variance)
    }
}

/// The rate of a filter is close to that of its columns. The columns of a block depend on its
/// position, not on its share of the starts.
fn assert_near_nominal(filter: &Ribbon, columns: f64) {
    let rate = filter.expected_fpr();
    let nominal = FilterKind::Ribbon.expected_fpr(columns).expect("a known kind");
    assert!((rate / nominal - 1.0).abs() < 0.2, "{rate}, {nominal}: {columns} columns");
}

#[test]
fn of_every_width() {
    let seed = seed();
    for (columns, keys) in [
        (1.0, 300),
        (1.5, 40_000),
        (2.0, 1_000),
        (3.5, 5_000),
        (5.0, 20_000),
        (6.72, 40_000),
        (7.0, 40_000),
        (8.0, 100_000),
        (8.5, 20_000),
        (9.97, 40_000),
        (12.25, 20_000),
    ] {
        assert_within_three_sigmas(&format!("{columns} columns"), seed, |seed| {
            let mut sample = Sample::default();
            for round in 0..SEEDS {
                let mut random = Random(seed ^ round << 32);
                let filter = Ribbon::build(&random.many(keys), columns);
                assert_near_nominal(&filter, columns);
                sample.add(&filter, &random.many(PROBES));
            }
            sample.sigmas()
        });
    }
}

#[test]
fn of_shrunk_filters() {
    let seed = seed();
    let cases = [
        (16.0, 8.0),
        (16.0, 6.72),
        (10.3, 9.1),
        (7.0, 4.5),
        (20.0, 1.0),
        (8.5, 8.25), // Mixed before and after, of the same numbers.
    ];
    for (built, columns) in cases {
        assert_within_three_sigmas(&format!("{built} columns, {columns} left"), seed, |seed| {
            let mut sample = Sample::default();
            for round in 0..SEEDS {
                let mut random = Random(seed ^ round << 32);
                let keys = random.many(20_000);
                let mut filter = Ribbon::build(&keys, built);
                let bytes = filter.memory_bytes();
                let planned = filter.memory_bytes_at(columns);
                filter.shrink_to(columns);
                assert!(
                    (filter.columns() - columns).abs() < 0.01,
                    "{} of {built}",
                    filter.columns()
                );
                assert_eq!(filter.memory_bytes(), planned);
                // All memory scales with the columns, except for thresholds, layers and ends of
                // groups.
                let kept = planned as f64 - bytes as f64 * columns / built;
                assert!(
                    (-100.0..1_000.0).contains(&kept),
                    "{built} to {columns}: {planned} of {bytes}"
                );
                assert!(
                    keys.iter().all(|&hash| filter.may_contain_hash(hash)),
                    "{built} to {columns}"
                );
                assert_near_nominal(&filter, columns);
                sample.add(&filter, &random.many(PROBES));
            }
            sample.sigmas()
        });
    }
}

#[test]
fn a_shrunk_filter_can_be_stored() {
    let mut random = Random(seed());
    let keys = random.many(10_000);
    let probed = random.many(10_000);
    let whole = Ribbon::build(&keys, 16.4);
    for columns in [16.2, 16.0, 12.5, 8.0, 7.3, 1.0] {
        let filter = whole.shrunk_to(columns);
        let expected = Expected { hash_seed: 1, salt: 2 };
        let bytes = filter_block::encode(&filter.clone().into(), expected);
        let read = TableFilter::decode(&bytes, expected);
        let read = read.expect("what was just written can be read");
        assert_eq!(read.expected_fpr().to_bits(), filter.expected_fpr().to_bits());
        assert_eq!(read.memory_bytes(), filter.memory_bytes());
        for &hash in keys.iter().chain(&probed) {
            assert_eq!(read.may_contain_hash(hash), filter.may_contain_hash(hash), "{columns}");
        }
    }
}
