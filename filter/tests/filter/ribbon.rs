//! The ribbon filter through its public interface: no key denied, rate and space as stated, its
//! stored form, and hostile bytes.

use proptest::prelude::*;
use sievedb_filter::filter_block::TRAILER_BYTES;
use sievedb_filter::{
    BlockedBloom, DecodeError, Expected, FilterKind, Ribbon, TableFilter, filter_block, key_hash,
};

use crate::random::{Random, seed};

const EXPECTED: Expected = Expected { hash_seed: 0x5eed, salt: 0x5a17 };

fn encode(filter: &Ribbon) -> Vec<u8> {
    filter_block::encode_ribbon(filter, EXPECTED.hash_seed, EXPECTED.salt, 7_000)
}

/// A million keys under each of twenty seeds: rare faults do not show in small sets. `SIEVE_LONG=1`
/// takes ten million for each.
#[test]
fn a_million_keys_are_found_over_many_seeds() {
    let seed = seed();
    let keys = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    for round in 0..20_u64 {
        let mut random = Random(seed ^ round << 32);
        let hashes = random.many(keys);
        let columns = 1.0 + round as f64 * 0.61;
        let filter = Ribbon::build(&hashes, columns);
        let denied = hashes.iter().filter(|&&hash| !filter.may_contain_hash(hash)).count();
        assert_eq!(denied, 0, "round {round}, {columns} columns");
    }
}

/// One filter that large: chunks of the radix pass, four layers and more.
#[test]
fn a_large_set_is_found() {
    let mut random = Random(seed());
    let mut hashes = random.many(1_000_000);
    hashes.extend_from_within(..1_000); // Repetitions far apart.
    let filter = Ribbon::build(&hashes, 7.0);
    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
    assert_eq!(filter.key_count(), 1_001_000);
}

#[test]
fn hostile_hashes_are_found() {
    let cases: [(&str, Vec<u64>); 7] = [
        ("counters", (0..5_000).collect()),
        ("high bits alone", (0..5_000).map(|i| i << 48).collect()),
        ("equal high bits", (0..5_000).map(|i| u64::MAX << 20 | i).collect()),
        ("extremes", vec![0, u64::MAX, 1, u64::MAX - 1, 1 << 63]),
        ("one bit", (0..64).map(|bit| 1 << bit).collect()),
        ("all the same", vec![42; 5_000]),
        ("two in turn", (0..5_000).map(|i| i % 2).collect()),
    ];
    for (name, hashes) in cases {
        for columns in [1.0, 6.72, 8.0, 20.3, 32.0] {
            let filter = Ribbon::build(&hashes, columns);
            for &hash in &hashes {
                assert!(filter.may_contain_hash(hash), "{name}, {columns} columns");
            }
        }
    }
}

/// What thresholds, padding and empty slots add to the columns, as stored, over seeds.
#[test]
fn space_is_little_more_than_the_columns() {
    let seed = seed();
    for (keys, without_trailer, with_trailer) in SPACE {
        let rounds = if keys > 50_000 { 2 } else { 10 };
        let mut bytes = 0.0;
        for round in 0..rounds {
            let mut random = Random(seed ^ round << 32);
            let filter = Ribbon::build(&random.many(keys), 7.0);
            bytes += encode(&filter).len() as f64 / rounds as f64;
            assert!(filter.memory_bytes() as f64 <= bytes * rounds as f64 + 1_000.0);
        }
        let columns = keys as f64 * 7.0 / 8.0;
        let whole = bytes / columns - 1.0;
        let payload = (bytes - TRAILER_BYTES as f64) / columns - 1.0;
        eprintln!("{keys} keys: {:.2} %, without the trailer {:.2} %", whole * 1e2, payload * 1e2);
        assert!(whole <= with_trailer, "{keys} keys: {whole}");
        assert!(payload <= without_trailer, "{keys} keys: {payload}");
    }
}

/// Keys, and the most that seven columns take over their own size: the payload, and with the trailer.
const SPACE: [(usize, f64, f64); 5] = [
    (1_000, 0.05, 0.12),
    (10_000, 0.012, 0.020),
    (100_000, 0.0045, 0.0055),
    (300_000, 0.0032, 0.004),
    (1_000_000, 0.003, 0.003),
];

#[test]
fn kinds_tell_their_rates() {
    let bloom = FilterKind::BlockedBloom.expected_fpr(10.0).expect("a known kind");
    assert!((0.0096..0.0098).contains(&bloom), "{bloom}");
    let ribbon = FilterKind::Ribbon.expected_fpr(6.72).expect("a known kind");
    assert!((ribbon - 0.01).abs() < 1e-12, "{ribbon}");
    assert_eq!(FilterKind::Ribbon.expected_fpr(0.3), Some(0.5), "a column at least");
    assert_eq!(FilterKind::BinaryFuse.expected_fpr(10.0), None);
}

#[test]
fn batches_of_a_bloom_filter_answer_alike() {
    let mut random = Random(seed());
    let hashes = random.many(1_000);
    let filter = BlockedBloom::build(&hashes, 8.0);
    for n in [0, 1, 31, 32, 33, 1_000] {
        let asked = [&hashes[..n], &random.many(n)].concat();
        let mut answers = vec![false; asked.len()];
        filter.may_contain_hashes(&asked, &mut answers);
        for (hash, answer) in asked.iter().zip(answers) {
            assert_eq!(filter.may_contain_hash(*hash), answer);
        }
    }
}

fn good() -> Vec<u8> {
    encode(&Ribbon::build(&Random(3).many(1_500), 9.4))
}

fn reseal(bytes: &mut [u8]) {
    let Some(payload_bytes) = bytes.len().checked_sub(TRAILER_BYTES) else { return };
    let payload = crc32fast::hash(&bytes[..payload_bytes]);
    bytes[payload_bytes + 56..payload_bytes + 60].copy_from_slice(&payload.to_le_bytes());
    let trailer = crc32fast::hash(&bytes[payload_bytes..payload_bytes + 60]);
    bytes[payload_bytes + 60..].copy_from_slice(&trailer.to_le_bytes());
}

#[test]
fn every_flip_and_cut_is_noticed() {
    let good = good();
    assert!(TableFilter::decode(&good, EXPECTED).is_ok());
    for bit in (0..good.len() * 8).step_by(7) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = TableFilter::decode(&bytes, EXPECTED).err();
        assert!(matches!(found, Some(DecodeError::Checksum { .. })), "bit {bit}: {found:?}");
    }
    for cut in 0..good.len() {
        assert!(TableFilter::decode(&good[..cut], EXPECTED).is_err(), "the first {cut} bytes");
        let mut bytes = good[cut + 1..].to_vec();
        reseal(&mut bytes);
        assert!(TableFilter::decode(&bytes, EXPECTED).is_err(), "without {} bytes", cut + 1);
    }
}

/// Well-sealed nonsense in each field that lengths depend on.
#[test]
fn shapes_that_do_not_fit_are_refused() {
    use DecodeError::{Mismatch, OutOfRange};
    let good = good();
    let trailer = good.len() - TRAILER_BYTES;
    let cases: [(&str, usize, u8); 14] = [
        ("groups", trailer + 3, 1),
        ("no columns", trailer + 4, 0),
        ("a column less", trailer + 4, 9),
        ("many columns", trailer + 4, 33),
        ("no layers", trailer + 5, 0),
        ("a layer less", trailer + 5, 1),
        ("many layers", trailer + 5, 13),
        ("blocks", trailer + 32, 1),
        ("blocks without end", trailer + 39, 0xff),
        ("upper", trailer + 48, 0),
        ("upper without end", trailer + 55, 0xff),
        ("blocks of the last layer", trailer - 4, 0xff),
        ("blocks of the last layer without end", trailer - 1, 0xff),
        ("blocks of the first layer", trailer - 8, 0),
    ];
    for (name, at, byte) in cases {
        let mut bytes = good.clone();
        assert_ne!(bytes[at], byte, "{name}");
        bytes[at] = byte;
        reseal(&mut bytes);
        let found = TableFilter::decode(&bytes, EXPECTED).err();
        assert!(matches!(found, Some(Mismatch { .. } | OutOfRange { .. })), "{name}: {found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever a sealed block holds: it is refused, or answers, in bounds.
    #[test]
    fn sealed_noise_is_refused_or_answers(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        columns in 1_u8..10,
        layers in 1_u8..4,
        blocks in 1_u8..6,
        attempt in any::<u16>(),
        upper in 0_u8..3,
        asked in proptest::collection::vec(any::<u64>(), 20),
        fits in any::<bool>(),
    ) {
        let mut bytes = payload;
        let words = usize::from(blocks) * usize::from(columns) - usize::from(upper.min(blocks));
        if fits && layers == 1 && columns <= 8 {
            bytes.resize(words * 8, 0xa5);
            bytes.extend_from_slice(&u32::from(blocks).to_le_bytes());
        }
        let mut trailer = [0; TRAILER_BYTES];
        let groups = columns.div_ceil(8);
        trailer[..6].copy_from_slice(&[2, 1, 1, groups, columns, layers]);
        trailer[6..8].copy_from_slice(&attempt.to_le_bytes());
        trailer[8..16].copy_from_slice(&EXPECTED.hash_seed.to_le_bytes());
        trailer[16..24].copy_from_slice(&EXPECTED.salt.to_le_bytes());
        trailer[32] = blocks;
        trailer[41] = 1;
        trailer[48] = upper;
        bytes.extend_from_slice(&trailer);
        reseal(&mut bytes);
        prop_assert!(!filter_block::describe(&bytes).is_empty());
        if let Ok(filter) = TableFilter::decode(&bytes, EXPECTED) {
            let mut answers = vec![false; asked.len()];
            filter.may_contain_hashes(&asked, &mut answers);
            for (&hash, answer) in asked.iter().zip(answers) {
                filter.prefetch(hash);
                prop_assert_eq!(filter.may_contain_hash(hash), answer);
            }
            prop_assert!((0.0..=1.0).contains(&filter.expected_fpr()));
        } else {
            prop_assert!(!fits || layers > 1 || columns == 1 || columns > 8 || upper > blocks);
        }
    }

    #[test]
    fn a_byte_changed_and_sealed_is_refused_or_answers(at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = good();
        let at = at % bytes.len();
        bytes[at] = byte;
        reseal(&mut bytes);
        if let Ok(filter) = TableFilter::decode(&bytes, EXPECTED) {
            let asked = Random(9).many(40);
            prop_assert!(asked.iter().filter(|&&hash| filter.may_contain_hash(hash)).count() < 40);
        }
    }

    #[test]
    fn a_stored_filter_answers_as_the_one_in_memory(
        keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..900),
        others in proptest::collection::vec(any::<u64>(), 100),
        millibits in 1_u32..=40_000,
    ) {
        let Expected { hash_seed, salt } = EXPECTED;
        let hashes: Vec<u64> = keys.iter().map(|key| key_hash(key, hash_seed)).collect();
        let built = Ribbon::build(&hashes, f64::from(millibits) / 1e3);
        let bytes = filter_block::encode_ribbon(&built, hash_seed, salt, millibits.into());
        let read = TableFilter::decode(&bytes, EXPECTED);
        let read = read.expect("what was just written can be read");
        for hash in hashes {
            prop_assert!(built.may_contain_hash(hash));
            prop_assert!(read.may_contain_hash(hash));
        }
        for hash in others {
            prop_assert_eq!(read.may_contain_hash(hash), built.may_contain_hash(hash));
        }
        prop_assert_eq!(read.kind(), FilterKind::Ribbon);
        prop_assert_eq!(read.key_count(), built.key_count());
        prop_assert_eq!(read.memory_bytes(), built.memory_bytes());
        prop_assert_eq!(read.expected_fpr().to_bits(), built.expected_fpr().to_bits());
    }
}
