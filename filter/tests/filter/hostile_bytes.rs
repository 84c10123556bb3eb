//! Bytes that are not a filter are refused, without a panic.

use proptest::prelude::*;
use sievedb_filter::{BlockedBloom, DecodeError, Expected, TableFilter, filter_block};

const EXPECTED: Expected = Expected { hash_seed: 0x5eed, salt: 0x5a17 };

fn good() -> Vec<u8> {
    let hashes: Vec<u64> = (1..=150_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    filter_block::encode(
        &BlockedBloom::build(&hashes, 10.0),
        EXPECTED.hash_seed,
        EXPECTED.salt,
        10_000,
    )
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = good();
    assert!(TableFilter::decode(&good, EXPECTED).is_ok());
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = TableFilter::decode(&bytes, EXPECTED).err();
        assert!(matches!(found, Some(DecodeError::Checksum { .. })), "bit {bit}: {found:?}");
        assert!(!filter_block::describe(&bytes).is_empty());
    }
}

#[test]
fn every_cut_is_noticed() {
    let good = good();
    for cut in 0..good.len() {
        assert!(TableFilter::decode(&good[..cut], EXPECTED).is_err(), "the first {cut} bytes");
        let tail = TableFilter::decode(&good[good.len() - cut..], EXPECTED);
        assert!(tail.is_err(), "the last {cut} bytes");
        assert!(!filter_block::describe(&good[..cut]).is_empty());
    }
    let trailing = [good.as_slice(), &[0; 64]].concat();
    assert!(TableFilter::decode(&trailing, EXPECTED).is_err(), "zeros behind the trailer");
}

#[test]
fn filters_of_others_are_refused() {
    let good = good();
    let cases = [
        ("another seed", Expected { hash_seed: 1, ..EXPECTED }),
        ("another table", Expected { salt: 1, ..EXPECTED }),
    ];
    for (name, expected) in cases {
        let found = TableFilter::decode(&good, expected).err();
        assert!(matches!(found, Some(DecodeError::Mismatch { .. })), "{name}: {found:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(TableFilter::decode(&bytes, EXPECTED).is_err());
        prop_assert!(!filter_block::describe(&bytes).is_empty());
    }

    #[test]
    fn an_overwritten_stretch_is_noticed(
        at in 0_usize..320,
        noise in proptest::collection::vec(any::<u8>(), 1..64),
    ) {
        let good = good();
        let mut bytes = good.clone();
        let end = (at + noise.len()).min(bytes.len());
        prop_assume!(at < end);
        bytes[at..end].copy_from_slice(&noise[..end - at]);
        prop_assert_eq!(TableFilter::decode(&bytes, EXPECTED).is_ok(), bytes == good);
    }
}
