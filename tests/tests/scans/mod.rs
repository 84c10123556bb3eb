//! Scans of whole stores: reads, allocations, and tombstones.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod allocations;
mod read_ahead;
mod tombstones;

use std::sync::Arc;

use sievedb::{Db, KeyspaceOptions, Options, fs::Fs};
use sievedb_tests::settings::{STORE_DIR, small_options};

/// Big-endian, so that keys sort by number.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Everything fits one memtable, with a minimal block cache.
fn options(fs: Arc<dyn Fs>) -> Options {
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 20).table_bytes(64 << 20);
    small_options(fs)
        .memory_budget(256 << 20)
        .log_segment_bytes(64 << 20)
        .log_bytes_max(256 << 20)
        .block_cache_bytes(0)
        .keyspace(keyspace)
}

fn open(fs: &Arc<impl Fs + 'static>) -> Db {
    options(Arc::clone(fs) as Arc<dyn Fs>).open(STORE_DIR).unwrap()
}
