//! A key that was added is never denied, before and after its filter was stored.

use proptest::prelude::*;
use sievedb_filter::{
    AtomicBlockedBloom, BlockedBloom, Expected, PROBES_MAX, TableFilter, filter_block, key_hash,
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
    }
}

/// The hash is the caller's: chosen hashes may share lines, probes, or be extreme.
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

/// A million keys under many seeds: rare faults do not show in small sets.
#[test]
fn a_million_keys_are_found_under_many_seeds() {
    let mut random = Random(seed());
    for round in 0..20 {
        let hashes = random.many(1_000_000);
        let filter = BlockedBloom::build(&hashes, 2.0 + f64::from(round) * 1.37);
        assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "round {round}");
    }
}

proptest! {
    #[test]
    fn a_stored_filter_answers_as_the_one_in_memory(
        keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..300),
        others in proptest::collection::vec(any::<u64>(), 300),
        millibits in 1_u32..=40_000,
        hash_seed in any::<u64>(),
        salt in any::<u64>(),
    ) {
        let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key, hash_seed)).collect();
        let built = BlockedBloom::build(&hashes, f64::from(millibits) / 1e3);
        let bytes = filter_block::encode(&built, hash_seed, salt, millibits.into());
        prop_assert_eq!(bytes.len() % 64, 0);
        prop_assert_eq!(bytes.len(), built.memory_bytes() + filter_block::TRAILER_BYTES);
        let read = TableFilter::decode(&bytes, Expected { hash_seed, salt });
        let read = read.expect("what was just written can be read");
        for hash in hashes {
            read.prefetch(hash);
            prop_assert!(built.may_contain_hash(hash));
            prop_assert!(read.may_contain_hash(hash));
        }
        for hash in others {
            prop_assert_eq!(read.may_contain_hash(hash), built.may_contain_hash(hash));
        }
        prop_assert_eq!(read.key_count(), built.key_count());
        prop_assert_eq!(read.memory_bytes(), built.memory_bytes());
        prop_assert_eq!(read.expected_fpr().to_bits(), built.expected_fpr().to_bits());
    }
}
