//! `get_many` equals `get`, and `contains_many` equals `contains_key`, for each key.

use std::sync::Arc;

use sievedb::{Compression, Db, Error, FilterPolicy, FilterPolicyKind, Keyspace, Snapshot, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, from_env, seed, small_keyspace, small_options},
};

/// Number of random trees.
const TREES: u64 = 60;

/// Returns key `number`: most have a long common prefix, some extend others.
fn key(number: usize) -> Vec<u8> {
    match number % 10 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("common/{number:06}\0").into_bytes(),
        2 => format!("c{}", number % 100).into_bytes(),
        _ => format!("common/{number:06}").into_bytes(),
    }
}

fn open(lots: &mut Rng) -> Db {
    use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
    let kind = *lots.pick(&[Auto, Auto, Bloom, Ribbon, Fuse, None]);
    let policy = FilterPolicy::new(kind).bits_per_key(*lots.pick(&[1.0, 4.0, 10.0]));
    let keyspace = small_keyspace()
        .filter_policy(policy)
        .memtable_bytes(*lots.pick(&[4 << 10, 64 << 10]))
        .table_bytes(*lots.pick(&[4 << 10, 16 << 10, 1 << 20]))
        .block_bytes(*lots.pick(&[1 << 10, 4 << 10]))
        .compression(*lots.pick(&[Compression::Lz4, Compression::None]));
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>).keyspace(keyspace);
    options.block_cache_bytes(*lots.pick(&[0, 16 << 10, 1 << 20])).open(STORE_DIR).unwrap()
}

/// Makes random writes, removals, flushes and compactions. Returns snapshots taken in between.
fn grow(db: &Db, lots: &mut Rng, keys: usize) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    for number in 0..lots.below(1500) {
        let key = key(lots.below(keys));
        match lots.below(100) {
            0 => db.flush().unwrap(),
            1 if lots.chance(1, 4) => db.compact().unwrap(),
            2 if snapshots.len() < 3 => snapshots.push(db.snapshot()),
            3..20 => db.remove(key).unwrap(),
            _ => db.insert(key, vec![number as u8; lots.below(60)]).unwrap(),
        }
    }
    snapshots
}

/// Returns some of the keys with repetitions, and some absent ones, sorted or not.
fn asked(lots: &mut Rng, keys: usize) -> Vec<Vec<u8>> {
    let count = *lots.pick(&[0, 1, 2, 7, 40, 300, 511, 512, 513, 1500]);
    let span = *lots.pick(&[1, keys, 2 * keys]);
    let first = lots.below(keys);
    let mut asked: Vec<_> = (0..count).map(|_| key(first + lots.below(span))).collect();
    asked
        .extend([Vec::new(), vec![0; 3], vec![0xff; 40]].into_iter().filter(|_| lots.chance(1, 3)));
    match lots.below(4) {
        0 => asked.sort_unstable(),
        1 => asked.sort_unstable_by(|a, b| b.cmp(a)),
        _ => {}
    }
    asked
}

/// Compares the calls for many keys with those for one.
macro_rules! check {
    ($reader:expr, $asked:expr) => {{
        let single: Vec<_> = $asked.iter().map(|key| $reader.get(key).unwrap()).collect();
        assert_eq!($reader.get_many($asked).unwrap(), single);
        let single: Vec<_> = single.iter().map(Option::is_some).collect();
        assert_eq!($reader.contains_many($asked).unwrap(), single);
        let alone: Vec<_> = $asked.iter().map(|key| $reader.contains_key(key).unwrap()).collect();
        assert_eq!(alone, single);
        // Hides the length of the iterator.
        let unsized_keys = $asked.iter().filter(|_| true);
        assert_eq!($reader.contains_many(unsized_keys).unwrap(), single);
    }};
}

fn check_tree(seed: u64) {
    let mut lots = Rng::new(seed);
    let db = open(&mut lots);
    let keys = *lots.pick(&[30, 300, 3000]);
    let snapshots = grow(&db, &mut lots, keys);
    for _ in 0..4 {
        let asked = asked(&mut lots, keys);
        check!(db, &asked);
        for snapshot in &snapshots {
            check!(snapshot, &asked);
        }
    }
}

#[test]
fn get_many_equals_single_gets() {
    let first = seed("many keys", 1);
    let trees = if from_env("SIEVE_LONG", 0) == 1 { 50 * TREES } else { TREES };
    for number in 0..trees {
        check_tree(first + number);
    }
}

/// Creates a table of 1,000 even numbers, with an empty cache.
fn flushed() -> Db {
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>).block_cache_bytes(0);
    let options = options.log_segment_bytes(1 << 20).log_bytes_max(8 << 20);
    let keyspace = small_keyspace().memtable_bytes(1 << 20).table_bytes(1 << 20);
    let db = options.keyspace(keyspace).open(STORE_DIR).unwrap();
    for number in (0..2000_u32).step_by(2) {
        db.insert(number.to_be_bytes(), [7; 20]).unwrap();
    }
    db.flush().unwrap();
    db
}

#[test]
fn get_many_requests_each_block_once() {
    let db = flushed();
    let requests = || db.stats().levels[0].data_block_requests;
    let keys = || (0..2000_u32).step_by(2).map(u32::to_be_bytes);
    let before = requests();
    assert!(db.contains_many(keys()).unwrap().iter().all(|has| *has));
    let in_order = requests() - before;
    assert!(in_order < 150, "{in_order} requests for 1,000 keys");
    // Unsorted keys of a chunk still share block requests.
    let before = requests();
    let mixed = (0..1000_u32).map(|n| (n * 499 % 1000 * 2).to_be_bytes());
    assert!(db.contains_many(mixed).unwrap().iter().all(|has| *has));
    let without = requests() - before;
    assert!(without < 300, "{without} requests for 1,000 keys without an order");
}

#[test]
fn get_many_counts_like_single_gets() {
    let db = flushed();
    let counts = || {
        let stats = db.stats();
        let level = stats.levels[0];
        (stats.lookups.lookups, level.candidates, level.true_positives)
    };
    // Odd numbers are absent; the last ten are above the table's bounds.
    let keys: Vec<_> = (1..2020_u32).map(u32::to_be_bytes).collect();
    let before = counts();
    db.contains_many(&keys).unwrap();
    let many = counts();
    for key in &keys {
        db.contains_key(key).unwrap();
    }
    let single = counts();
    assert_eq!(many.0 - before.0, single.0 - many.0, "lookups");
    assert_eq!(many.1 - before.1, single.1 - many.1, "candidates");
    assert_eq!(many.2 - before.2, single.2 - many.2, "true positives");
    assert_eq!(many.2 - before.2, 999);
}

#[test]
fn dropped_keyspace_returns_an_error() {
    let db = flushed();
    let other: Keyspace = db.keyspace("other").unwrap();
    db.drop_keyspace("other").unwrap();
    let dropped = other.contains_many(["key"]);
    assert!(matches!(dropped, Err(Error::KeyspaceDropped { .. })), "{dropped:?}");
    assert!(matches!(other.get_many(["key"]), Err(Error::KeyspaceDropped { .. })));
}
