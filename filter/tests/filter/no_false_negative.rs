//! There are no false negatives, before and after a filter was stored.

use proptest::prelude::*;
use sievedb_filter::{
    AtomicBlockedBloom, BinaryFuse8, BinaryFuse16, BlockedBloom, Expected, FilterKind, PROBES_MAX,
    Ribbon, TableFilter, filter_block, key_hash,
};

use crate::key_sets::{adversarial_keys, hostile_hashes};
use crate::random::{Random, seed};

#[test]
fn adversarial_keys_are_found() {
    let seed = seed();
    for (name, keys) in adversarial_keys() {
        let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key, seed)).collect();
        for bits_per_key in [0.01, 0.7, 2.5, 10.0, 16.0, 40.0] {
            let filter = BlockedBloom::build(&hashes, bits_per_key);
            for hash in &hashes {
                assert!(filter.may_contain_hash(*hash), "{name}, {bits_per_key} bits per key");
            }
        }
        for columns in [1.0, 6.72, 16.5] {
            let filter = Ribbon::build(&hashes, columns);
            for hash in &hashes {
                assert!(filter.may_contain_hash(*hash), "{name}, {columns} columns");
            }
        }
        let filter = AtomicBlockedBloom::with_bytes(hashes.len() * 10 / 8, 6);
        hashes.iter().for_each(|&hash| filter.insert_hash(hash));
        for hash in &hashes {
            assert!(filter.may_contain_hash(*hash), "{name}, atomic");
        }
        for bits_per_key in [9.0, 18.0] {
            let filter = TableFilter::build(FilterKind::BinaryFuse, &hashes, bits_per_key);
            let filter = filter.expect("a known kind");
            assert!(filter.expected_fpr() < 0.01, "{name}: no seed works");
            for hash in &hashes {
                assert!(filter.may_contain_hash(*hash), "{name}, {bits_per_key} bits per key");
            }
        }
    }
}

/// Hashes that share lines or probes, or are extreme: callers may pass any hash.
#[test]
fn hostile_hashes_are_found() {
    for (name, hashes) in hostile_hashes() {
        for probes in 1..=PROBES_MAX {
            let frozen = BlockedBloom::with_shape(&hashes, 7, probes);
            let atomic = AtomicBlockedBloom::with_bytes(7 * 64, probes);
            hashes.iter().for_each(|&hash| atomic.insert_hash(hash));
            for &hash in &hashes {
                assert!(frozen.may_contain_hash(hash), "{name}, {probes} probes");
                assert!(atomic.may_contain_hash(hash), "{name}, {probes} probes, atomic");
            }
        }
    }
}

/// Hash sets that no hash function would return. None may defeat all seeds.
#[test]
fn hostile_hashes_are_found_in_fuse_filters() {
    let mut random = Random(seed());
    let few = random.many(300);
    let cases: [(&str, Vec<u64>); 10] = [
        ("counters", (0..50_000).collect()),
        ("high bits alone", (0..50_000).map(|i| i << 48).collect()),
        ("middle bits alone", (0..50_000).map(|i| i << 24).collect()),
        ("equal high bits", (0..50_000).map(|i| u64::MAX << 20 | i).collect()),
        ("extremes", vec![0, u64::MAX, 1, u64::MAX - 1, 1 << 63]),
        ("one bit", (0..64).map(|bit| 1 << bit).collect()),
        ("two bits", (0..64 * 64).map(|i| 1 << (i / 64) | 1 << (i % 64)).collect()),
        ("all the same", vec![42; 5_000]),
        ("two in turn", (0..5_000).map(|i| i % 2).collect()),
        ("each many times", (0..30_000).map(|i| few[i % few.len()]).collect()),
    ];
    for (name, hashes) in cases {
        let (narrow, wide) = (BinaryFuse8::build(&hashes), BinaryFuse16::build(&hashes));
        assert!(narrow.expected_fpr() < 0.01, "{name}: no seed works");
        for &hash in &hashes {
            assert!(narrow.may_contain_hash(hash), "{name}");
            assert!(wide.may_contain_hash(hash), "{name}, 16 bits");
        }
    }
}

/// Every number of keys, and large sets with many seeds. `SIEVE_LONG=1` uses ten million keys each.
#[test]
fn many_sets_are_found_in_fuse_filters() {
    let mut random = Random(seed());
    let large = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    for keys in (0..300).chain([5_000, 32_768, 32_769, 100_000]).chain([large; 6]) {
        let mut hashes = random.many(keys);
        hashes.extend_from_within(..keys / 100); // Duplicates that are not adjacent.
        let filter = BinaryFuse8::build(&hashes);
        assert_eq!(filter.key_count(), keys as u64);
        let missing_keys = hashes.iter().filter(|&&hash| !filter.may_contain_hash(hash)).count();
        assert_eq!(missing_keys, 0, "{keys} keys");
    }
}

/// A million keys with many seeds, ten million with `SIEVE_LONG=1`: rare faults do not show in
/// small sets.
#[test]
fn a_million_keys_are_found_under_many_seeds() {
    let keys = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    let mut random = Random(seed());
    for round in 0..20 {
        let hashes = random.many(keys);
        let filter = BlockedBloom::build(&hashes, 2.0 + f64::from(round) * 1.37);
        assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "round {round}");
        let mut results = vec![false; keys];
        filter.may_contain_hashes(&hashes, &mut results);
        assert!(results.iter().all(|&result| result), "round {round}, in a batch");
        let filter = AtomicBlockedBloom::with_bytes(filter.memory_bytes(), filter.probes());
        hashes.iter().for_each(|&hash| filter.insert_hash(hash));
        assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "round {round}, atomic");
    }
}

proptest! {
    #[test]
    fn a_stored_filter_equals_the_one_in_memory(
        keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..900),
        others in proptest::collection::vec(any::<u64>(), 300),
        kind in proptest::sample::select(
            vec![FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse]
        ),
        millibits in 1_u32..=40_000,
        hash_seed in any::<u64>(),
        salt in any::<u64>(),
    ) {
        let expected = Expected { hash_seed, salt };
        let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key, hash_seed)).collect();
        let built = TableFilter::build(kind, &hashes, f64::from(millibits) / 1e3);
        let built = built.expect("a known kind");
        let bytes = filter_block::encode(&built, expected);
        prop_assert!(bytes.len() <= built.memory_bytes() + filter_block::TRAILER_BYTES_MAX);
        let read = TableFilter::decode(&bytes, expected);
        let read = read.expect("a written block can be read");
        for &hash in &hashes {
            read.prefetch(hash);
            prop_assert!(built.may_contain_hash(hash));
            prop_assert!(read.may_contain_hash(hash));
        }
        for &hash in &others {
            prop_assert_eq!(read.may_contain_hash(hash), built.may_contain_hash(hash));
        }
        let probed = [others, hashes].concat();
        let mut results = vec![false; probed.len()];
        read.may_contain_hashes(&probed, &mut results);
        for (hash, result) in probed.into_iter().zip(results) {
            prop_assert_eq!(read.may_contain_hash(hash), result);
        }
        prop_assert_eq!(read.kind(), kind);
        prop_assert_eq!(read.key_count(), built.key_count());
        prop_assert_eq!(read.memory_bytes(), built.memory_bytes());
        prop_assert_eq!(read.expected_fpr().to_bits(), built.expected_fpr().to_bits());
    }
}
