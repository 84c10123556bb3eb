//! There are no false negatives.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sievedb_filter::Xxh3;

use super::{Structure, found, insert_all};
use crate::key_sets::{adversarial_keys, hostile_hashes};
use crate::random::{Random, seed};

/// Also far above the capacity, and when nearly every bit is set.
pub(super) fn of_adversarial_keys<F: Structure>() {
    let seed = seed();
    for (name, keys) in adversarial_keys() {
        for (share, fpr) in [(1, 0.01), (1, 0.5), (1, 1e-9), (30, 0.01)] {
            let capacity = keys.len() as u64 / share;
            let mut filter = F::with_rate(capacity, fpr, Xxh3::with_seed(seed));
            for key in insert_all(&mut filter, &keys) {
                assert!(found(&filter, key), "{name}, capacity {capacity}, rate {fpr}");
            }
        }
    }
}

pub(super) fn of_hostile_hashes<F: Structure>() {
    for (name, hashes) in hostile_hashes() {
        for fpr in [0.3, 0.01, 1e-6] {
            let mut filter = F::with_rate(hashes.len() as u64, fpr, Xxh3::default());
            let mut taken = Vec::new();
            for &hash in &hashes {
                match filter.try_insert_hash(hash) {
                    Ok(_) => taken.push(hash),
                    Err(full) => assert!(F::CAN_BE_FULL, "{name}: {full}"),
                }
            }
            let missing = taken.iter().find(|&&hash| !filter.may_contain_hash(hash));
            assert_eq!(missing, None, "{name}, rate {fpr}");
        }
    }
}

/// An insertion returns what a probe would have returned.
pub(super) fn of_random_keys<F: Structure>() {
    let keys = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..200);
    let mut runner = TestRunner::default();
    let run = runner.run(&(keys, 1..300_u64, 1e-9..0.9), |(keys, capacity, fpr)| {
        let mut filter = F::with_rate(capacity, fpr, Xxh3::default());
        let mut taken: Vec<&Vec<u8>> = Vec::new();
        for key in &keys {
            let before = found(&filter, key);
            if let Ok(present) = filter.try_insert(key) {
                prop_assert_eq!(present, before);
                taken.push(key);
            }
            prop_assert!(F::CAN_BE_FULL || taken.last() == Some(&key));
        }
        for key in taken {
            prop_assert!(found(&filter, key));
        }
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{}: {failure}", F::NAME));
}

/// Rare faults do not show in small sets. `SIEVE_LONG=1` uses 10 million keys.
pub(super) fn of_many_keys<F: Structure>() {
    let (keys, rounds) = match std::env::var_os("SIEVE_LONG") {
        Some(_) => (10_000_000, 3),
        None => (50_000, 20),
    };
    let mut random = Random(seed());
    let mut full = 0;
    for round in 0..rounds {
        let mut hashes = random.many(keys);
        let mut filter = F::with_rate(keys as u64, 0.01, Xxh3::default());
        hashes.retain(|&hash| filter.try_insert_hash(hash).is_ok());
        full += u32::from(hashes.len() < keys);
        assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "round {round}");
    }
    // Hardly one in a thousand.
    assert!(
        full <= if F::CAN_BE_FULL { 2 } else { 0 },
        "{full} reject a key within their capacity"
    );
}
