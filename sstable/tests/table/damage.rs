//! Damaged tables: a correct result or a typed error.

use std::sync::Arc;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use sievedb_filter::key_hash;
use sievedb_format::{Corruption, RangeTombstone, SEQUENCE_MAX};
use sievedb_sstable::{
    BlockCache, BlockCounts, CacheUse, Compression, FilterState, FilterUnusable, PrefixExtractor,
    ReadError, Table, TableIdentity, TableOptions, TableSource,
};

use crate::{
    allocations,
    support::{
        Built, Entry, IDENTITY, build, build_as, describe, model_get, proptest_config, seek_advised,
    },
};

/// Maximum single allocation for a small table, whatever its bytes.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;

/// A table with two levels of index, compressed and raw blocks, a filter and range tombstones.
fn small_entries() -> Vec<Entry> {
    let mut entries = vec![Entry::put(b"", 7, b"empty")];
    for n in 0..120_u64 {
        let user_key = format!("key{n:04}").into_bytes();
        entries.push(Entry::put(&user_key, 500 + n, &[b'v'; 40]));
        if n % 3 == 0 {
            entries.push(Entry::tombstone(&user_key, 100 + n));
        }
    }
    let noise = (0..1500_u64).map(|n| key_hash(&n.to_le_bytes(), 1) as u8).collect::<Vec<_>>();
    entries.push(Entry::put(b"noise", 3, &noise));
    // Long separators fill a partition with few entries.
    for n in 0..8 {
        entries.push(Entry::put(&[b"x".repeat(300), vec![n]].concat(), 4, &[n; 700]));
    }
    entries
}

/// Prefix extractor of the small table.
const PREFIX: PrefixExtractor = PrefixExtractor::FixedLength(5);

fn small() -> Built {
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(1 << 10)
        .prefix_filter(PREFIX, 10.0);
    let tombstones = [RangeTombstone::new(b"key0010", b"key0020", 1000)];
    build_as(IDENTITY, &small_entries(), &tombstones, options)
}

/// Reads everything from a table and filter that may be damaged, and compares the results with the
/// model. Returns `true` if no read failed.
fn read_all(table: Table, filter: &FilterState, entries: &[Entry]) -> bool {
    let mut is_complete = true;
    let mut counts = BlockCounts::default();
    for entry in entries.iter().step_by(3) {
        let sequence = entry.trailer.sequence();
        for sequence in [sequence, SEQUENCE_MAX] {
            match table.get(&entry.user_key, sequence, &mut counts) {
                Ok(found) => {
                    let want = model_get(entries, &entry.user_key, sequence);
                    let want = want.map(|want| (want.trailer, Bytes::from(want.value.clone())));
                    assert_eq!(found, want, "{entry:?}");
                }
                Err(error) => is_complete &= is_typed(&error),
            }
        }
        assert!(filter.may_contain_hash(key_hash(&entry.user_key, IDENTITY.hash_seed)));
    }
    let table = Arc::new(table);
    let mut cursor = Arc::clone(&table).cursor(CacheUse::Bypass);
    if let Some(last) = entries.last() {
        // Advice from a damaged index must be harmless.
        cursor.advise_seek_before(last.key());
        if let Err(error) = seek_advised(&mut cursor, last.key()) {
            is_complete &= is_typed(&error);
        }
    }
    let mut moved = cursor.seek_to_first();
    for entry in entries {
        if let Err(error) = moved {
            is_complete &= is_typed(&error);
            assert_eq!(cursor.key(), None, "a cursor is unpositioned after an error");
            break;
        }
        assert_eq!(cursor.key(), Some(entry.key()));
        assert_eq!(cursor.value(), entry.value);
        moved = cursor.next();
    }
    let mut cursor = table.cursor(CacheUse::Fill);
    let mut moved = cursor.seek_to_last();
    for entry in entries.iter().rev() {
        if let Err(error) = moved {
            return is_complete & is_typed(&error);
        }
        assert_eq!(cursor.key(), Some(entry.key()));
        moved = cursor.prev();
    }
    is_complete
}

/// Checks that a filter that may be damaged hides no prefix.
fn probe_prefixes(filter: &FilterState, entries: &[Entry]) {
    let seed = PREFIX.hash_seed(IDENTITY.hash_seed);
    for prefix in entries.iter().filter_map(|entry| PREFIX.prefix(&entry.user_key)) {
        assert!(filter.may_contain_hash(key_hash(prefix, seed)));
    }
}

/// Checks that an error is a corruption, because the source does not fail. Returns `false`.
fn is_typed(error: &ReadError) -> bool {
    assert!(matches!(error, ReadError::Corrupt { .. }), "{error:?}");
    false
}

/// Opens damaged bytes and reads everything.
fn survives(built: &Built, entries: &[Entry], bytes: Vec<u8>) -> bool {
    let (is_complete, largest) = allocations::largest_in(|| {
        let source: Arc<dyn TableSource> = Arc::new(Bytes::from(bytes.clone()));
        drop(describe(&source).to_string());
        let filter = built.filter_in(&bytes);
        probe_prefixes(&built.prefix_filter_in(&bytes, &PREFIX), entries);
        match built.open_bytes(bytes, 1 << 20) {
            Ok(table) => read_all(table, &filter, entries),
            Err(error) => is_typed(&error),
        }
    });
    assert!(largest <= ALLOCATION_BYTES_MAX, "an allocation of {largest} bytes");
    is_complete
}

#[test]
fn the_small_table_has_every_part() {
    let built = small();
    let table = built.open();
    assert_eq!(table.properties().index_levels, 2);
    assert!(table.properties().index_partitions > 1);
    assert!(!table.range_tombstones().is_empty());
    assert!(survives(&built, &small_entries(), built.bytes.clone()));
    let text = describe(&(Arc::new(Bytes::from(built.bytes)) as Arc<dyn TableSource>)).to_string();
    assert!(text.contains("LZ4") && text.contains("raw"), "{text}");
}

#[test]
fn every_flipped_byte_is_detected_or_harmless() {
    let (built, entries) = (small(), small_entries());
    let filters = [built.summary.filter, built.summary.prefix_filter];
    let [points, prefixes] = filters.map(|handle| {
        let handle = handle.unwrap();
        handle.offset as usize..(handle.offset + handle.bytes) as usize
    });
    for at in 0..built.bytes.len() {
        let mut bytes = built.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let is_complete = survives(&built, &entries, bytes);
        // Only filters and their padding are not needed.
        let is_unneeded = (points.start - 63..prefixes.end).contains(&at);
        assert!(is_unneeded || !is_complete, "byte {at} is unchecked");
        let is_filter = points.contains(&at) || prefixes.contains(&at);
        assert!(is_complete || !is_filter, "byte {at} of a filter is needed");
    }
}

#[test]
fn truncation_is_refused() {
    let built = small();
    for length in 0..built.bytes.len() {
        let cut = built.bytes[..length].to_vec();
        let error = built.open_bytes(cut.clone(), 0).unwrap_err();
        let ReadError::Corrupt { offset, source } = error else { panic!("truncated at {length}") };
        let (expected, found) = (built.summary.bytes, length as u64);
        assert_eq!(source, Corruption::Mismatch { what: "length of the table", expected, found });
        assert_eq!(offset, length as u64);
        // Also if the manifest records the truncated length.
        let source: Arc<dyn TableSource> = Arc::new(Bytes::from(cut));
        let cache = Arc::new(BlockCache::new(0));
        let found = Table::open(Arc::clone(&source), IDENTITY, length as u64, cache);
        assert!(found.is_err(), "truncated at {length}");
        drop(describe(&source).to_string());
    }
    let longer = [&built.bytes[..], &[0]].concat();
    assert!(built.open_bytes(longer, 0).is_err());
}

/// Returns the ranges of the data blocks, from the description.
fn data_blocks(built: &Built) -> Vec<std::ops::Range<usize>> {
    let source: Arc<dyn TableSource> = Arc::new(Bytes::from(built.bytes.clone()));
    let text = describe(&source).to_string();
    let ranges = text.lines().filter_map(|line| {
        let (_, handle) = line.split_once("separator")?.1.split_once("-> ")?;
        let (start, end) = handle.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).unwrap();
        Some(parse(start)..parse(end))
    });
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

#[test]
fn a_misplaced_block_is_refused() {
    let options = TableOptions::new().block_bytes(1 << 10).compression(Compression::None);
    let entries: Vec<_> = (0..100).map(|n| Entry::put(&[n], 5, &[n; 100])).collect();
    let built = build(&entries, options.clone());
    let blocks = data_blocks(&built);
    let (first, second) = (blocks[1].clone(), blocks[2].clone());
    assert_eq!(first.len(), second.len(), "blocks of equal length can be swapped");

    let mut within = built.bytes.clone();
    within[first.clone()].copy_from_slice(&built.bytes[second.clone()]);
    within[second].copy_from_slice(&built.bytes[first.clone()]);
    assert!(!survives(&built, &entries, within), "swapped within a table");

    // Same content and offset, but another salt.
    let other = build_as(TableIdentity { salt: 1, ..IDENTITY }, &entries, &[], options);
    let mut between = built.bytes.clone();
    between[first.clone()].copy_from_slice(&other.bytes[first]);
    assert!(!survives(&built, &entries, between), "taken from another table");
}

#[test]
fn another_table_is_refused() {
    let built = small();
    let cases = [
        ("store", TableIdentity { store_id: 1, ..IDENTITY }),
        ("file", TableIdentity { file_id: 1, ..IDENTITY }),
        ("salt", TableIdentity { salt: 1, ..IDENTITY }),
    ];
    for (name, identity) in cases {
        let other = Built { identity, ..built.clone() };
        assert!(other.open_bytes(built.bytes.clone(), 0).is_err(), "{name}");
    }
}

#[test]
fn a_damaged_filter_hides_no_key() {
    let (built, entries) = (small(), small_entries());
    let handle = built.summary.filter.unwrap();
    let damaged = |at: u64| {
        let mut bytes = built.bytes.clone();
        bytes[(handle.offset + at) as usize] ^= 0x40;
        (built.filter_in(&bytes), built.open_bytes(bytes, 1 << 20).unwrap())
    };
    for at in [0, handle.bytes / 2, handle.bytes - 64, handle.bytes - 32, handle.bytes - 1] {
        let (filter, table) = damaged(at);
        assert!(matches!(filter, FilterState::Unusable(_)), "byte {at} of the filter");
        assert_eq!(filter.memory_bytes(), 0);
        assert!(filter.may_contain_hash(7));
        assert!(read_all(table, &filter, &entries), "byte {at} of the filter");
    }
}

#[test]
fn a_misplaced_or_foreign_filter_is_unusable() {
    let built = small();
    let handle = built.summary.filter.unwrap();
    let open = |handle, identity| {
        let built = Built { identity, ..built.clone() };
        let mut built = Built { ..built };
        built.summary.filter = handle;
        built.filter()
    };
    let moved = |offset, bytes| Some(sievedb_sstable::FilterHandle { offset, bytes, ..handle });
    type IsExpected = fn(&FilterState) -> bool;
    let cases: [(&str, FilterState, IsExpected); 6] = [
        ("intact", open(Some(handle), IDENTITY), |it| matches!(it, FilterState::Resident(_))),
        ("none", open(None, IDENTITY), |it| matches!(it, FilterState::None)),
        ("beyond the end", open(moved(1 << 40, 128), IDENTITY), |it| {
            matches!(it, FilterState::Unusable(FilterUnusable::Misplaced { .. }))
        }),
        ("overflow", open(moved(64, u64::MAX), IDENTITY), |it| {
            matches!(it, FilterState::Unusable(FilterUnusable::Misplaced { .. }))
        }),
        ("elsewhere", open(moved(64, 128), IDENTITY), |it| {
            matches!(it, FilterState::Unusable(FilterUnusable::Replaced { .. }))
        }),
        ("another seed", open(Some(handle), TableIdentity { hash_seed: 1, ..IDENTITY }), |it| {
            matches!(it, FilterState::Unusable(FilterUnusable::Refused(_)))
        }),
    ];
    for (name, filter, is_expected) in cases {
        assert!(is_expected(&filter), "{name}: {filter:?}");
    }
}

proptest! {
    #![proptest_config(proptest_config(256))]

    #[test]
    fn random_bytes_are_refused(bytes in vec(any::<u8>(), 0..2000)) {
        let mut built = small();
        built.summary.bytes = bytes.len() as u64;
        prop_assert!(!survives(&built, &[], bytes));
    }

    #[test]
    fn scattered_damage_is_detected_or_harmless(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (built, entries) = (small(), small_entries());
        let mut bytes = built.bytes.clone();
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        survives(&built, &entries, bytes);
    }
}
