//! The measured false-positive rate equals the computed one.

use sievedb_filter::params::blocked_bloom_fpr_of;
use sievedb_filter::{AtomicBlockedBloom, BlockedBloom, FilterKind, TableFilter, key_hash};

use crate::random::{Random, seed};
use crate::rates::{assert_within_three_sigmas, sigmas_of_sample, sigmas_off};

const SEEDS: usize = 24;

/// Returns the share of `probed` random hashes that match.
fn measure(random: &mut Random, probed: usize, may_contain: impl Fn(u64) -> bool) -> f64 {
    (0..probed).filter(|_| may_contain(random.next())).count() as f64 / probed as f64
}

#[test]
fn of_large_filters() {
    let seed = seed();
    let cases = [
        (0.5, 200_000, 0.001),
        (2.0, 200_000, 0.002),
        (5.5, 500_000, 0.003),
        (8.0, 1_000_000, 0.003),
        (10.0, 1_000_000, 0.004),
        (12.3, 1_000_000, 0.006),
        (16.0, 2_000_000, 0.02),
        (20.0, 4_000_000, 0.04),
    ];
    for (bits_per_key, probed, resolution) in cases {
        let name = format!("{bits_per_key} bits per key");
        assert_within_three_sigmas(&name, seed, |seed| {
            let mut want = 0.0;
            let rates: Vec<f64> = (0..SEEDS as u64)
                .map(|round| {
                    let mut random = Random(seed ^ round << 32);
                    let filter = BlockedBloom::build(&random.many(200_000), bits_per_key);
                    want = filter.expected_fpr();
                    measure(&mut random, probed, |hash| filter.may_contain_hash(hash))
                })
                .collect();
            sigmas_off(&name, &rates, want, resolution)
        });
    }
}

#[test]
fn of_small_filters() {
    let seed = seed();
    for (keys, lines, probes) in [(1, 1, 1), (60, 1, 6), (30, 1, 9), (200, 5, 8), (51, 1, 2)] {
        let name = format!("{keys} keys, {lines} lines, {probes} probes");
        assert_within_three_sigmas(&name, seed, |seed| {
            let rates: Vec<f64> = (0..1000_u64)
                .map(|round| {
                    let mut random = Random(seed ^ round << 32);
                    let filter = BlockedBloom::with_shape(&random.many(keys), lines, probes);
                    measure(&mut random, 20_000, |hash| filter.may_contain_hash(hash))
                })
                .collect();
            let want = blocked_bloom_fpr_of(keys as u64, lines as u64, probes);
            sigmas_off(&name, &rates, want, 0.02)
        });
    }
}

/// Real keys with the real hash; absent keys are adjacent to present ones.
#[test]
fn of_counters() {
    let hash = |i: u64, seed| key_hash(&i.to_be_bytes(), seed);
    assert_within_three_sigmas("counters", seed(), |seed| {
        let mut want = 0.0;
        let rates: Vec<f64> = (0..SEEDS as u64)
            .map(|round| {
                let seed = seed ^ round << 32;
                let hashes: Vec<u64> = (0..200_000).map(|i| hash(2 * i, seed)).collect();
                let filter = BlockedBloom::build(&hashes, 10.0);
                want = filter.expected_fpr();
                let absent = (0..1_000_000).map(|i| hash(2 * i + 1, seed));
                absent.filter(|&hash| filter.may_contain_hash(hash)).count() as f64 / 1e6
            })
            .collect();
        sigmas_off("counters", &rates, want, 0.004)
    });
}

#[test]
fn of_atomic_filters() {
    let (keys, lines) = (50_000, 1024);
    assert_within_three_sigmas("atomic", seed(), |seed| {
        let rates: Vec<f64> = (0..SEEDS as u64)
            .map(|round| {
                let mut random = Random(seed ^ round << 32);
                let filter = AtomicBlockedBloom::with_bytes(lines * 64, 6);
                random.many(keys).iter().for_each(|&hash| filter.insert_hash(hash));
                measure(&mut random, 500_000, |hash| filter.may_contain_hash(hash))
            })
            .collect();
        let want = blocked_bloom_fpr_of(keys as u64, lines as u64, 6);
        sigmas_off("atomic", &rates, want, 0.01)
    });
}

/// Whatever the slots hold, each probe matches one fingerprint in `2^bits`.
#[test]
fn of_fuse_filters() {
    let seed = seed();
    for (bits_per_key, keys, probed) in
        [(9.0, 0, 50_000), (9.0, 10, 100_000), (9.0, 20_000, 500_000), (18.0, 20_000, 2_000_000)]
    {
        let name = format!("{keys} keys, {bits_per_key} bits");
        assert_within_three_sigmas(&name, seed, |seed| {
            let (mut matched, mut rate) = (0.0, 0.0);
            for round in 0..SEEDS as u64 {
                let mut random = Random(seed ^ round << 32);
                let hashes = random.many(keys);
                let filter = TableFilter::build(FilterKind::BinaryFuse, &hashes, bits_per_key);
                let filter = filter.expect("a known kind");
                rate = filter.expected_fpr();
                let share = measure(&mut random, probed, |hash| filter.may_contain_hash(hash));
                matched += probed as f64 * share;
            }
            let throws = (SEEDS * probed) as f64;
            sigmas_of_sample(matched, throws * rate, throws * rate * (1.0 - rate))
        });
    }
}
