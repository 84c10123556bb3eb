//! The measured false-positive rate is the computed one.
//!
//! Under a random `SIEVE_SEED` each case fails by chance once in 100 runs or more rarely; repeated
//! failures of one case are a fault.

use sievedb_filter::params::blocked_bloom_fpr_of;
use sievedb_filter::{AtomicBlockedBloom, BlockedBloom, FilterKind, TableFilter, key_hash};

use crate::random::{Random, seed};

const SEEDS: usize = 24;

/// Fails unless the mean of `rates` is within 3 standard errors of `want`, and the error is small
/// enough to tell: at most `resolution` of the rate.
pub(crate) fn assert_rate(name: &str, rates: &[f64], want: f64, resolution: f64) {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let error = (variance / n).sqrt();
    let sigmas = (mean - want) / error;
    eprintln!("{name}: measured {mean:.3e}, computed {want:.3e}, {sigmas:+.2} standard errors");
    assert!(error < want * resolution, "{name}: {error:.1e} is too coarse for {want:.1e}");
    assert!(
        sigmas.abs() <= 3.0,
        "{name}: {mean:.4e} is {sigmas:+.2} standard errors off {want:.4e}"
    );
}

/// Share of `asked` random hashes that `may_contain` affirms.
fn measure(random: &mut Random, asked: usize, may_contain: impl Fn(u64) -> bool) -> f64 {
    (0..asked).filter(|_| may_contain(random.next())).count() as f64 / asked as f64
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
    for (bits_per_key, asked, resolution) in cases {
        let mut want = 0.0;
        let rates: Vec<f64> = (0..SEEDS as u64)
            .map(|round| {
                let mut random = Random(seed ^ round << 32);
                let filter = BlockedBloom::build(&random.many(200_000), bits_per_key);
                want = filter.expected_fpr();
                measure(&mut random, asked, |hash| filter.may_contain_hash(hash))
            })
            .collect();
        assert_rate(&format!("{bits_per_key} bits per key"), &rates, want, resolution);
    }
}

#[test]
fn of_small_filters() {
    let seed = seed();
    for (keys, lines, probes) in [(1, 1, 1), (60, 1, 6), (30, 1, 9), (200, 5, 8), (51, 1, 2)] {
        let rates: Vec<f64> = (0..1000_u64)
            .map(|round| {
                let mut random = Random(seed ^ round << 32);
                let filter = BlockedBloom::with_shape(&random.many(keys), lines, probes);
                measure(&mut random, 20_000, |hash| filter.may_contain_hash(hash))
            })
            .collect();
        let want = blocked_bloom_fpr_of(keys as u64, lines as u64, probes);
        let name = format!("{keys} keys, {lines} lines, {probes} probes");
        assert_rate(&name, &rates, want, 0.02);
    }
}

/// Real keys through the real hash, absent ones next to present ones.
#[test]
fn of_counters() {
    let seed = seed();
    let hash = |i: u64, seed| key_hash(&i.to_be_bytes(), seed);
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
    assert_rate("counters", &rates, want, 0.004);
}

#[test]
fn of_atomic_filters() {
    let seed = seed();
    let (keys, lines) = (50_000, 1024);
    let rates: Vec<f64> = (0..SEEDS as u64)
        .map(|round| {
            let mut random = Random(seed ^ round << 32);
            let filter = AtomicBlockedBloom::with_bytes(lines * 64, 6);
            random.many(keys).iter().for_each(|&hash| filter.insert_hash(hash));
            measure(&mut random, 500_000, |hash| filter.may_contain_hash(hash))
        })
        .collect();
    assert_rate("atomic", &rates, blocked_bloom_fpr_of(keys as u64, lines as u64, 6), 0.01);
}

/// Whatever the slots hold, each question throws a die with as many sides as there are fingerprints.
#[test]
fn of_fuse_filters() {
    let seed = seed();
    for (bits_per_key, keys, asked) in
        [(9.0, 0, 50_000), (9.0, 10, 100_000), (9.0, 20_000, 500_000), (18.0, 20_000, 2_000_000)]
    {
        let (mut maybe, mut rate) = (0.0, 0.0);
        for round in 0..SEEDS as u64 {
            let mut random = Random(seed ^ round << 32);
            let hashes = random.many(keys);
            let filter = TableFilter::build(FilterKind::BinaryFuse, &hashes, bits_per_key);
            let filter = filter.expect("a known kind");
            rate = filter.expected_fpr();
            maybe += asked as f64 * measure(&mut random, asked, |it| filter.may_contain_hash(it));
        }
        let throws = (SEEDS * asked) as f64;
        let deviation = (throws * rate * (1.0 - rate)).sqrt();
        let sigmas = (maybe - throws * rate) / deviation;
        eprintln!("{keys} keys, {bits_per_key} bits: {maybe} of {throws}, {sigmas:+.2} sigma");
        assert!(sigmas.abs() <= 3.0, "{keys} keys, {bits_per_key} bits: {sigmas:+.2} sigma");
    }
}
