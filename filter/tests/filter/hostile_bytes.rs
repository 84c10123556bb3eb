//! Invalid bytes are rejected, or decode to a filter that stays in bounds: without panics, and
//! without more memory than the bytes justify.
//!
//! A million cases; `SIEVE_LONG=1` runs ten times as many. `SIEVE_SEED` selects them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sievedb_filter::range_filter::Points;
use sievedb_filter::{DecodeError, FilterKind, RangeFilter, TableFilter, filter_block};

use crate::allocations;
use crate::random::{Random, seed};
use crate::seal::{EXPECTED, numbers_place, seal};

/// Returns valid blocks of every kind and shape.
fn good_blocks() -> Vec<(String, Vec<u8>)> {
    use FilterKind::{BinaryFuse, BlockedBloom, Ribbon};
    let cases = [
        (BlockedBloom, 0, 10.0),
        (BlockedBloom, 150, 10.0),
        (BlockedBloom, 300, 0.3),
        (Ribbon, 0, 1.0),
        (Ribbon, 60, 7.0),
        (Ribbon, 500, 9.4),
        (Ribbon, 700, 2.5),
        (Ribbon, 90, 32.0),
        (BinaryFuse, 0, 9.0),
        (BinaryFuse, 200, 9.0),
        (BinaryFuse, 100, 18.0),
    ];
    let block = |(kind, keys, bits_per_key): (FilterKind, usize, f64)| {
        let hashes = Random(keys as u64).many(keys);
        let filter = TableFilter::build(kind, &hashes, bits_per_key).expect("a known kind");
        (format!("{kind:?}, {keys} keys"), filter_block::encode(&filter, EXPECTED).to_vec())
    };
    let range = |(points, bits_per_key): (usize, f64)| {
        let mut random = Random(points as u64).many(points);
        random.sort_unstable();
        let filter = RangeFilter::build(Points::new(random), bits_per_key, 7);
        (format!("Range, {points} points"), filter_block::encode_range(&filter, EXPECTED).to_vec())
    };
    let ranges = [(0, 10.0), (1, 40.0), (90, 4.0), (300, 12.7)];
    cases.map(block).into_iter().chain(ranges.map(range)).collect()
}

/// Decodes a block of any kind.
fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
    match filter_block::decode_range(bytes, EXPECTED) {
        Ok(_) => Ok(()),
        Err(DecodeError::Mismatch { what: "kind of the range filter", .. }) => {
            TableFilter::decode(bytes, EXPECTED).map(|_| ())
        }
        Err(error) => Err(error),
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    for (name, good) in good_blocks() {
        assert!(decode(&good).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = decode(&bytes).err();
            // Only the length of the trailer is used before the checksum.
            let is_length = bit / 8 == good.len() - 5;
            let is_expected =
                matches!(found, Some(DecodeError::Checksum { .. })) || is_length && found.is_some();
            assert!(is_expected, "{name}, bit {bit}: {found:?}");
            assert!(!filter_block::describe(&bytes, Some(EXPECTED)).is_empty());
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    for (name, good) in good_blocks() {
        for cut in 0..good.len() {
            assert!(decode(&good[..cut]).is_err(), "{name}, {cut} bytes");
            let mut tail = good[good.len() - cut..].to_vec();
            assert!(decode(&tail).is_err(), "{name}, the last {cut}");
            assert!(!filter_block::describe(&good[..cut], None).is_empty());
            seal(&mut tail, EXPECTED);
            // With a valid checksum, a Bloom filter of fewer lines is valid.
            let is_lines =
                name.starts_with("BlockedBloom") && (good.len() - cut).is_multiple_of(64);
            let found = decode(&tail);
            assert!(is_lines || found.is_err(), "{name}, sealed again, the last {cut} bytes");
        }
        let trailing = [good.as_slice(), &[0; 64]].concat();
        assert!(decode(&trailing).is_err(), "{name}: zeros behind it");
    }
}

/// Damages a valid block.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut below = |n: usize| (random.next() % n.max(1) as u64) as usize;
    match below(9) {
        // Flipped bits.
        0 | 1 => {
            for _ in 0..=below(8) {
                let bit = below(bytes.len() * 8);
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        // A different number in the trailer.
        2..=4 => {
            let place = numbers_place(bytes);
            let at = place.start + below(place.len());
            let byte = [0, 1, 0x7f, 0x80, 0xff, below(256) as u8][below(6)];
            if let Some(found) = bytes.get_mut(at) {
                *found = byte;
            }
        }
        // The end: kind, version, length.
        5 => {
            let at = bytes.len().saturating_sub(5 + below(3));
            let byte = [below(6) as u8, below(256) as u8][below(2)];
            if let Some(found) = bytes.get_mut(at) {
                *found = byte;
            }
        }
        // Noise in a range.
        6 => {
            let (from, length) = (below(bytes.len()), below(64));
            let to = (from + length).min(bytes.len());
            bytes[from..to].fill_with(|| below(256) as u8);
        }
        // A range removed or duplicated.
        7 => {
            let (from, length) = (below(bytes.len()), below(100));
            let to = (from + length).min(bytes.len());
            bytes.drain(from..to);
        }
        _ => {
            let (from, length) = (below(bytes.len()), below(100));
            let to = (from + length).min(bytes.len());
            bytes.extend_from_within(from..to);
            bytes[from..].rotate_right(to - from);
        }
    }
}

/// Returns noise that looks like a block of some kind.
fn noise(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut below = |n: usize| (random.next() % n as u64) as usize;
    bytes.clear();
    let payload = [below(40), below(400), 64 * below(6), 8 * below(30)][below(4)];
    bytes.extend((0..payload).map(|_| below(256) as u8));
    let numbers = below(24);
    bytes.push(1);
    bytes.extend((0..numbers).map(|_| [below(8) as u8, below(256) as u8][below(2)]));
    let kind = below(6) as u8;
    bytes.extend([kind, 2, (numbers + 8) as u8, 0, 0, 0, 0]);
}

/// Runs all cases and counts the accepted filters among those that were sealed again.
#[test]
fn damaged_bytes_are_rejected_or_usable() {
    let seed = seed();
    let cases = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    let blocks = good_blocks();
    let (mut accepted, mut sealed) = (0_u32, 0_u32);
    for case in 0..cases {
        let (name, good) = &blocks[case % blocks.len()];
        let run = || {
            let mut random = Random(seed ^ (case as u64) << 20);
            let mut bytes = good.clone();
            if random.next().is_multiple_of(8) {
                noise(&mut random, &mut bytes);
            } else {
                for _ in 0..=random.next() % 3 {
                    damage(&mut random, &mut bytes);
                }
            }
            let is_sealed = !random.next().is_multiple_of(4);
            if is_sealed {
                seal(&mut bytes, EXPECTED);
            }
            // Damage in columns that are not read is harmless.
            let columns = (random.next() % 136) as f64 / 4.0;
            let columns = Some(columns).filter(|&columns| is_sealed && columns > 0.0);
            let is_filter = if name.starts_with("Range") {
                try_out_range(&mut random, &bytes)
            } else {
                try_out(&mut random, &bytes, columns)
            };
            assert!(is_sealed || !is_filter || bytes == *good, "undetected damage");
            (is_sealed, is_filter)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok((is_sealed, is_filter)) => {
                sealed += u32::from(is_sealed);
                accepted += u32::from(is_sealed && is_filter);
            }
            Err(panic) => {
                eprintln!("case {case} of seed {seed}: {name}");
                resume_unwind(panic);
            }
        }
    }
    eprintln!("{cases} cases, {sealed} of them sealed again: {accepted} are filters");
    // Otherwise the cases would not get far.
    assert!(accepted > sealed / 10, "{accepted} of {sealed}");
}

/// Decodes `bytes` and probes the result. Returns `true` if it is a filter.
fn try_out(random: &mut Random, bytes: &[u8], columns: Option<f64>) -> bool {
    let read = || match columns {
        Some(columns) => filter_block::decode_columns(bytes, EXPECTED, columns),
        None => filter_block::decode(bytes, EXPECTED),
    };
    let (read, allocated) = allocations::total_in(read);
    assert!(allocated <= 2 * bytes.len() + 4_096, "{allocated} bytes for {}", bytes.len());
    if random.next().is_multiple_of(16) {
        let fields = filter_block::describe(bytes, Some(EXPECTED));
        assert!(fields.iter().all(|field| field.place.end <= bytes.len() as u64));
    }
    let Ok(filter) = read else { return false };
    let probed = random.many(24);
    let mut results = [false; 24];
    filter.may_contain_hashes(&probed, &mut results);
    for (&hash, result) in probed.iter().zip(results) {
        filter.prefetch(hash);
        assert_eq!(filter.may_contain_hash(hash), result);
    }
    for hash in [0, 1, u64::MAX, 1 << 63] {
        filter.prefetch(hash);
        let _ = filter.may_contain_hash(hash);
    }
    assert!((0.0..=1.0).contains(&filter.expected_fpr()));
    assert!(filter.memory_bytes() <= 2 * bytes.len() + 4_096);
    // An accepted filter has a stored form that is accepted too.
    let again = filter_block::encode(&filter, EXPECTED);
    assert!(TableFilter::decode(&again, EXPECTED).is_ok());
    true
}

/// Does the same as [`try_out`], for a range filter.
fn try_out_range(random: &mut Random, bytes: &[u8]) -> bool {
    let read = || filter_block::decode_range(bytes, EXPECTED);
    let (read, allocated) = allocations::total_in(read);
    assert!(allocated <= 2 * bytes.len() + 4_096, "{allocated} bytes for {}", bytes.len());
    let Ok(filter) = read else { return false };
    for _ in 0..24 {
        let (first, length) = (random.next(), random.next() >> (random.next() % 64));
        let _ = filter.may_contain_range(first, first.saturating_add(length));
        let _ = filter.may_contain_range(first % 999, first % 999 + length % 9_999);
    }
    assert!(filter.key_count() == 0 || filter.may_contain_range(0, u64::MAX));
    assert!((0.0..=1.0).contains(&filter.expected_fpr(random.next())));
    assert!(filter.memory_bytes() <= 2 * bytes.len() + 4_096);
    // An accepted filter has a stored form that is accepted too.
    let again = filter_block::encode_range(&filter, EXPECTED);
    assert!(filter_block::decode_range(&again, EXPECTED).is_ok());
    true
}
