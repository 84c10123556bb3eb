//! Effect of `bottommost_compression` on tables that a trivial move would put into the last level:
//! those of ascending keys.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use sievedb::{Compression, Db, KeyspaceOptions, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

const LAST_LEVEL: usize = 6;
const ENTRIES: u32 = 6_000;

/// Opens the store on `fs` without threads: due work runs before a write returns.
fn open(fs: &Arc<MemoryFs>, all: Compression, last: Option<Compression>) -> Db {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .base_level_bytes(64 << 10)
        .compression(all)
        .bottommost_compression(last);
    Options::new().fs(fs.clone()).worker_threads(0).keyspace(keyspace).open(STORE_DIR).unwrap()
}

/// Inserts ascending keys with compressible values.
fn load(db: &Db) {
    for key in 0..ENTRIES {
        db.insert(key.to_be_bytes(), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
}

/// Returns file bytes per entry of the last level: below 50 only if its blocks are compressed.
fn bytes_per_entry(db: &Db) -> u64 {
    let last = &db.stats().levels[LAST_LEVEL];
    assert!(last.entries > u64::from(ENTRIES) / 2, "{} entries in the last level", last.entries);
    last.bytes / last.entries
}

#[test]
fn ascending_keys_are_recompressed_for_the_last_level() {
    let db = open(&Arc::new(MemoryFs::new()), Compression::None, Some(Compression::Lz4));
    load(&db);
    assert!(bytes_per_entry(&db) < 50, "{:?}", db.stats().levels);
    // Tables of other levels are unchanged.
    for level in &db.stats().levels[..LAST_LEVEL] {
        assert!(level.bytes >= 100 * level.entries, "{level:?}");
    }
    db.compact().unwrap();
    let stats = db.stats();
    assert_eq!(stats.levels[LAST_LEVEL].entries, u64::from(ENTRIES));
    assert!(bytes_per_entry(&db) < 50, "{:?}", stats.levels);
    assert_eq!(db.iter().count(), ENTRIES as usize);
    // A second compaction rewrites nothing.
    db.compact().unwrap();
    assert_eq!(db.stats().background.compactions, stats.background.compactions);
}

/// Ascending keys are written once.
#[test]
fn ascending_keys_are_only_moved_without_bottommost_compression() {
    let cases = [
        ("unset", Compression::None, None),
        ("unset, with LZ4", Compression::Lz4, None),
        ("the same", Compression::None, Some(Compression::None)),
    ];
    for (name, all, last) in cases {
        let db = open(&Arc::new(MemoryFs::new()), all, last);
        load(&db);
        let done = db.stats().background;
        assert!(bytes_per_entry(&db) > 0, "{name}");
        assert!(done.flushes > 5 && done.trivial_moves > 0, "{name}: {done:?}");
        let level0 = db.stats().levels[0].tables;
        assert!(level0 < done.flushes / 2, "{name}: {level0} of {} were not moved", done.flushes);
        assert_eq!((done.compactions, done.compaction_bytes_written), (0, 0), "{name}: {done:?}");
    }
}

#[test]
fn compact_recompresses_tables_moved_earlier() {
    let cases = [
        ("of the last level", Compression::None, Some(Compression::Lz4)),
        ("of all levels", Compression::Lz4, None),
    ];
    for (name, all, last) in cases {
        let fs = Arc::new(MemoryFs::new());
        load(&open(&fs, Compression::None, None));
        let db = open(&fs, all, last);
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().background.compactions, 0, "{name}: nothing is due by itself");
        assert!(bytes_per_entry(&db) >= 100, "{name}");
        db.compact().unwrap();
        assert!(bytes_per_entry(&db) < 50, "{name}: {:?}", db.stats().levels);
        let compactions = db.stats().background.compactions;
        db.compact().unwrap();
        assert_eq!(db.stats().background.compactions, compactions, "{name}");
        assert_eq!(db.iter().count(), ENTRIES as usize, "{name}");
    }
}

/// A table does not record the zstd level: tables from other levels are rewritten once.
#[cfg(feature = "zstd")]
#[test]
fn zstd_levels_are_different_compressions() {
    let zstd = |level| Compression::Zstd { level, dictionary_bytes: 0 };
    let db = open(&Arc::new(MemoryFs::new()), zstd(1), Some(zstd(9)));
    load(&db);
    db.compact().unwrap();
    let (compactions, bytes) = {
        let done = db.stats().background;
        (done.compactions, done.compaction_bytes_written)
    };
    assert!(bytes >= db.stats().levels[LAST_LEVEL].bytes, "{bytes} bytes were rewritten");
    db.compact().unwrap();
    assert_eq!(db.stats().background.compactions, compactions);
}
