//! Filters of a follower are those of its writer.

use std::sync::Arc;

use sievedb::{Db, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options, PrefixExtractor};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

const KEYS: u32 = 20_000;

/// Filters that are in memory whole or not at all.
fn bloom(bits_per_key: f64) -> FilterPolicy {
    FilterPolicy::new(FilterPolicyKind::Bloom).bits_per_key(bits_per_key)
}

fn keyspace() -> KeyspaceOptions {
    KeyspaceOptions::new()
        .memtable_bytes(4 << 20)
        .table_bytes(64 << 10)
        .base_level_bytes(512 << 10)
        .filter_policy(bloom(10.0))
        .prefix_extractor(PrefixExtractor::FixedLength(3))
}

fn options(fs: &Arc<MemoryFs>) -> Options {
    small_options(fs.clone())
        .open_files_max(100)
        .block_cache_bytes(1 << 20)
        .log_segment_bytes(4 << 20)
        .log_bytes_max(64 << 20)
        .keyspace(keyspace())
}

/// Returns a writer of one sorted run, and its follower.
fn both() -> (Db, Db) {
    let disk = Arc::new(MemoryFs::new());
    let writer = options(&disk).open(STORE_DIR).unwrap();
    rewrite(&writer, 0);
    // With the options of its writer.
    let follower = Options::new().fs(disk).worker_threads(0).follow(true).open(STORE_DIR).unwrap();
    assert_whole(&follower);
    (writer, follower)
}

/// Replaces all tables of `writer`.
fn rewrite(writer: &Db, round: u32) {
    for number in 0..KEYS {
        writer.insert(key(number), round.to_be_bytes()).unwrap();
    }
    writer.compact().unwrap();
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Checks that all filters of `db` are in memory.
fn assert_whole(db: &Db) {
    let total = db.stats().total();
    assert!(total.tables > 3 && total.filter_bytes_whole > 10_000, "{total:?}");
    assert_eq!((total.filters_not_whole, total.tables_with_unusable_filters), (0, 0));
    assert_eq!(total.filter_bytes, total.filter_bytes_whole);
}

#[test]
fn filters_without_room_during_a_refresh_are_loaded_after_it() {
    let (writer, follower) = both();
    let whole = follower.stats().memory.filter_bytes;
    follower.set_filter_bytes_max(whole / 2 * 3).unwrap();
    follower.wait_for_background().unwrap();
    assert_whole(&follower);
    for round in 1..4 {
        rewrite(&writer, round);
        assert!(follower.refresh().unwrap());
        assert_whole(&follower);
    }
}

#[test]
fn a_rebuilt_filter_replaces_the_one_that_a_follower_uses() {
    let (writer, follower) = both();
    let before = follower.stats().total().filter_bytes_whole;
    let changed =
        keyspace().filter_policy(bloom(20.0)).prefix_extractor(PrefixExtractor::FixedLength(4));
    writer.default_keyspace().set_options(changed).unwrap();
    let tables = writer.stats().background.compactions;
    writer.wait_for_background().unwrap();
    assert_eq!(writer.stats().background.compactions, tables, "only filters were rebuilt");
    assert!(writer.stats().background.filters_rebuilt > 0);
    follower.refresh().unwrap();
    assert_whole(&follower);
    let (of_writer, of_follower) = (writer.stats().total(), follower.stats().total());
    assert_eq!(of_follower.filter_bytes_whole, of_writer.filter_bytes_whole);
    assert!(of_follower.filter_bytes_whole > before, "{before}");
    for number in 1..50_u32 {
        assert_eq!(follower.prefix(number.to_be_bytes()).count(), 0);
    }
    let total = follower.stats().total();
    assert_eq!(total.prefix_unusable, 0, "the filters are of the present extractor");
    assert!(total.prefix_negatives > 0);
    for number in 0..KEYS {
        assert!(follower.contains_key(key(number)).unwrap(), "{number}");
    }
}

#[test]
fn snapshots_keep_no_filters_of_removed_tables() {
    let (writer, follower) = both();
    let other = writer.keyspace_with("other", &keyspace()).unwrap();
    for number in 0..KEYS {
        other.insert(key(number), "").unwrap();
    }
    other.compact().unwrap();
    follower.refresh().unwrap();
    let filter_bytes = || follower.stats().memory.filter_bytes;
    let (before, snapshot) = (filter_bytes(), follower.snapshot());
    rewrite(&writer, 1);
    follower.refresh().unwrap();
    let after = filter_bytes();
    assert!(after <= before + before / 8, "{before}, then {after} bytes");
    let of_other = follower.open_keyspace("other").unwrap();
    let keys = of_other.iter();
    writer.drop_keyspace("other").unwrap();
    follower.refresh().unwrap();
    let after = filter_bytes();
    assert!(after <= before / 8 * 5, "{before}, then {after} bytes");
    assert_eq!(keys.count(), KEYS as usize);
    for number in 0..KEYS {
        let value = snapshot.get(key(number)).unwrap();
        assert_eq!(value.as_deref(), Some(&0_u32.to_be_bytes()[..]), "{number}");
    }
}
