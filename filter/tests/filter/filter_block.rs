//! The stored form: size, rejected bytes, and partial reads.

use sievedb_filter::filter_block::{self, PIECE_BYTES, TRAILER_BYTES_MAX, Trailer};
use sievedb_filter::{DecodeError, Expected, FilterArena, FilterKind, Ribbon, TableFilter};

use crate::random::{Random, seed};
use crate::seal::{EXPECTED, numbers_place, seal};

fn build(kind: FilterKind, keys: usize, bits_per_key: f64) -> TableFilter {
    let hashes = Random(seed() ^ keys as u64).many(keys);
    TableFilter::build(kind, &hashes, bits_per_key).expect("a known kind")
}

/// The trailer is everything besides the columns, lines or slots.
#[test]
fn trailers_are_small() {
    use FilterKind::{BinaryFuse, BlockedBloom, Ribbon};
    let cases = [
        (BlockedBloom, 10.0, 10, 14, 14),
        (BlockedBloom, 10.0, 1_000_000, 14, 16),
        (Ribbon, 7.0, 1_000, 17, 20),
        (Ribbon, 7.0, 100_000, 20, 25),
        (Ribbon, 6.72, 1_000_000, 24, 30),
        (BinaryFuse, 9.0, 1_000, 18, 18),
        (BinaryFuse, 18.0, 1_000_000, 18, 20),
    ];
    for (kind, bits_per_key, keys, least, most) in cases {
        let bytes = filter_block::encode(&build(kind, keys, bits_per_key), EXPECTED);
        let trailer = usize::from(bytes[bytes.len() - 5]);
        eprintln!("{kind:?}, {keys} keys: a trailer of {trailer} bytes");
        assert!((least..=most).contains(&trailer), "{kind:?}, {keys} keys: {trailer} bytes");
    }
}

#[test]
fn invalid_blocks_are_rejected() {
    let small = |kind, bits| filter_block::encode(&build(kind, 20, bits), EXPECTED);
    let [bloom, ribbon, fuse] = [
        small(FilterKind::BlockedBloom, 10.0),
        small(FilterKind::Ribbon, 7.0),
        small(FilterKind::BinaryFuse, 9.0),
    ];
    // Replaces the numbers at some position of the block's trailer, and seals it again.
    let with = |block: &[u8], at: usize, numbers: &[u8], payload_bytes: usize| {
        let trailer = block.len() - usize::from(block[block.len() - 5]);
        let mut bytes = vec![0; payload_bytes];
        bytes.extend_from_slice(&block[trailer..]);
        bytes[payload_bytes + at..][..numbers.len()].copy_from_slice(numbers);
        seal(&mut bytes, EXPECTED);
        bytes
    };
    let end = |block: &[u8], at: usize, byte: u8| {
        let mut bytes = block.to_vec();
        let at = bytes.len() - at;
        bytes[at] = byte;
        seal(&mut bytes, EXPECTED);
        bytes
    };
    let mut cases = vec![
        ("no bytes", vec![]),
        ("zeros", vec![0; 200]),
        ("a Bloom filter with the kind of a range filter", end(&bloom, 7, FilterKind::Range as u8)),
        ("an unknown kind", end(&bloom, 7, 77)),
        ("kind zero", end(&bloom, 7, 0)),
        ("an earlier version", end(&bloom, 6, 1)),
        ("a later version", end(&bloom, 6, 3)),
        ("a ribbon of an earlier version", end(&ribbon, 6, 3)),
        ("a trailer without length", end(&bloom, 5, 0)),
        ("a trailer cut in its end", end(&bloom, 5, 6)),
        ("only the end of a trailer", bloom[bloom.len() - 7..].to_vec()),
        ("another hash version", with(&bloom, 0, &[2], 64)),
        ("no lines", with(&bloom, 0, &[], 0)),
        ("half a line", with(&bloom, 0, &[], 32)),
        ("an extra byte", with(&bloom, 0, &[], 65)),
        ("no probes", with(&bloom, 2, &[0], 64)),
        ("too many probes", with(&bloom, 2, &[17], 64)),
        ("no blocks", with(&ribbon, 4, &[0], 0)),
        ("a column that no block has", with(&ribbon, 2, &[32], 0)),
        ("more columns", with(&ribbon, 2, &[7], 56)),
        ("a second group", with(&ribbon, 2, &[8], 72)),
        ("all blocks lack one, and one more", with(&ribbon, 2, &[70], 48)),
        ("fingerprints of no bits", with(&fuse, 2, &[0], 12)),
        ("fingerprints of 9 bits", with(&fuse, 2, &[9], 12)),
        ("segments too long", with(&fuse, 3, &[19], 12)),
        ("no segments", with(&fuse, 4, &[0], 8)),
        ("more segments", with(&fuse, 4, &[40], 12)),
        ("an invalid attempt", with(&fuse, 5, &[65], 12)),
    ];
    for block in [&bloom, &ribbon, &fuse] {
        let payload = block.len() - usize::from(block[block.len() - 5]);
        cases.push(("without a payload", block[payload..].to_vec()));
        assert!(TableFilter::decode(block, EXPECTED).is_ok());
    }
    for (name, bytes) in cases {
        assert!(TableFilter::decode(&bytes, EXPECTED).is_err(), "{name}");
        assert!(!filter_block::describe(&bytes, None).is_empty(), "{name}");
        assert!(!filter_block::describe(&bytes, Some(EXPECTED)).is_empty(), "{name}");
    }
}

#[test]
fn unknown_kinds_and_versions_are_not_reported_as_damage() {
    let block = filter_block::encode(&build(FilterKind::BlockedBloom, 20, 10.0), EXPECTED);
    for (at, what) in [(7, "filter kind"), (6, "version of the filter")] {
        let mut bytes = block.clone();
        let at = bytes.len() - at;
        bytes[at] = 9;
        let found = TableFilter::decode(&bytes, EXPECTED).err();
        assert!(matches!(found, Some(DecodeError::Checksum { .. })), "{what}: {found:?}");
        seal(&mut bytes, EXPECTED);
        let found = TableFilter::decode(&bytes, EXPECTED).err();
        assert_eq!(found, Some(DecodeError::Unsupported { what, value: 9 }));
    }
}

#[test]
fn filters_of_other_tables_are_rejected() {
    for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse] {
        let block = filter_block::encode(&build(kind, 20, 10.0), EXPECTED);
        for other in [
            Expected { hash_seed: 1, ..EXPECTED },
            Expected { salt: 1, ..EXPECTED },
            Expected { hash_seed: EXPECTED.salt, salt: EXPECTED.hash_seed },
        ] {
            let found = TableFilter::decode(&block, other).err();
            assert!(matches!(found, Some(DecodeError::Checksum { .. })), "{kind:?}: {found:?}");
        }
    }
}

/// The first columns are a filter of the same keys: a higher rate, less memory, never a new
/// negative.
#[test]
fn the_first_columns_are_a_smaller_filter() {
    let mut random = Random(seed());
    for (keys, bits_per_key) in [(0, 5.0), (300, 3.0), (3_000, 8.0), (9_000, 12.3), (2_000, 32.0)] {
        let hashes = random.many(keys);
        let whole = filter_block::encode(&Ribbon::build(&hashes, bits_per_key).into(), EXPECTED);
        let probed = random.many(20_000);
        let mut probed_more = vec![false; probed.len()];
        let (mut more_memory, mut more) = (usize::MAX, whole.clone());
        for count in (4..=128).rev().map(|quarters| f64::from(quarters) / 4.0) {
            let name = format!("{keys} keys, {count} of {bits_per_key} columns");
            let read = filter_block::decode_columns(&whole, EXPECTED, count);
            let read = read.expect("the block is valid");
            assert!(hashes.iter().all(|&hash| read.may_contain_hash(hash)), "{name}");
            let results: Vec<bool> = probed.iter().map(|&it| read.may_contain_hash(it)).collect();
            let is_more = results.iter().zip(&probed_more).all(|(result, more)| result >= more);
            assert!(is_more, "{name}: a new negative");
            probed_more = results;

            let rate = read.expected_fpr();
            let nominal = FilterKind::Ribbon.expected_fpr(count.min(bits_per_key));
            let nominal = nominal.expect("a known kind");
            assert!(keys < 2_000 || (rate / nominal - 1.0).abs() < 0.2, "{name}: {rate}");
            let expected = rate * probed.len() as f64;
            let matched = probed_more.iter().filter(|&&result| result).count() as f64;
            assert!((matched - expected).abs() <= 6.0 * expected.sqrt() + 1.0, "{name}: {matched}");
            assert!(read.memory_bytes() <= more_memory, "{name}");
            more_memory = read.memory_bytes();

            // Step by step or at once: the same bytes.
            let stepwise = filter_block::decode_columns(&more, EXPECTED, count);
            more = filter_block::encode(&read, EXPECTED);
            let stepwise = stepwise.expect("the block is valid");
            assert!(more == filter_block::encode(&stepwise, EXPECTED), "{name}");
            assert!(count < bits_per_key || more == whole, "{name}");
        }
    }
}

/// A reader with a part of a block gets the columns in it.
#[test]
fn a_ribbon_is_read_in_part() {
    let whole = filter_block::encode(&build(FilterKind::Ribbon, 5_000, 20.3), EXPECTED);
    let tail = &whole[whole.len() - TRAILER_BYTES_MAX..];
    let trailer = Trailer::read(tail, whole.len() as u64, EXPECTED).expect("the block is valid");
    assert_eq!((trailer.kind(), trailer.key_count()), (FilterKind::Ribbon, 5_000));
    let mut previous = 0;
    for count in [1.0, 7.5, 8.0, 8.2, 16.0, 17.0, 20.5, 32.0] {
        let front = usize::try_from(trailer.front_bytes(count)).expect("in memory");
        assert!(front >= previous && front < whole.len());
        previous = front;
        let parts = trailer.decode(&whole[..front], count).expect("all bytes are present");
        assert_eq!(trailer.memory_bytes(count), parts.memory_bytes() as u64, "{count} columns");
        let want = filter_block::decode_columns(&whole, EXPECTED, count);
        let want = want.expect("the block is valid");
        assert!(
            filter_block::encode(&parts, EXPECTED) == filter_block::encode(&want, EXPECTED),
            "{count} columns"
        );
        let found = trailer.decode(&whole[..front - 1], count).err();
        assert!(matches!(found, Some(DecodeError::Truncated { .. })), "{count}: {found:?}");

        // Damage in unneeded bytes does not matter; damage in needed ones does.
        let mut damaged = whole.clone();
        damaged[front - 1] ^= 1;
        assert!(filter_block::decode_columns(&damaged, EXPECTED, count).is_err());
        if count <= 16.0 {
            damaged[front - 1] ^= 1;
            damaged[front] ^= 1;
            assert!(filter_block::decode_columns(&damaged, EXPECTED, count).is_ok());
            assert!(TableFilter::decode(&damaged, EXPECTED).is_err());
        }
    }
    assert!(Trailer::read(tail, whole.len() as u64 - 1, EXPECTED).is_err(), "a byte is missing");
    assert!(trailer.columns().is_some_and(|columns| (columns - 20.3).abs() < 0.1));
}

/// Pieces are requested in order, within the maximum length, and nothing else is.
#[test]
fn a_filter_is_loaded_piece_by_piece() {
    let built = [
        (build(FilterKind::BlockedBloom, 300_000, 10.0), 1.0),
        (build(FilterKind::Ribbon, 300_000, 20.3), 20.3),
        (build(FilterKind::Ribbon, 300_000, 20.3), 12.6),
        (build(FilterKind::Ribbon, 300_000, 7.4), 6.1),
        (build(FilterKind::BinaryFuse, 300_000, 8.0), 1.0),
        (build(FilterKind::BinaryFuse, 300_000, 18.0), 1.0),
    ];
    for (filter, columns) in built {
        let name = format!("{:?}, {columns} columns", filter.kind());
        let block = filter_block::encode(&filter, EXPECTED);
        let trailer =
            Trailer::read(&block, block.len() as u64, EXPECTED).expect("the block is valid");
        let mut end = 0;
        let loaded = trailer.load_in(columns, &FilterArena::heap(), |piece| {
            assert_eq!(piece.start, end, "{name}");
            assert!(piece.end - piece.start <= PIECE_BYTES, "{name}");
            end = piece.end;
            Ok::<_, DecodeError>(block[piece.start as usize..piece.end as usize].to_vec())
        });
        let loaded = loaded.expect("the block is valid");
        assert!(end > 2 * PIECE_BYTES, "{name}: {end}");
        assert_eq!(end, trailer.front_bytes(columns), "{name}");
        let want =
            filter_block::decode_columns(&block, EXPECTED, columns).expect("the block is valid");
        let [loaded, want] = [loaded, want].map(|it| filter_block::encode(&it, EXPECTED));
        assert!(loaded == want, "{name}");
        let is_whole = !name.starts_with("Ribbon") || columns == 20.3;
        assert_eq!(loaded == block, is_whole, "{name}");
    }
}

#[test]
fn a_trailer_reports_the_memory_of_whole_filters() {
    for kind in [FilterKind::BlockedBloom, FilterKind::BinaryFuse] {
        let filter = build(kind, 3_000, 10.0);
        let block = filter_block::encode(&filter, EXPECTED);
        let trailer =
            Trailer::read(&block, block.len() as u64, EXPECTED).expect("the block is valid");
        assert_eq!(trailer.columns(), None, "{kind:?}");
        for columns in [1.0, 40.0] {
            assert_eq!(trailer.memory_bytes(columns), filter.memory_bytes() as u64, "{kind:?}");
        }
    }
}

/// A reader of parts passes the block's length, which may come from anywhere.
#[test]
fn blocks_of_wrong_length_are_rejected() {
    for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse] {
        let block = filter_block::encode(&build(kind, 20, 10.0), EXPECTED);
        for length in [0, 1, 63, block.len() as u64 - 1, u64::MAX - 63, u64::MAX - 1, u64::MAX] {
            assert!(Trailer::read(&block, length, EXPECTED).is_err(), "{kind:?}, {length} bytes");
        }
    }
}

/// The description covers every byte once, and detects a filter of another table.
#[test]
fn all_fields_are_described() {
    let block = filter_block::encode(&build(FilterKind::Ribbon, 5_000, 9.4), EXPECTED);
    let fields = filter_block::describe(&block, Some(EXPECTED));
    let mut end = 0;
    for field in &fields {
        assert_eq!(field.place.start, end, "{}", field.name);
        end = field.place.end;
        assert!(!field.meaning.contains("damaged"), "{}: {}", field.name, field.meaning);
    }
    assert_eq!(end, block.len() as u64);
    assert!(numbers_place(&block).start as u64 == fields[1].place.start);
    let foreign = filter_block::describe(&block, Some(Expected { salt: 1, ..EXPECTED }));
    assert!(foreign.iter().any(|field| field.meaning.starts_with("damaged")));
}
