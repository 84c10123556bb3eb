//! Compactions at the request of the caller, and their pauses.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod pause;
mod range;
mod several_ranges;
mod several_threads;

use std::sync::Arc;

use sievedb::{Db, KeyspaceOptions, Options, Stats};
use sievedb_doubles::MemoryFs;

/// Returns options for a small store without threads.
fn small_options() -> Options {
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(4 << 10);
    let fs = Arc::new(MemoryFs::new());
    Options::new().fs(fs).worker_threads(0).block_cache_bytes(0).keyspace(keyspace)
}

fn open() -> Db {
    small_options().open("db").unwrap()
}

/// Writes these keys, each with a value of 100 bytes, and flushes them.
fn flush(db: &Db, keys: std::ops::Range<u32>) {
    for key in keys {
        let value = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        db.insert(key.to_be_bytes(), value.repeat(13)).unwrap();
    }
    db.flush().unwrap();
}

/// Returns the number of tables in level 0, and below.
fn tables(stats: &Stats) -> (u64, u64) {
    let below = stats.levels.iter().skip(1).map(|level| level.tables).sum();
    (stats.levels.first().map_or(0, |level| level.tables), below)
}
