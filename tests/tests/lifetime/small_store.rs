//! A store without threads on an in-memory disk, and its files.

use std::{path::Path, sync::Arc};

use sievedb::{Db, KeyspaceOptions, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::MemoryFs;

pub(super) const STORE_DIR: &str = "db";

/// Opens the store on `fs`.
pub(super) fn open(fs: &Arc<MemoryFs>) -> Db {
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10);
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    let options = options.worker_threads(0).log_segment_bytes(4 << 10).log_bytes_max(1 << 20);
    options.block_cache_bytes(0).keyspace(keyspace).open(STORE_DIR).unwrap()
}

/// Returns the names of files with this suffix.
pub(super) fn names(fs: &MemoryFs, end: &str) -> Vec<String> {
    let names = fs.list(Path::new(STORE_DIR)).unwrap();
    names.into_iter().filter(|name| name.ends_with(end)).collect()
}

/// Writes `keys` with `value` and flushes them into a table.
pub(super) fn flush(db: &Db, keys: std::ops::Range<u32>, value: &str) {
    for key in keys {
        db.insert(key.to_be_bytes(), value).unwrap();
    }
    db.flush().unwrap();
}

/// Returns the result of a scan.
pub(super) fn collect(
    scan: impl Iterator<Item = sievedb::Result<(bytes::Bytes, bytes::Bytes)>>,
) -> Vec<(u32, String)> {
    let entries = scan.map(|entry| entry.unwrap());
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    entries.map(|(key, value)| (number(&key), text(&value))).collect()
}
