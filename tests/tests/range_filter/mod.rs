//! Range filters: reads of empty ranges are bounded, and no range loses a key.

mod model;

use std::{ops::Range, sync::Arc};

use sievedb::{Db, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options, stats::LevelStats};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::{Rng, mix},
    settings::{STORE_DIR, report, seed, small_options},
};

const KEYS: usize = 20_000;
const PREFIX: &[u8] = b"sensor-readings/";

/// Returns a number after a prefix: keys differ in the 8 bytes after it.
fn key(number: u64) -> Vec<u8> {
    [PREFIX, &number.to_be_bytes()].concat()
}

/// Creates a store with these keys in one run of several tables, without a cache: each block
/// request is a read.
fn filled(range_filter_bits: f64, numbers: &[u64]) -> Db {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(4 << 20)
        .table_bytes(128 << 10)
        .filter_policy(FilterPolicy::new(FilterPolicyKind::None))
        .range_filter_bits_per_key(range_filter_bits);
    let options = small_options(Arc::new(MemoryFs::new())).block_cache_bytes(0);
    let db = options.keyspace(keyspace).open(STORE_DIR).expect("a new store opens");
    for &number in numbers {
        db.insert(key(number), b"a value of some bytes").expect("the disk is good");
    }
    db.compact().expect("the disk is good");
    db
}

fn sum(db: &Db, field: fn(&LevelStats) -> u64) -> u64 {
    db.stats().levels.iter().map(field).sum()
}

/// Returns ranges of `length` numbers without any of the ascending `numbers`: anywhere, or next to
/// one.
fn empty_ranges(lots: &mut Rng, numbers: &[u64], length: u64, near: bool) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    while ranges.len() < 10_000 {
        let start = match near {
            true => lots.pick(numbers).saturating_add(1 + lots.number() % 50),
            false => lots.number(),
        };
        let Some(end) = start.checked_add(length) else { continue };
        let at = numbers.partition_point(|&number| number < start);
        if numbers.get(at).is_none_or(|&number| number >= end) {
            ranges.push(start..end);
        }
    }
    ranges
}

/// The rate of needless table reads is at most 1.2 times the bound, `length / 2^(bits - 2)`; block
/// requests fall by the same factor.
#[test]
fn reads_of_empty_ranges_are_bounded() {
    let mut lots = Rng::new(seed("range filter", 1));
    let mut numbers: Vec<u64> = (0..KEYS).map(|_| lots.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let blocks = |db: &Db, ranges: &[Range<u64>]| {
        let before = db.stats().table_reads.calls;
        for Range { start, end } in ranges {
            assert!(db.range(key(*start)..key(*end)).is_empty().unwrap(), "{start}..{end}");
        }
        (db.stats().table_reads.calls - before) as f64 / ranges.len() as f64
    };
    let without = filled(0.0, &numbers);
    assert!(sum(&without, |level| level.tables) > 1);
    assert_eq!(without.stats().memory.filter_bytes, 0);
    for (bits, length) in [(8.0, 1), (12.0, 1), (12.0, 16), (16.0, 256)] {
        let with = filled(bits, &numbers);
        let memory = with.stats().memory.filter_bytes as f64 * 8.0 / numbers.len() as f64;
        assert!((0.98..1.01).contains(&(memory / bits)), "{memory} of {bits} bits a key");
        for near in [false, true] {
            let ranges = empty_ranges(&mut lots, &numbers, length, near);
            let counts = |db: &Db| {
                let asked = sum(db, |level| level.range_probes);
                (asked, asked - sum(db, |level| level.range_negatives))
            };
            let before = counts(&with);
            let (plain, filtered) = (blocks(&without, &ranges), blocks(&with, &ranges));
            let after = counts(&with);
            let (asked, maybe) = (after.0 - before.0, after.1 - before.1);
            let (rate, bound) = (maybe as f64 / asked as f64, length as f64 * (2.0 - bits).exp2());
            report(&format!(
                "{bits} bits, empty ranges of {length}, near keys: {near}: {filtered:.5} blocks instead \
                 of {plain:.3}, a rate of {rate:.5}, bound {bound:.5}"
            ));
            assert!(asked as usize > ranges.len() / 2, "{asked} of {} probed", ranges.len());
            let chance = 5.0 * (bound / asked as f64).sqrt();
            assert!(rate <= 1.2 * bound + chance, "{bits} bits, {length}: {rate} of {bound}");
            assert!(filtered <= 1.3 * plain * bound + 2.0 * chance, "{filtered} blocks");
        }
    }
}

/// The limitation: keys with equal 8 bytes after the prefix are one point.
#[test]
fn ranges_within_one_filter_point_are_read() {
    let keyspace = KeyspaceOptions::new().range_filter_bits_per_key(16.0);
    let db = small_options(Arc::new(MemoryFs::new())).keyspace(keyspace).open(STORE_DIR).unwrap();
    let mut numbers: Vec<u64> = (0..100).map(mix).collect();
    numbers.sort_unstable();
    let longer = |number: u64, suffix: u8| [&key(number)[..], &[suffix]].concat();
    for &number in &numbers {
        for suffix in [b'a', b'm'] {
            db.insert(longer(number, suffix), b"").unwrap();
        }
    }
    db.compact().unwrap();
    let is_ruled_out = |start: Vec<u8>, end: Vec<u8>| {
        let before = sum(&db, |level| level.range_negatives);
        assert!(db.range(start..end).is_empty().unwrap());
        sum(&db, |level| level.range_negatives) > before
    };
    for &number in &numbers[1..99] {
        assert!(!is_ruled_out(longer(number, b'c'), longer(number, b'd')), "no filter can tell");
    }
    let between = |number: u64| is_ruled_out(key(number + 1), key(number + 9));
    let between = numbers[1..99].iter().filter(|&&number| between(number)).count();
    assert!(between > 90, "{between} of 98");
}

/// New tables use the latest options of the keyspace; older ones are rebuilt, but not for another
/// number of bits.
#[test]
fn range_filter_option_may_change() {
    let fs = Arc::new(MemoryFs::new());
    let flush = |bits: f64, numbers: Range<u64>| {
        let keyspace = KeyspaceOptions::new()
            .filter_policy(FilterPolicy::new(FilterPolicyKind::None))
            .range_filter_bits_per_key(bits);
        let options = Options::new().fs(fs.clone()).worker_threads(0);
        let db = options.keyspace(keyspace).open(STORE_DIR).unwrap();
        numbers.for_each(|number| db.insert(key(number * 7), b"").unwrap());
        db.flush().unwrap();
        for number in 0..2_000_u64 {
            let found = db.range(key(number * 7)..=key(number * 7 + 3)).next().is_some();
            assert_eq!(found, db.contains_key(key(number * 7)).unwrap(), "{number}");
        }
        db.stats().memory.filter_bytes
    };
    let first = flush(8.0, 0..500);
    assert!((400..700).contains(&first), "{first}");
    let second = flush(16.0, 500..1_000);
    assert!((first + 800..first + 1_300).contains(&second), "{second}");
    assert_eq!(flush(0.0, 1_000..1_500), 0);
    let last = flush(16.0, 1_500..2_000);
    assert!((4 * 800..4 * 1_300).contains(&last), "{last}");
}
