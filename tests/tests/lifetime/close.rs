//! Closing a store by dropping its last handle.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use sievedb::{Db, Durability, KeyspaceOptions, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};

use super::small_store::{STORE_DIR, collect, names, open};

#[test]
fn clean_close_persists_memory_writes() {
    let fs = Arc::new(MemoryFs::new());
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    let options = options.worker_threads(0).durability(Durability::Memory);
    let db = options.open(STORE_DIR).unwrap();
    let users = db.keyspace("users").unwrap();
    let operations = fs.operations();
    for key in 0..50_u32 {
        db.insert(key.to_be_bytes(), "in memory").unwrap();
        users.insert(key.to_be_bytes(), "also").unwrap();
    }
    db.remove(7_u32.to_be_bytes()).unwrap();
    assert_eq!(fs.operations(), operations, "nothing was written");
    drop(db);
    assert_eq!(fs.operations(), operations, "a keyspace handle keeps the store open");
    drop(users);

    // The close has synced everything: a power cut right after it is harmless.
    let fs = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    let db = open(&fs);
    assert_eq!(collect(db.iter()).len(), 49);
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap(), None);
    let users = db.keyspace("users").unwrap();
    let also = |key: u32| (key, "also".to_owned());
    assert_eq!(collect(users.iter()), (0..50).map(also).collect::<Vec<_>>());
}

#[test]
fn close_leaves_no_temporary_files() {
    let fs = Arc::new(MemoryFs::new());
    for round in 0..5_u32 {
        let db = open(&fs);
        for key in 0..100_u32 {
            db.insert((key * round).to_be_bytes(), [round as u8; 50]).unwrap();
        }
        match round {
            1 => db.flush().unwrap(),
            2 => db.compact().unwrap(),
            3 => assert!(!db.drop_keyspace("none").unwrap()),
            _ => {}
        }
        drop(db);
        let all = fs.list(Path::new(STORE_DIR)).unwrap();
        assert_eq!(names(&fs, ".tmp"), [""; 0], "round {round}: {all:?}");
        let manifests = all.iter().filter(|name| name.starts_with("MANIFEST-")).count();
        assert_eq!(manifests, 1, "round {round}: {all:?}");
    }
}

#[test]
fn unused_store_reopens_and_stays_small() {
    let fs = Arc::new(MemoryFs::new());
    drop(open(&fs));
    let first = fs.list(Path::new(STORE_DIR)).unwrap().len();
    for _ in 0..20 {
        drop(open(&fs));
    }
    let last = fs.list(Path::new(STORE_DIR)).unwrap();
    assert!(last.len() <= first, "{first} files have become {last:?}");
}

#[test]
fn close_waits_for_workers() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    for round in 0..8_u32 {
        let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(64 << 10);
        let options = Options::new().keyspace(keyspace.base_level_bytes(128 << 10));
        let db = options.durability(Durability::Memory).open(dir.path()).unwrap();
        for at in 0..3000_u32 {
            let key = (at.wrapping_mul(2_654_435_761) % 5000).to_be_bytes();
            db.insert(key, round.to_be_bytes().repeat(10)).unwrap();
            model.insert(key.to_vec(), round.to_be_bytes().repeat(10));
        }
        // While flushes and compactions are in flight.
        drop(db);
    }
    let db = Db::open(dir.path()).unwrap();
    let found: BTreeMap<_, _> = db
        .iter()
        .map(|entry| entry.unwrap())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert!(found == model, "{} entries, {} expected", found.len(), model.len());
}
