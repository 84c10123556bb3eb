//! The range filter: no false negatives, its rate, and rejected bytes.

use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;
use sievedb_filter::range_filter::{BITS_PER_KEY_MIN, PointCollector, Points};
use sievedb_filter::{DecodeError, Expected, FilterKind, RangeFilter, TableFilter, filter_block};

use crate::random::{Random, seed};
use crate::seal::{EXPECTED, numbers_place, seal};

/// Returns ascending point sets, easy and hard.
fn point_sets(random: &mut Random, count: usize) -> Vec<(&'static str, Vec<u64>)> {
    let n = count as u64;
    let start = random.next() >> 1;
    let clusters = random.many(count / 50);
    let mut walk = random.next() >> 2;
    let mut steps = || {
        walk += 1 + (random.next() >> (40 + random.next() % 24));
        walk
    };
    let mut sets = vec![
        ("sequential", (start..start + n).collect::<Vec<_>>()),
        ("every thousandth", (0..n).map(|i| start + 1_000 * i).collect()),
        (
            "clustered",
            clusters.iter().flat_map(|&at| (0..50).map(move |i| (at >> 1) + 3 * i)).collect(),
        ),
        ("steps of all sizes", (0..n).map(|_| steps()).collect()),
        ("random", random.many(count)),
    ];
    for (_, points) in &mut sets {
        points.sort_unstable();
        points.dedup();
    }
    sets
}

/// Returns `true` if one of `points` is from `first` to `last`.
fn holds(points: &[u64], first: u64, last: u64) -> bool {
    let at = points.partition_point(|&point| point < first);
    points.get(at).is_some_and(|&point| point <= last)
}

#[test]
fn an_empty_filter_matches_nothing() {
    let filter = RangeFilter::build(Points::new(Vec::new()), 10.0, 1);
    assert_eq!((filter.key_count(), filter.expected_fpr(u64::MAX)), (0, 0.0));
    for (first, last) in [(0, u64::MAX), (0, 0), (u64::MAX, u64::MAX)] {
        assert!(!filter.may_contain_range(first, last), "{first} to {last}");
    }
    assert!(!filter.may_contain_keys(b"", Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn ranges_with_a_point_match() {
    let mut random = Random(seed());
    for count in [1, 2, 60, 3_000, 100_000] {
        for (name, points) in point_sets(&mut random, count) {
            for bits_per_key in [BITS_PER_KEY_MIN, 9.3, 16.0, 40.0] {
                let filter =
                    RangeFilter::build(Points::new(points.clone()), bits_per_key, random.next());
                assert_eq!(filter.key_count(), points.len() as u64);
                for &point in &points {
                    let random = random.next();
                    let (before, behind) = (random >> (random % 64), random.rotate_left(32));
                    let first = point.saturating_sub(before);
                    let last = point.saturating_add(behind >> (behind % 64));
                    let found = filter.may_contain_range(first, last);
                    assert!(found, "{name}, {count}, {bits_per_key} bits: {first} to {last}");
                    assert!(filter.may_contain_range(point, point), "{name}: {point}");
                }
            }
        }
    }
}

/// The rate over many seeds is within the bound: for empty ranges anywhere, and next to the points,
/// where filters that truncate keys have false positives.
#[test]
fn the_rate_is_within_its_bound() {
    let seed = seed();
    for (bits_per_key, lengths) in
        [(8.0, &[1, 4][..]), (12.0, &[1, 16, 100]), (16.0, &[1, 256, 1_000]), (20.5, &[4_096])]
    {
        for &length in lengths {
            let mut rates = vec![Vec::new(); 15];
            for round in 0..40 {
                let mut random = Random(seed ^ round << 32);
                for (set, (name, points)) in point_sets(&mut random, 4_000).into_iter().enumerate()
                {
                    let filter = RangeFilter::build(
                        Points::new(points.clone()),
                        bits_per_key,
                        random.next(),
                    );
                    let bits = filter.memory_bytes() as f64 * 8.0 / points.len() as f64;
                    assert!(bits <= bits_per_key + 0.1, "{name}: {bits} of {bits_per_key} bits");
                    for near in 0..3 {
                        let rate = rate_of(&filter, &points, length, near, &mut random);
                        rates[3 * set + near].extend(rate.map(|rate| (name, rate)));
                    }
                }
            }
            let bound = length as f64 * (2.0 - bits_per_key).exp2();
            // Sets without gaps have too few empty ranges.
            for (i, rates) in rates.iter().enumerate().filter(|(_, rates)| rates.len() > 20) {
                let n = rates.len() as f64;
                let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / n;
                let squares = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>();
                let error = (squares / (n - 1.0) / n).sqrt();
                let (set, near) = (rates[0].0, i % 3);
                let name = format!("{set}, {bits_per_key} bits, {length} points, {near}");
                eprintln!("{name}: {mean:.5} +- {error:.5}, the bound is {bound:.5}");
                assert!(mean <= 1.2 * bound + 3.0 * error, "{name}: {mean}, {bound}");
            }
        }
    }
}

/// Returns the share of empty ranges of `length` points that match: `near` 0 anywhere, 1 just after
/// a point, 2 just before one. `None` if hardly any is empty.
fn rate_of(
    filter: &RangeFilter,
    points: &[u64],
    length: u64,
    near: usize,
    random: &mut Random,
) -> Option<f64> {
    let (mut probed, mut matched) = (0, 0);
    for _ in 0..3_000 {
        let point = points[(random.next() % points.len() as u64) as usize];
        let first = match near {
            0 => random.next(),
            1 => point.saturating_add(1 + random.next() % 8),
            _ => point.saturating_sub(length + random.next() % 8),
        };
        let last = first.saturating_add(length - 1);
        if !holds(points, first, last) {
            probed += 1;
            matched += u32::from(filter.may_contain_range(first, last));
        }
    }
    (probed > 300).then_some(f64::from(matched) / f64::from(probed))
}

#[test]
fn the_expected_rate_equals_that_of_random_ranges() {
    let mut random = Random(seed());
    for (bits_per_key, length) in [(8.0, 1), (10.0, 5), (14.0, 40)] {
        let (mut rate, mut expected) = (0.0, 0.0);
        for _ in 0..10 {
            let mut points = random.many(20_000);
            points.sort_unstable();
            let filter = RangeFilter::build(Points::new(points), bits_per_key, random.next());
            expected = filter.expected_fpr(length);
            let matched = (0..40_000)
                .filter(|_| {
                    let first = random.next() >> 1;
                    filter.may_contain_range(first, first + length - 1)
                })
                .count();
            rate += matched as f64 / 400_000.0;
        }
        eprintln!("{bits_per_key} bits, {length} points: {rate:.5}, expected {expected:.5}");
        assert!((0.85..1.05).contains(&(rate / expected)), "{bits_per_key}: {rate}, {expected}");
    }
}

/// Keys with long and short common prefixes, zeros, and keys that are prefixes of others.
fn keys() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()];
    let key = (0..3_usize, prop::collection::vec(byte, 0..11))
        .prop_map(|(prefix, rest)| [&b"prefix"[..prefix], &rest].concat());
    prop::collection::btree_set(key, 0..40)
}

proptest! {
    #[test]
    fn ranges_with_a_key_match(
        keys in keys(),
        probed in keys(),
        prefix in "[a-c]{0,12}",
        seed in any::<u64>(),
    ) {
        let with_prefix = |key: &Vec<u8>| [prefix.as_bytes(), key].concat();
        let keys: BTreeSet<Vec<u8>> = keys.iter().map(with_prefix).collect();
        let mut probed: Vec<Vec<u8>> = probed.iter().map(with_prefix).collect();
        probed.extend(keys.iter().take(12).cloned());
        probed.extend(["", "a", "b", "ab", "d"].map(|key| key.as_bytes().to_vec()));
        let mut points = PointCollector::new();
        keys.iter().for_each(|key| points.push(key));
        let empty = Vec::new();
        let smallest = keys.first().unwrap_or(&empty);
        let largest = keys.last().unwrap_or(&empty);
        let built = RangeFilter::build(points.finish(smallest, largest), 30.0, seed);
        let bytes = filter_block::encode_range(&built, EXPECTED);
        let filter = filter_block::decode_range(&bytes, EXPECTED).unwrap();
        let bounds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
        for (a, b) in probed.iter().flat_map(|a| probed.iter().map(move |b| (a, b))) {
            for lower in bounds(&a[..]) {
                for upper in bounds(&b[..]) {
                    let is_in = |key: &&Vec<u8>| {
                        (match lower {
                            Bound::Included(a) => a <= &key[..],
                            Bound::Excluded(a) => a < &key[..],
                            Bound::Unbounded => true,
                        }) && match upper {
                            Bound::Included(b) => &key[..] <= b,
                            Bound::Excluded(b) => &key[..] < b,
                            Bound::Unbounded => true,
                        }
                    };
                    let found = filter.may_contain_keys(largest, lower, upper);
                    prop_assert_eq!(found, built.may_contain_keys(smallest, lower, upper));
                    if let Some(key) = keys.iter().find(is_in) {
                        prop_assert!(found, "{:?} to {:?} holds {:?}", lower, upper, key);
                    }
                    if keys.is_empty() {
                        prop_assert!(!found);
                    }
                }
            }
        }
    }
}

/// Adjacent numbers are adjacent points, whatever their common prefix.
#[test]
fn short_numbers_after_a_long_prefix_are_resolved() {
    for first in [0_u64, 0x0123_4567_0000_0000] {
        let key = |number: u64| [&b"prefix"[..], &(first + number).to_be_bytes()].concat();
        let mut points = PointCollector::new();
        (0..1_000).for_each(|number| points.push(&key(100 * number)));
        let filter = RangeFilter::build(points.finish(&key(0), &key(99_900)), 16.0, 1);
        let empty = |number: &u64| {
            let (start, end) = (key(100 * number + 1), key(100 * number + 99));
            let upper = Bound::Excluded(&*end);
            !filter.may_contain_keys(&start, Bound::Included(&*start), upper)
        };
        let found = (0..999).filter(empty).count();
        assert!(found > 950, "{found} of 999 empty ranges, {filter:?}");
    }
}

/// Without a key that has the prefix, every range matches.
#[test]
fn without_the_prefix_every_range_matches() {
    let mut points = PointCollector::new();
    ["user1", "user2"].iter().for_each(|key| points.push(key.as_bytes()));
    let filter = RangeFilter::build(points.finish(b"user1", b"user2"), 10.0, 1);
    assert_eq!(filter.prefix_bytes(), 4);
    let (lower, upper) = (Bound::Included(&b"x"[..]), Bound::Unbounded);
    assert!(!filter.may_contain_keys(b"user", lower, upper));
    assert!(filter.may_contain_keys(b"use", lower, upper));
}

#[test]
fn other_kinds_and_shapes_are_rejected() {
    let points = Points::new(Random(3).many(20).into_iter().map(|it| it >> 1).collect());
    let good = filter_block::encode_range(&RangeFilter::build(points, 10.0, 5), EXPECTED);
    let bloom =
        TableFilter::build(FilterKind::BlockedBloom, &[1, 2], 10.0).expect("the kind is built");
    let bloom = filter_block::encode(&bloom, EXPECTED);
    let numbers = numbers_place(&good);
    // hash_version, key_count, prefix_bytes, point_bytes, codes: a byte each.
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[numbers.start + at] = byte;
        seal(&mut bytes, EXPECTED);
        bytes
    };
    let mut fewer_ones = good.clone();
    // The last word holds the last buckets.
    fewer_ones[..numbers.start].fill(0);
    seal(&mut fewer_ones, EXPECTED);
    let cases = [
        ("another kind", bloom),
        ("no keys, but codes", with(1, 0)),
        ("more codes than keys", with(1, 19)),
        ("points of no bytes", with(3, 0)),
        ("points of 9 bytes", with(3, 9)),
        ("keys, but no codes", with(4, 0)),
        ("fewer codes", with(4, 19)),
        ("no ones", fewer_ones),
    ];
    assert!(filter_block::decode_range(&good, EXPECTED).is_ok());
    for (name, bytes) in cases {
        assert!(filter_block::decode_range(&bytes, EXPECTED).is_err(), "{name}");
    }
    let found = TableFilter::decode(&good, EXPECTED).err();
    assert!(matches!(found, Some(DecodeError::OutOfRange { .. })), "{found:?}");
    let other = Expected { salt: 1, ..EXPECTED };
    let found = filter_block::decode_range(&good, other).err();
    assert!(matches!(found, Some(DecodeError::Checksum { .. })), "{found:?}");
}
