//! The counting, removing and growing filters as a `Structure`, and their own properties.

use std::collections::HashMap;

use proptest::prelude::*;
use sievedb_filter::params::{blocked_bloom_fpr_of, bloom_fpr};
use sievedb_filter::standalone::{CountMinSketch, CountingBloom, CuckooFilter, ScalableBloom};
use sievedb_filter::{FilterFull, InsertFilter, RemoveFilter, Xxh3};

use super::Structure;
use crate::random::{Random, seed};
use crate::rates::{assert_within_three_sigmas, sigmas_off};

const SEEDS: u64 = 20;

impl Structure for CountingBloom {
    const NAME: &str = "counting_bloom";

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, hasher)
    }

    /// Returns the rate of a Bloom filter with one bit per counter.
    fn stated_fpr(&self, keys: u64) -> f64 {
        bloom_fpr(self.counters() as f64 / keys as f64, self.probes())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key))
    }
}

impl Structure for CuckooFilter {
    const NAME: &str = "cuckoo";
    const CAN_BE_FULL: bool = true;

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(capacity, fpr.max(1.5e-8), hasher)
    }

    /// Returns the limit for many slots at this load: two windows per fingerprint.
    fn stated_fpr(&self, keys: u64) -> f64 {
        let fingerprints = f64::from((1 << (self.slot_bits() - 1)) - 1);
        1.0 - (-2.0 * keys as f64 / self.slots() as f64 / fingerprints).exp()
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        self.insert(key)
    }
}

impl Structure for ScalableBloom {
    const NAME: &str = "scalable_bloom";

    /// Creates a filter whose first layer has four fifths of the rate, so that it can be measured.
    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_shape_and_hasher(capacity, fpr.max(1e-8), 4, 0.2, hasher)
    }

    /// Returns the rate of the first layer, which has this capacity.
    fn stated_fpr(&self, keys: u64) -> f64 {
        let first = Self::with_shape(keys, self.fpr_max(), 4, 0.2);
        let lines = first.memory_bytes() as u64 / 64;
        let probes = first.stats().probes as u8; // At most 16.
        blocked_bloom_fpr_of(keys, lines, probes)
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key))
    }
}

/// As a filter: a partitioned Bloom filter with counters.
impl Structure for CountMinSketch {
    const NAME: &str = "count_min";

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        let width = (capacity.max(1) as f64 / std::f64::consts::LN_2).ceil();
        let depth = (-fpr.log2()).ceil().clamp(1.0, 64.0);
        Self::with_shape_and_hasher(width as u64, depth as u32, hasher)
    }

    fn stated_fpr(&self, keys: u64) -> f64 {
        (1.0 - (-(keys as f64) / self.width() as f64).exp()).powi(self.depth().cast_signed())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key) > 1)
    }
}

/// Insertions and valid removals in any order: the filter finds every key of the multiset. A key
/// that was never inserted is either rejected or was a false positive.
fn keeps_a_multiset<F: RemoveFilter + Clone>(
    new: impl Fn() -> F,
    steps: &[(u8, bool)],
) -> Result<(), TestCaseError> {
    let mut filter = new();
    let mut model: HashMap<u64, u32> = HashMap::new();
    for &(key, insert) in steps {
        let hash = Random(key.into()).next();
        let count = model.entry(hash).or_default();
        if insert {
            *count += u32::from(filter.try_insert_hash(hash).is_ok());
        } else if *count > 0 {
            prop_assert!(filter.remove_hash(hash), "key {} is present", key);
            *count -= 1;
        } else if !filter.may_contain_hash(hash) {
            prop_assert!(!filter.remove_hash(hash), "key {} is absent", key);
        }
        for (&hash, &count) in &model {
            prop_assert!(count == 0 || filter.may_contain_hash(hash), "after key {}", key);
        }
    }
    Ok(())
}

proptest! {
    /// Few counters and keys, so that counters saturate.
    #[test]
    fn a_counting_filter_keeps_a_multiset(
        counters in 1..200_u64,
        probes in 1..8_u32,
        keys in 1..40_u8,
        steps in proptest::collection::vec((any::<u8>(), proptest::bool::weighted(0.6)), 0..400),
    ) {
        let steps: Vec<_> = steps.iter().map(|&(key, insert)| (key % keys, insert)).collect();
        keeps_a_multiset(|| CountingBloom::with_shape(counters, probes), &steps)?;
    }

    /// Few slots, so that the filter is often full.
    #[test]
    fn a_cuckoo_filter_keeps_a_multiset(
        slots in 2..60_u64,
        bits in 4..29_u32,
        steps in proptest::collection::vec((any::<u8>(), proptest::bool::weighted(0.7)), 0..300),
    ) {
        keeps_a_multiset(|| CuckooFilter::with_shape(slots, bits), &steps)?;
    }

    #[test]
    fn a_sketch_never_underestimates(
        width in 1..80_u64,
        depth in 1..6_u32,
        steps in proptest::collection::vec((any::<u8>(), 0..9_u32), 0..400),
    ) {
        let mut sketches = [(); 2].map(|()| CountMinSketch::with_shape(width, depth));
        let mut truth: HashMap<u8, u32> = HashMap::new();
        for (i, &(key, count)) in steps.iter().enumerate() {
            if count == 0 && i % 8 == 0 {
                sketches.iter_mut().for_each(CountMinSketch::halve);
                // Each sketch rounds down by itself, so two may lose one more together.
                truth.values_mut().for_each(|count| *count = count.saturating_sub(1) / 2);
            }
            let estimate = sketches[i % 2].add([key], count);
            prop_assert_eq!(sketches[i % 2].estimate([key]), estimate);
            *truth.entry(key).or_default() += count;
        }
        let [mut merged, other] = sketches;
        merged.merge(&other).expect("equal shapes");
        for (&key, &count) in &truth {
            prop_assert!(merged.estimate([key]) >= count, "key {}", key);
        }
    }
}

/// Insertions beyond capacity: each failure leaves all earlier keys.
#[test]
fn a_full_cuckoo_filter_finds_every_key() {
    let seed = seed();
    for round in 0..SEEDS {
        for (slots, bits) in [(1000, 6), (4096, 9), (20_000, 13)] {
            let mut random = Random(seed ^ round << 32);
            let mut filter = CuckooFilter::with_shape(slots, bits);
            let (mut taken, mut rejected) = (Vec::new(), 0);
            while rejected < slots / 10 {
                let hash = random.next();
                let before = filter.keys();
                match filter.insert_hash(hash) {
                    Ok(_) => taken.push(hash),
                    Err(full) => {
                        assert_eq!((full.keys, filter.keys()), (before, before));
                        rejected += 1;
                        // Walks again, occasionally, in a nearly full table.
                        if rejected % 20 == 0 {
                            let gone = taken.swap_remove(taken.len() / 2);
                            assert!(filter.remove_hash(gone));
                        }
                    }
                }
                if rejected % 20 == 1 {
                    assert!(taken.iter().all(|&hash| filter.may_contain_hash(hash)));
                }
            }
            let name = format!("{slots} slots of {bits} bits, round {round}");
            assert!(filter.fill() > 0.93 && taken.len() as u64 == filter.keys(), "{name}");
            assert!(taken.iter().all(|&hash| filter.may_contain_hash(hash)), "{name}");
            assert!(taken.iter().all(|&hash| filter.remove_hash(hash)), "{name}");
            assert_eq!(filter.to_owned().stats().fill, 0.0, "{name}");
        }
    }
}

/// Every kind of table at full load.
#[test]
fn a_cuckoo_filter_has_its_rate_at_full_load() {
    let seed = seed();
    for (keys, bits, probed, resolution) in [
        (30, 8, 100_000, 0.2),
        (60, 6, 50_000, 0.04),
        (5000, 7, 50_000, 0.01),
        (20_000, 9, 200_000, 0.01),
    ] {
        let name = format!("{keys} keys, {bits} bits");
        assert_within_three_sigmas(&name, seed, |seed| {
            let mut want = 0.0;
            let rates: Vec<f64> = (0..SEEDS)
                .map(|round| {
                    let mut random = Random(seed ^ round << 32);
                    let mut filter = CuckooFilter::with_shape(keys * 20 / 19 + 6, bits);
                    while filter.keys() < keys {
                        let _ = filter.insert_hash(random.next());
                    }
                    want = filter.expected_fpr();
                    let found = |_: &u32| filter.may_contain_hash(random.next());
                    (0..probed).filter(found).count() as f64 / f64::from(probed)
                })
                .collect();
            sigmas_off(&name, &rates, want, resolution)
        });
    }
}

/// The total rate for any number of layers, after growth by a factor of a thousand and more.
#[test]
fn a_scalable_filter_grows_below_its_rate() {
    let seed = seed();
    for (capacity, fpr, growth, tightening) in
        [(100, 0.01, 4, 0.8), (50, 0.1, 2, 0.9), (10, 0.05, 10, 0.5)]
    {
        let keys = capacity * 1100;
        let name = format!("{capacity} keys at first, growth {growth}, tightening {tightening}");
        assert_within_three_sigmas(&name, seed, |seed| {
            let mut want = 0.0;
            let rates: Vec<f64> = (0..SEEDS)
                .map(|round| {
                    let mut random = Random(seed ^ round << 32);
                    let mut filter = ScalableBloom::with_shape(capacity, fpr, growth, tightening);
                    let hashes = random.many(keys as usize);
                    let taken_for_known = hashes.iter().filter(|&&hash| filter.insert_hash(hash));
                    assert!((taken_for_known.count() as f64) < keys as f64 * fpr);
                    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
                    assert!(filter.layers() > 3, "{} layers", filter.layers());
                    let expected = filter.expected_fpr();
                    want += expected / SEEDS as f64;
                    let found = |_: &u32| filter.may_contain_hash(random.next());
                    let rate = (0..200_000).filter(found).count() as f64 / 200_000.0;
                    assert!(rate < fpr && expected < fpr, "{rate} and {expected} of {fpr}");
                    rate
                })
                .collect();
            // The first layers have few lines, whose fill varies.
            sigmas_off(&name, &rates, want, 0.08)
        });
    }
}

/// Returns a stream in which key `i` occurs about `N / i` times.
fn skewed_stream(random: &mut Random, length: usize) -> Vec<u64> {
    let uniform = |random: &mut Random| random.next() as f64 / 2_f64.powi(64);
    (0..length).map(|_| 1e5_f64.powf(uniform(random)) as u64).collect()
}

/// No more estimates exceed the bound than stated, and none is too low.
#[test]
fn a_sketch_keeps_its_bound() {
    let seed = seed();
    for (epsilon, delta) in [(0.01, 0.1), (0.001, 0.05), (0.0001, 0.01)] {
        let mut worst: f64 = 0.0;
        for round in 0..SEEDS {
            let mut random = Random(seed ^ round << 32);
            let hasher = Xxh3::with_seed(random.next());
            let mut sketch = CountMinSketch::with_error_and_hasher(epsilon, delta, hasher);
            let mut truth: HashMap<u64, u32> = HashMap::new();
            for key in skewed_stream(&mut random, 50_000) {
                sketch.insert(key.to_le_bytes());
                *truth.entry(key).or_default() += 1;
            }
            assert_eq!(sketch.total(), 50_000);
            let bound = sketch.error_bound();
            assert!(bound <= epsilon * 50_000.0);
            let above = truth.iter().filter(|&(key, &count)| {
                let estimate = sketch.estimate(key.to_le_bytes());
                assert!(estimate >= count, "key {key}: {estimate} of {count}");
                f64::from(estimate - count) > bound
            });
            worst = worst.max(above.count() as f64 / truth.len() as f64);
        }
        eprintln!("epsilon {epsilon}, delta {delta}: at most {worst} of the keys were above");
        assert!(worst <= delta, "epsilon {epsilon}: {worst} of the keys, not {delta}, are above");
    }
}

/// Rejected removals and a cleared filter, also through the trait.
#[test]
fn a_saturated_filter_has_no_false_negatives() {
    let mut filter = CountingBloom::with_shape(64, 4);
    let hashes = Random(seed()).many(600);
    for &hash in &hashes {
        filter.insert_hash(hash);
    }
    assert_eq!(filter.saturated(), 64, "{filter:?}");
    for &hash in &hashes[..599] {
        assert!(filter.remove_hash(hash));
    }
    assert!(filter.may_contain_hash(hashes[599]) && filter.keys() == 1);
    InsertFilter::clear(&mut filter);
    assert_eq!(filter.saturated(), 0);
}

#[test]
fn filters_with_equal_keys_are_equal() {
    let counting = |keys: &[&str]| {
        let mut filter = CountingBloom::with_rate(100, 0.01);
        for key in keys {
            filter.insert(key);
        }
        filter
    };
    let sketch = |keys: &[&str]| {
        let mut sketch = CountMinSketch::with_error(0.01, 0.01);
        for key in keys {
            sketch.insert(key);
        }
        sketch
    };
    let scalable = |keys: &[&str]| {
        let mut filter = ScalableBloom::with_rate(100, 0.01);
        for key in keys {
            filter.insert(key);
        }
        filter
    };
    let (some, others) = (["ant", "bee"], ["ant", "cow"]);
    assert!(counting(&some) == counting(&some) && counting(&some) != counting(&others));
    assert!(sketch(&some) == sketch(&some) && sketch(&some) != sketch(&others));
    assert!(scalable(&some) == scalable(&some) && scalable(&some) != scalable(&others));
    assert!(scalable(&[]) != ScalableBloom::with_rate(100, 0.001));
}
