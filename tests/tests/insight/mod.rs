//! Diagnostics of a store: explained lookups, filter statistics, and the file `STATS`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod explain;
mod statistics;
mod stats_file;

use std::{ops::Range, sync::Arc};

use sievedb::{Db, FilterPolicy, KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

/// Number of keys.
const KEYS: u64 = 12_000;

/// Maps different numbers to different keys, in random order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn options(fs: Arc<dyn Fs>) -> Options {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(512 << 10)
        .table_bytes(64 << 10)
        .base_level_bytes(128 << 10)
        .filter_policy(FilterPolicy::default());
    small_options(fs)
        .log_segment_bytes(16 << 20)
        .log_bytes_max(64 << 20)
        .block_cache_bytes(64 << 20)
        .open_files_max(100)
        .keyspace(keyspace)
}

fn fill(db: &Db, numbers: Range<u64>) {
    for number in numbers {
        db.insert(key(number), number.to_be_bytes()).unwrap();
    }
}

/// Creates a store with a run of several tables on the last level, two runs on level 0, and keys in
/// the memtable.
fn grown(fs: &Arc<MemoryFs>) -> Db {
    let db = options(fs.clone()).open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS - 1_200);
    db.compact().unwrap();
    for numbers in [KEYS - 1_200..KEYS - 300, KEYS - 300..KEYS - 100] {
        fill(&db, numbers);
        db.flush().unwrap();
    }
    assert_eq!(db.stats().keyspaces[0].runs, 3);
    fill(&db, KEYS - 100..KEYS);
    db
}
