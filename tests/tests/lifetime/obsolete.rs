//! Obsolete files are deleted soon after their last reader, and not before.

use std::{path::Path, sync::Arc};

use sievedb::{DEFAULT_KEYSPACE, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};

use super::small_store::{STORE_DIR, collect, flush, names, open};

fn entries(keys: std::ops::Range<u32>, value: &str) -> Vec<(u32, String)> {
    keys.map(|key| (key, value.to_owned())).collect()
}

/// Runs due work: a store without threads works when it is called.
fn settle(db: &sievedb::Db) {
    db.flush().unwrap();
}

#[test]
fn obsolete_tables_are_deleted_after_their_last_reader() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..100, "old");
    flush(&db, 50..150, "new");
    let old = names(&fs, ".sst");
    assert_eq!(old.len(), 2);

    let (mut first, second) = (db.iter(), db.range(&10_u32.to_be_bytes()[..]..));
    let (key, _) = first.next().unwrap().unwrap();
    assert_eq!(*key, [0; 4]);
    db.compact().unwrap();
    flush(&db, 0..150, "newest");
    db.compact().unwrap();
    settle(&db);
    let held: Vec<_> = names(&fs, ".sst").into_iter().filter(|name| old.contains(name)).collect();
    assert_eq!(held, old, "two iterators read them");
    assert_eq!(names(&fs, ".sst").len(), old.len() + 1, "tables that nobody reads are gone");

    let rest = [entries(1..50, "old"), entries(50..150, "new")].concat();
    assert_eq!(collect(first), rest);
    settle(&db);
    assert_eq!(names(&fs, ".sst").len(), old.len() + 1, "one iterator is left");
    let rest = [entries(10..50, "old"), entries(50..150, "new")].concat();
    assert_eq!(collect(second), rest);
    settle(&db);
    assert_eq!(names(&fs, ".sst").len(), 1, "the last reader has let go");
    assert_eq!(collect(db.iter()), entries(0..150, "newest"));
}

#[test]
fn snapshot_pins_versions_until_dropped() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..100, "old");
    let snapshot = db.snapshot();
    flush(&db, 0..100, "new");
    for key in 0..20_u32 {
        db.remove(key.to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(collect(snapshot.iter()), entries(0..100, "old"));
    assert_eq!(collect(db.iter()), entries(20..100, "new"));
    assert_eq!(db.stats().keyspaces[0].entries, 200, "what the snapshot and later readers need");
    drop(snapshot);
    flush(&db, 50..51, "x");
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].entries, 80, "no old version, no tombstone");
    assert_eq!(names(&fs, ".sst").len(), 1);
}

#[test]
fn iterator_outlives_every_handle() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..100, "old");
    let (scan, old) = (db.iter(), names(&fs, ".sst"));
    flush(&db, 0..100, "new");
    db.compact().unwrap();
    drop(db);
    assert!(old.iter().all(|name| names(&fs, ".sst").contains(name)), "the iterator reads them");
    assert_eq!(collect(scan), entries(0..100, "old"));
    // The iterator closed the store; its tables are deleted with it.
    assert_eq!(names(&fs, ".sst").len(), 1);
    assert_eq!(collect(open(&fs).iter()), entries(0..100, "new"));
}

#[test]
fn iterator_over_removed_ranges_outlives_every_handle() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..100, "old");
    db.remove_range(..5_u32.to_be_bytes()).unwrap();
    db.flush().unwrap();
    let mut scan = db.iter();
    assert_eq!(*scan.next().unwrap().unwrap().0, 5_u32.to_be_bytes());
    db.compact().unwrap();
    drop(db);
    assert!(names(&fs, ".sst").len() > 1, "the iterator reads them");
    drop(scan);
    assert_eq!(names(&fs, ".sst").len(), 1);
}

#[test]
fn iterator_outlives_its_keyspace() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    let users = db.keyspace("users").unwrap();
    for key in 0..100_u32 {
        users.insert(key.to_be_bytes(), "old").unwrap();
    }
    users.flush().unwrap();
    let (scan, old) = (users.iter(), names(&fs, ".sst"));
    assert!(db.drop_keyspace("users").unwrap());
    settle(&db);
    assert_eq!(names(&fs, ".sst"), old, "the iterator reads them");
    assert_eq!(collect(scan), entries(0..100, "old"));
    assert!(users.iter().next().unwrap().is_err(), "the handle is of no use");
    drop(users);
    settle(&db);
    assert_eq!(names(&fs, ".sst"), [""; 0], "nobody reads the keyspace");
}

#[test]
fn flushed_logs_are_deleted() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    for key in 0..200_u32 {
        db.insert(key.to_be_bytes(), "a value of some length, so that there are several logs")
            .unwrap();
    }
    let before = names(&fs, ".log");
    assert!(before.len() > 3, "{before:?}");
    db.flush().unwrap();
    let after = names(&fs, ".log");
    assert_eq!(after.len(), 1, "{after:?}");
    assert_eq!(db.stats().log_segments, 1);
    let bytes = |fs: &MemoryFs| fs.read(Path::new(STORE_DIR).join(&after[0])).unwrap().len();
    assert!(bytes(&fs) < 200, "what tables hold is not kept, nor read at the next start");

    // A few bytes do not justify a new file.
    db.insert(0_u32.to_be_bytes(), "").unwrap();
    db.flush().unwrap();
    assert_eq!(names(&fs, ".log"), after);

    // Unflushed entries of another keyspace remain in the log.
    let other = db.keyspace("other").unwrap();
    other.insert("pins", "x".repeat(1000)).unwrap();
    db.insert(1_u32.to_be_bytes(), "y".repeat(1000)).unwrap();
    db.keyspace(DEFAULT_KEYSPACE).unwrap().flush().unwrap();
    assert_eq!(names(&fs, ".log"), after);
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    assert!(open(&crashed).keyspace("other").unwrap().contains_key("pins").unwrap());
    other.flush().unwrap();
    assert_eq!(names(&fs, ".log").len(), 1);
    assert_ne!(names(&fs, ".log"), after);
}

#[test]
fn orphans_are_removed_at_open() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..100, "kept");
    drop(db);
    let kept = names(&fs, ".sst");
    let orphans = ["000900.sst", "000901.sst", "MANIFEST-000903", "CURRENT.tmp"];
    for name in orphans {
        fs.replace(Path::new(STORE_DIR).join(name), "half a file").unwrap();
    }
    let db = open(&fs);
    let left = fs.list(Path::new(STORE_DIR)).unwrap();
    let found: Vec<_> = orphans.iter().filter(|name| left.iter().any(|n| n == *name)).collect();
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(names(&fs, ".sst"), kept);
    // Ids of orphans are not reused.
    flush(&db, 0..100, "new");
    let new = names(&fs, ".sst").into_iter().find(|name| !kept.contains(name)).unwrap();
    assert!(*new > *"000903.sst", "{new}");
    assert_eq!(collect(db.iter()), entries(0..100, "new"));
}

#[test]
fn table_of_a_damaged_manifest_is_not_an_orphan() {
    let fs = Arc::new(MemoryFs::new());
    drop({
        let db = open(&fs);
        flush(&db, 0..100, "kept");
        db
    });
    let before = fs.contents();
    let current = fs.read("db/CURRENT").unwrap();
    fs.replace("db/CURRENT", current.slice(..current.len() - 1)).unwrap();
    assert!(sievedb::Options::new().fs(fs.clone()).worker_threads(0).open(STORE_DIR).is_err());
    let mut after = fs.contents();
    after.insert("db/CURRENT".into(), current.clone());
    let names = |files: &std::collections::BTreeMap<Arc<str>, bytes::Bytes>| {
        files.keys().map(|path| path.trim_start_matches('/').to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&before), names(&after), "a store that cannot be opened is left as it is");
}
