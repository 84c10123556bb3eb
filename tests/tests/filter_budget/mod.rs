//! Filters under a changing budget: every key stays readable, memory is always bounded, and false
//! positives grow gradually.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod damage;
mod holes;
mod scan_filters;
mod sweep;
mod tables;
mod threads;
mod use_of_tables;

use std::sync::Arc;

use sievedb::{Db, FilterPolicy, KeyspaceOptions, Options, fs::Fs, stats::LevelStats};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

/// Keys of a store with three levels of tables of some thousand keys each.
const KEYS: u64 = 60_000;

/// Maps different numbers to different keys, in random order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn keyspace(policy: FilterPolicy) -> KeyspaceOptions {
    KeyspaceOptions::new()
        .memtable_bytes(512 << 10)
        .table_bytes(64 << 10)
        .base_level_bytes(512 << 10)
        .filter_policy(policy)
}

fn options(fs: Arc<dyn Fs>, policy: FilterPolicy) -> Options {
    // All blocks are cached: reads from files are reads of filters.
    small_options(fs).block_cache_bytes(64 << 20).open_files_max(100).keyspace(keyspace(policy))
}

/// Writes the keys in random order, with flushes and compactions in between.
fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        db.insert(key(number), [7; 16]).unwrap();
    }
    db.flush().unwrap();
}

fn grown(fs: &Arc<MemoryFs>) -> Db {
    let db = options(fs.clone(), FilterPolicy::default()).open(STORE_DIR).unwrap();
    // The last keys remain in separate runs.
    for numbers in [0..KEYS - 4_000, KEYS - 4_000..KEYS - 1_000, KEYS - 1_000..KEYS] {
        fill(&db, numbers);
    }
    // Filters loaded step by step differ from those of one plan.
    db.wait_for_background().unwrap();
    db.set_filter_bytes_max(0).unwrap();
    db.set_filter_bytes_max(u64::MAX).unwrap();
    db
}

fn sum(db: &Db, field: fn(&LevelStats) -> u64) -> u64 {
    db.stats().levels.iter().map(field).sum()
}

fn filter_bytes(db: &Db) -> u64 {
    db.stats().memory.filter_bytes
}

/// Returns false positives per absent key.
fn needless_reads(db: &Db, lookups: u64) -> f64 {
    let before = sum(db, |level| level.false_positives);
    for number in KEYS * 10..KEYS * 10 + lookups {
        assert_eq!(db.get(key(number)).unwrap(), None);
    }
    (sum(db, |level| level.false_positives) - before) as f64 / lookups as f64
}

/// Returns the expected false positives per absent key: the sum of the filter rates over the
/// levels, each level below 0 being one run.
fn expected_reads(db: &Db) -> f64 {
    let expected = |level: &LevelStats| level.filter_fpr_expected * level.runs as f64;
    db.stats().levels.iter().map(expected).sum()
}

fn assert_all_readable(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert!(db.may_contain(key(number)), "{number} is ruled out");
        assert!(db.contains_key(key(number)).unwrap(), "{number} is lost");
    }
}
