//! The measured false-positive rate equals the stated one.

use sievedb_filter::Xxh3;

use super::Structure;
use crate::random::{Random, seed};
use crate::rates::{assert_within_three_sigmas, sigmas_off};

/// Filters of each size, with different keys and hashers.
const SEEDS: u64 = 20;

/// Maximum number, of some hundred filters that can be full, of filters that reject a key within
/// their capacity. The documentation states less than one in a hundred.
const FULL_MAX: u32 = 6;

/// Each rate is the mean over 20 filters and must be within 3 standard errors of the stated one.
/// The error is estimated from the 20 rates, and so covers the randomness of probes and of the
/// fill. The number of probes keeps the error below a share `resolution` of the rate.
///
/// The rate that a filter reports from its fill must agree too.
pub(super) fn is_stated<F: Structure>() {
    let seed = seed();
    let mut full = 0;
    let cases: [(u64, f64, u64, f64); 6] = [
        (100, 0.05, 20_000, 0.08),
        (1_000, 0.3, 20_000, 0.01),
        (5_000, 0.1, 50_000, 0.01),
        (20_000, 0.01, 200_000, 0.01),
        (20_000, 0.001, 500_000, 0.02),
        (10_000, 0.0001, 1_000_000, 0.05),
    ];
    for (capacity, fpr, probed, resolution) in cases {
        let name = format!("{} of {capacity} keys at {fpr}", F::NAME);
        assert_within_three_sigmas(&name, seed, |seed| {
            let (mut stated, mut by_fill) = (0.0, 0.0);
            let rates: Vec<f64> = (0..SEEDS)
                .map(|round| {
                    let mut random = Random(seed ^ round << 32);
                    let mut filter = F::with_rate(capacity, fpr, Xxh3::with_seed(random.next()));
                    // Keys instead of hashes: counters; absent keys are adjacent to present ones.
                    let key = |i: u64| (2 * i).to_be_bytes();
                    let rejected = (0..capacity).filter(|&i| filter.try_insert(&key(i)).is_err());
                    full += u32::from(rejected.count() > 0);
                    stated = filter.stated_fpr(capacity);
                    let stats = filter.stats();
                    assert!(stats.fpr.to_bits() == filter.expected_fpr().to_bits());
                    by_fill += stats.fpr / SEEDS as f64;
                    let absent = (0..probed).map(|i| filter.hash((2 * i + 1).to_be_bytes()));
                    let matched = absent.filter(|&hash| filter.may_contain_hash(hash)).count();
                    matched as f64 / probed as f64
                })
                .collect();
            assert!(stated <= fpr * 1.05, "{name}: {stated} is stated");
            let by_shape = sigmas_off(&name, &rates, stated, resolution);
            let by_fill = sigmas_off(&format!("{name}, by fill"), &rates, by_fill, resolution);
            if by_shape.abs() > by_fill.abs() { by_shape } else { by_fill }
        });
    }
    assert!(full <= if F::CAN_BE_FULL { FULL_MAX } else { 0 }, "{full} reject a key");
}
