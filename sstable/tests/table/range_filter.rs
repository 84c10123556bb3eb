//! Range filters contain every key, and are refused for other tables.

use std::ops::Bound;

use bytes::Bytes;
use sievedb_filter::{FilterArena, FilterKind, RangeFilter};
use sievedb_format::RangeTombstone;
use sievedb_sstable::{FilterState, FilterUnusable, TableOptions};

use crate::support::{Built, Entry, IDENTITY, build, build_as};

fn key(number: u32) -> Vec<u8> {
    [b"key", &number.wrapping_mul(0x9e37_79b1).to_be_bytes()[..]].concat()
}

/// Five thousand keys with some versions; a third of the keys are tombstones.
fn entries() -> Vec<Entry> {
    let mut keys: Vec<_> = (0..5_000).map(key).collect();
    keys.sort_unstable();
    let versions = |(at, key): (usize, Vec<u8>)| match at % 3 {
        0 => vec![Entry::tombstone(&key, 7)],
        1 => vec![Entry::put(&key, 9, b"new"), Entry::put(&key, 2, b"old")],
        _ => vec![Entry::put(&key, 7, b"value")],
    };
    keys.into_iter().enumerate().flat_map(versions).collect()
}

fn options() -> TableOptions {
    TableOptions::new().range_filter_bits_per_key(14.0)
}

/// Loads the range filter from `bytes`.
fn load(built: &Built, bytes: &[u8]) -> FilterState<RangeFilter> {
    let (source, summary) = (Bytes::copy_from_slice(bytes), &built.summary);
    let bounds = (&*summary.bounds.smallest, &*summary.bounds.largest);
    let heap = FilterArena::heap();
    summary.range_filter.map_or(FilterState::None, |handle| {
        FilterState::load_range(&source, &built.identity, None, handle, bounds, &heap)
    })
}

fn is_refused(filter: &FilterState<RangeFilter>) -> bool {
    matches!(filter, FilterState::Unusable(FilterUnusable::Refused(_)))
}

#[test]
fn a_range_filter_contains_exactly_the_keys() {
    let entries = entries();
    let built = build(&entries, options());
    let filter = load(&built, &built.bytes);
    let resident = filter.resident().expect("the filter was built");
    assert_eq!((resident.key_count(), resident.prefix_bytes()), (5_000, 3));
    assert!(filter.range_memory_bytes() > 8_000);
    let asks = |key: &[u8]| {
        let bound = Bound::Included(key);
        filter.may_contain_keys(&built.summary.bounds.largest, bound, bound)
    };
    assert!(entries.iter().all(|entry| asks(&entry.user_key)));
    let positives = (5_000..25_000).filter(|&number| asks(&key(number))).count();
    assert!(positives < 15, "{positives} of 20,000 at 1 in 4,096");
    let range_filter = built.open().properties().range_filter.expect("the filter was built");
    assert_eq!(range_filter.kind, FilterKind::Range as u8);
    assert_eq!(range_filter.expected_fpr, resident.expected_fpr(1));
}

#[test]
fn there_is_no_range_filter_by_default() {
    let built = build(&entries(), TableOptions::new());
    assert_eq!(built.summary.range_filter, None);
    assert!(built.open().properties().range_filter.is_none());
    let filter = load(&built, &built.bytes);
    assert!(matches!(filter, FilterState::None));
    assert!(filter.may_contain_keys(b"", Bound::Included(b"x"), Bound::Excluded(b"y")));
}

/// Range tombstones widen the bounds, which shortens the omitted prefix, but add no points.
#[test]
fn range_tombstones_are_not_points() {
    let tombstone = |start: &[u8], end: &[u8]| RangeTombstone {
        start: start.to_vec().into(),
        end: end.to_vec().into(),
        sequence: 5,
    };
    let wide = [tombstone(b"ka", b"kz")];
    let built = build_as(IDENTITY, &entries(), &wide, options());
    let filter = load(&built, &built.bytes);
    assert_eq!(filter.resident().expect("the filter was built").prefix_bytes(), 1);
    for entry in entries() {
        let bound = Bound::Included(&*entry.user_key);
        assert!(filter.may_contain_keys(b"ka", bound, bound));
    }
    let alone = build_as(IDENTITY, &[], &wide, options());
    let filter = load(&alone, &alone.bytes);
    assert_eq!(filter.resident().expect("the filter was built").key_count(), 0);
    assert!(!filter.may_contain_keys(b"ka", Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn a_damaged_or_foreign_range_filter_matches_everything() {
    let built = build(&entries(), options().filter_bits_per_key(10.0));
    let handle = built.summary.range_filter.expect("the filter was built");
    let may_match = |filter: &FilterState<RangeFilter>| {
        filter.may_contain_keys(b"key", Bound::Included(b"a"), Bound::Excluded(b"b"))
    };
    for at in [0, 9, handle.bytes / 2, handle.bytes - 20, handle.bytes - 6] {
        let mut bytes = built.bytes.clone();
        bytes[(handle.offset + at) as usize] ^= 4;
        let filter = load(&built, &bytes);
        assert!(is_refused(&filter) && may_match(&filter), "byte {at}: {filter:?}");
    }
    // The bounds share less than the prefix that the filter omits.
    let mut wider = built.clone();
    wider.summary.bounds.smallest = (*b"ke").into();
    let filter = load(&wider, &built.bytes);
    assert!(is_refused(&filter) && may_match(&filter), "{filter:?}");
    // Point filter and range filter are not interchangeable.
    let mut swapped = built.clone();
    swapped.summary.range_filter = built.summary.filter;
    swapped.summary.filter = built.summary.range_filter;
    assert!(is_refused(&load(&swapped, &built.bytes)));
    let points = swapped.filter_in(&built.bytes);
    assert!(matches!(points, FilterState::Unusable(FilterUnusable::Refused(_))), "{points:?}");
}
