//! Prefix filters contain the prefix of every key, and are refused for other extractors.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_filter::{FilterArena, FilterKind, key_hash};
use sievedb_sstable::{FilterState, FilterUnusable, PrefixExtractor, TableOptions, TableSource};

use crate::support::{Built, Entry, IDENTITY, build};

const FIXED: PrefixExtractor = PrefixExtractor::FixedLength(4);

/// Two thousand prefixes of four bytes with three keys each; a third of the keys are tombstones.
/// One key is too short for a prefix.
fn entries() -> Vec<Entry> {
    let mut entries = vec![Entry::put(b"abc", 1, b"too short")];
    for number in 0..2_000_u32 {
        let prefix = number.to_be_bytes();
        for (at, suffix) in ["", "a", "b"].into_iter().enumerate() {
            let key = [b"k", &prefix[1..], suffix.as_bytes()].concat();
            entries.push(match at {
                1 => Entry::tombstone(&key, 7),
                _ => Entry::put(&key, 7, b"value"),
            });
        }
    }
    entries
}

/// Loads the prefix filter for `extractor`.
fn load(built: &Built, extractor: &PrefixExtractor) -> FilterState {
    built.prefix_filter_in(&built.bytes, extractor)
}

fn prefix_of(number: u32) -> Vec<u8> {
    [b"k", &number.to_be_bytes()[1..]].concat()
}

#[test]
fn a_prefix_filter_contains_every_prefix() {
    use FilterKind::{BinaryFuse, BlockedBloom, Ribbon};
    let entries = entries();
    for kind in [BlockedBloom, Ribbon, BinaryFuse] {
        let options = TableOptions::new().filter_kind(kind).prefix_filter(FIXED, 10.0);
        let built = build(&entries, options);
        let filter = load(&built, &FIXED);
        let filter = filter.resident().expect("the filter was built");
        assert_eq!(filter.key_count(), 2_000, "{kind:?}");
        let seed = FIXED.hash_seed(IDENTITY.hash_seed);
        let asks = |number| filter.may_contain_hash(key_hash(&prefix_of(number), seed));
        assert!((0..2_000).all(asks), "{kind:?}");
        let positives = (2_000..12_000).filter(|&number| asks(number)).count();
        assert!(positives < 300, "{kind:?}: {positives}");
        let point_seed = |number| key_hash(&prefix_of(number), IDENTITY.hash_seed);
        let confused = (0..2_000).filter(|&n| filter.may_contain_hash(point_seed(n))).count();
        assert!(confused < 100, "{kind:?}: {confused} hashes of keys are taken for prefixes");

        let table = built.open();
        let (properties, name) =
            table.properties().prefix_filter.clone().expect("the filter was built");
        assert_eq!((properties.kind, &*name), (kind as u8, "fixed:4"));
        assert_eq!(properties.expected_fpr, filter.expected_fpr());
    }
}

#[test]
fn point_and_prefix_filters_are_independent() {
    let entries = entries();
    let none = TableOptions::new().filter_bits_per_key(0.0);
    let cases = [
        ("both", TableOptions::new().prefix_filter(FIXED, 10.0), (true, true)),
        ("points only", TableOptions::new(), (true, false)),
        ("no bits for prefixes", TableOptions::new().prefix_filter(FIXED, 0.0), (true, false)),
        ("prefixes only", none.clone().prefix_filter(FIXED, 10.0), (false, true)),
        ("neither", none, (false, false)),
    ];
    for (name, options, want) in cases {
        let built = build(&entries, options);
        let summary = &built.summary;
        assert_eq!((summary.filter.is_some(), summary.prefix_filter.is_some()), want, "{name}");
        let properties = built.open().properties().clone();
        assert_eq!((properties.filter.is_some(), properties.prefix_filter.is_some()), want);
    }
}

#[test]
fn a_table_without_prefixes_is_excluded() {
    let entries = [Entry::put(b"a", 1, b""), Entry::put(b"b", 1, b"")];
    for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse] {
        let options = TableOptions::new().filter_kind(kind).prefix_filter(FIXED, 10.0);
        let filter = load(&build(&entries, options), &FIXED);
        assert!(filter.resident().is_some(), "{kind:?}");
        let seed = FIXED.hash_seed(IDENTITY.hash_seed);
        let asks = |n| filter.may_contain_hash(key_hash(&prefix_of(n), seed));
        let positives = (0..1_000).filter(|&number| asks(number)).count();
        assert!(positives < 30, "{kind:?}: {positives}");
    }
}

#[test]
fn a_prefix_filter_of_another_extractor_is_refused() {
    let built = build(&entries(), TableOptions::new().prefix_filter(FIXED, 10.0));
    let refused =
        |it: &FilterState| matches!(it, FilterState::Unusable(FilterUnusable::Refused(_)));
    for other in [PrefixExtractor::FixedLength(5), PrefixExtractor::Separator(4)] {
        let filter = load(&built, &other);
        assert!(refused(&filter), "{}: {filter:?}", other.name());
        assert!(filter.may_contain_hash(1));
    }
    // Point filter and prefix filter are not interchangeable.
    let source: Arc<dyn TableSource> = Arc::new(Bytes::from(built.bytes.clone()));
    let prefixes = built.summary.prefix_filter.unwrap();
    let points = FilterState::load(&*source, &IDENTITY, None, prefixes, &FilterArena::heap());
    assert!(refused(&points), "{points:?}");
    let mut swapped = built;
    swapped.summary.prefix_filter = swapped.summary.filter;
    assert!(refused(&load(&swapped, &FIXED)));
}
