//! All paths of this CPU set the same bits and give the same results.

use core::slice;

use proptest::prelude::*;

use super::*;
use crate::hash::key_hash;
use crate::key_sets::{adversarial_keys, hostile_hashes};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 2_000 }))]

    /// Half of the lines have the hash; most others miss few of its bits.
    #[test]
    fn every_path_gives_the_same_result(
        noise in any::<[[u8; 32]; 2]>(),
        dense in 0_u8..4,
        hash in any::<u64>(),
        present in any::<bool>(),
        missing in proptest::option::of(0_u32..512),
        probes in 1..=PROBES_MAX,
    ) {
        let mut line = Line::from_bytes(noise.concat().as_slice().try_into().expect("64 bytes"));
        for word in &mut line.0 {
            *word |= (0..dense).fold(0, |mask, i| mask | word.rotate_left(u32::from(i) * 7 + 3));
        }
        if present {
            portable::insert(&mut line, hash, probes);
        }
        if let Some(bit) = missing {
            line.0[bit as usize / 32] &= !(1 << (bit % 32));
        }
        let bytes = line.to_bytes();
        let want = bits(hash, probes).all(|bit| bytes[bit as usize / 8] >> (bit % 8) & 1 == 1);
        for path in Path::all() {
            prop_assert_eq!(path.contains(slice::from_ref(&line), hash, probes), want, "{:?}", path);
            let mut result = [!want];
            path.contains_all(slice::from_ref(&line), probes, &[hash], &mut result);
            prop_assert_eq!(result, [want], "{:?}, in a batch", path);
        }
    }

    #[test]
    fn every_path_sets_the_same_bits(
        noise in any::<[[u8; 32]; 2]>(),
        hash in any::<u64>(),
        probes in 1..=PROBES_MAX,
    ) {
        let before = Line::from_bytes(noise.concat().as_slice().try_into().expect("64 bytes"));
        let mut want = before.to_bytes();
        bits(hash, probes).for_each(|bit| want[bit as usize / 8] |= 1 << (bit % 8));
        for path in Path::all() {
            let mut line = before;
            path.insert_all(slice::from_mut(&mut line), probes, &[hash]);
            prop_assert_eq!(line.to_bytes(), want, "{:?}", path);
        }
    }

    /// Batches shorter and longer than the prefetch distance, of few lines and of enough to be
    /// prefetched.
    #[test]
    fn every_path_finds_all_of_a_batch(
        hashes in proptest::collection::vec(any::<u64>(), 0..400),
        lines in prop_oneof![9 => 1_usize..40, 1 => Just(batch::FAR_BYTES / LINE_BYTES)],
        probes in 1..=PROBES_MAX,
    ) {
        let mut want = vec![Line::EMPTY; lines];
        for &hash in &hashes {
            portable::insert(&mut want[line_index(hash, lines)], hash, probes);
        }
        let probed: Vec<u64> = hashes.iter().flat_map(|&hash| [hash, hash ^ 1 << 17]).collect();
        let expected: Vec<bool> = probed
            .iter()
            .map(|&hash| portable::contains(line_of(&want, hash), hash, probes))
            .collect();
        for path in Path::all() {
            let mut filled = vec![Line::EMPTY; lines];
            path.insert_all(&mut filled, probes, &hashes);
            prop_assert!(filled == want, "{:?}", path);
            let mut results = vec![false; probed.len()];
            path.contains_all(&filled, probes, &probed, &mut results);
            prop_assert_eq!(&results, &expected, "{:?}", path);
            let one_by_one = probed.iter().map(|&hash| path.contains(&filled, hash, probes));
            prop_assert!(one_by_one.eq(expected.iter().copied()), "{:?}, one by one", path);
            prop_assert!(results.iter().step_by(2).all(|&result| result), "{:?}", path);
        }
    }

    #[test]
    fn bytes_round_trip(bytes in any::<[[u8; 32]; 2]>()) {
        let bytes: [u8; LINE_BYTES] = bytes.concat().try_into().expect("64 bytes");
        prop_assert_eq!(Line::from_bytes(&bytes).to_bytes(), bytes);
    }
}

/// Every single missing bit is detected, for any probe.
#[test]
fn one_missing_bit_is_detected() {
    let hash = 0x0123_4567_89ab_cdef;
    for probes in 1..=PROBES_MAX {
        for bit in bits(hash, probes) {
            let mut line = Line([u32::MAX; 16]);
            line.0[bit as usize / 32] &= !(1 << (bit % 32));
            for path in Path::all() {
                assert!(
                    !path.contains(slice::from_ref(&line), hash, probes),
                    "{path:?}, bit {bit}"
                );
            }
        }
    }
}

#[test]
fn the_line_is_always_in_range() {
    for lines in [1, 2, 3, 1 << 20, (1 << 32) + 1, usize::MAX] {
        assert_eq!(line_index(0, lines), 0);
        assert_eq!(line_index(u64::MAX, lines), lines - 1, "{lines} lines");
    }
}

/// Fills lines on each path, and checks that all hashes are found, one by one and in a batch.
fn assert_found_on_every_path(name: &str, hashes: &[u64], lines: usize, probes: u8) {
    let mut first = None;
    for path in Path::all() {
        let mut filled = vec![Line::EMPTY; lines];
        path.insert_all(&mut filled, probes, hashes);
        let has = |&hash: &u64| path.contains(&filled, hash, probes);
        assert!(hashes.iter().all(has), "{name}, {probes} probes, {path:?}");
        let mut results = vec![false; hashes.len()];
        path.contains_all(&filled, probes, hashes, &mut results);
        assert!(results.iter().all(|&result| result), "{name}, {probes} probes, {path:?}, batch");
        let first = first.get_or_insert_with(|| filled.clone());
        assert!(*first == filled, "{name}, {probes} probes, {path:?}: other bits");
    }
}

#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_finds_adversarial_keys() {
    let hashed = |keys: Vec<Vec<u8>>| keys.iter().map(|key| key_hash(key, 7)).collect();
    let keys = adversarial_keys().into_iter().map(|(name, keys)| (name, hashed(keys)));
    for (name, hashes) in keys.chain(hostile_hashes()) {
        let hashes: Vec<u64> = hashes;
        for probes in [1, 6, 8, 9, 16] {
            assert_found_on_every_path(name, &hashes, hashes.len() / 50 + 1, probes);
        }
    }
}

/// `SIEVE_LONG=1` uses ten million keys.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_finds_many_keys() {
    let many = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000_u64 } else { 300_000 };
    let hashes: Vec<u64> = (0..many).map(|i| key_hash(&i.to_be_bytes(), 7)).collect();
    assert_found_on_every_path("counters", &hashes, hashes.len() / 50, 6);
}
