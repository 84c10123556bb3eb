//! The parts of a binary fuse filter.

use super::*;
use crate::filter_block::{self, Expected};

/// SplitMix64.
fn hashes(seed: u64, n: usize) -> Vec<u64> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    core::iter::repeat_with(next).take(n).collect()
}

/// A probe adds up the slots that `place` defines.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn places_are_in_adjacent_segments() {
    for keys in [0, 1, 5, 100, 5_000, 2_000_000] {
        for attempt in 0..4 {
            let shape = Shape::new(keys, attempt);
            let hasher = Hasher::new(shape, attempt);
            let extremes = [0, u64::MAX, 1, 1 << 63];
            for mixed in hashes(keys, 1_000).into_iter().chain(extremes) {
                let (places, _) = hasher.places(mixed);
                let segments = places.map(|place| place as u64 >> shape.segment_log2);
                assert!(segments[0] < shape.segments, "{shape:?}");
                assert_eq!(segments[1], segments[0] + 1);
                assert_eq!(segments[2], segments[0] + 2);
            }
        }
    }
}

/// Small sets may need several seeds, but rarely many.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn few_seeds_are_tried() {
    let mut tried = [0; 1 + ATTEMPTS as usize];
    for n in (0..400).chain((400..4_000).step_by(37)) {
        for seed in 0..4 {
            let keys = hashes(seed << 32 | n as u64, n);
            let filter = BinaryFuse8::build(&keys);
            assert!(keys.iter().all(|&hash| filter.may_contain_hash(hash)), "{n} keys");
            tried[usize::from(filter.attempt)] += 1;
        }
    }
    eprintln!("filters by their number of seeds: {tried:?}");
    assert!(tried[16..].iter().all(|&filters| filters == 0), "{tried:?}");
    let all: usize = tried.iter().sum();
    assert!(tried[0] > all / 2, "{tried:?}");
}

#[test]
fn without_a_seed_every_key_matches() {
    let keys = hashes(1, 1_000);
    let filter = BinaryFuse16::build_within(&keys, 0);
    assert_eq!(filter.expected_fpr(), 1.0);
    assert_eq!(filter.key_count(), 1_000);
    assert!(hashes(2, 1_000).iter().all(|&hash| filter.may_contain_hash(hash)));
    let expected = Expected { hash_seed: 1, salt: 2 };
    let bytes = filter_block::encode(&filter.into(), expected);
    let stored = filter_block::decode(&bytes, expected).unwrap();
    assert!(hashes(3, 1_000).iter().all(|&hash| stored.may_contain_hash(hash)));
}

/// The key count of a slot has six bits.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn overflowing_counts_are_handled() {
    for n in [63, 64, 65, 127, 128, 129, 192, 256, 1_024] {
        let few = hashes(4, 50);
        let mut keys = few.clone();
        // Duplicates that are not adjacent.
        keys.extend((0..n).flat_map(|i| [7, few[i % 50]]));
        let filter = BinaryFuse8::build(&keys);
        assert_eq!(filter.key_count(), 51, "{n} repetitions");
        assert!(filter.expected_fpr() < 0.01);
        assert!(keys.iter().all(|&hash| filter.may_contain_hash(hash)), "{n} repetitions");
    }
}
