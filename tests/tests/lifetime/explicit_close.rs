//! Results of `Db::close`, and handles that keep a store open.

use std::{path::Path, sync::Arc};

use sievedb::{Db, Durability, Error, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};

use super::small_store::{STORE_DIR, open};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Opens a store without threads; writes remain in memory.
fn open_in_memory(fs: Arc<dyn Fs>) -> Db {
    let options = Options::new().fs(fs).clock(Arc::new(ManualClock::new()));
    options.worker_threads(0).durability(Durability::Memory).open(STORE_DIR).unwrap()
}

#[test]
fn closed_store_is_complete_and_unlocked() {
    let fs = Arc::new(MemoryFs::new());
    let db = open_in_memory(fs.clone());
    db.insert("key", "value").unwrap();
    db.close().unwrap();
    // Opens with the lock released, and after a power cut.
    open(&fs).close().unwrap();
    let fs = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    assert_eq!(open(&fs).get("key").unwrap().as_deref(), Some(&b"value"[..]));

    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let db = Db::open(dir.path()).unwrap();
        db.insert("key", "value").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn handles_of_any_kind_keep_the_store_open() {
    let fs = Arc::new(MemoryFs::new());
    type Hold = fn(&Db) -> Box<dyn std::any::Any>;
    let holds: [(&str, &str, Hold); 5] = [
        ("clone", "1 Db", |db| Box::new(db.clone())),
        ("keyspace", "1 Keyspace", |db| Box::new(db.keyspace("users").unwrap())),
        ("snapshot", "1 Snapshot", |db| Box::new(db.snapshot())),
        ("batch", "1 Batch", |db| {
            let mut batch = db.batch();
            batch.remove(db, "none").unwrap();
            Box::new(batch)
        }),
        ("iterator", "1 iterator", |db| Box::new(db.iter())),
    ];
    for (name, named, hold) in holds {
        let db = open_in_memory(fs.clone());
        db.insert("by", name).unwrap();
        let held = hold(&db);
        match db.close().map_err(Error::from) {
            Err(Error::StillOpen { path, handles }) => {
                assert!(path.ends_with(STORE_DIR), "{name}: {path:?}");
                assert_eq!(handles.to_string(), named, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
        let found = open(&crashed).get("by").unwrap();
        assert_eq!(found.as_deref(), Some(name.as_bytes()), "it is durable all the same");
        let other = Options::new().fs(fs.clone()).open(STORE_DIR);
        assert!(matches!(other, Err(Error::Locked { .. })), "{name}: {other:?}");
        if let Some(db) = held.downcast_ref::<Db>() {
            db.insert("later", "value").unwrap();
        }
        drop(held);
    }
    let db = open(&fs);
    assert_eq!(db.get("later").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}

/// Programs often keep the variable.
#[test]
fn empty_batch_does_not_keep_the_store_open() {
    let fs = Arc::new(MemoryFs::new());
    let db = open_in_memory(fs.clone());
    let (empty, mut committed) = (db.batch(), db.batch());
    committed.insert(&db, "key", "value").unwrap();
    committed.commit(Durability::Memory).unwrap();
    db.close().unwrap();
    committed.commit(Durability::Disk).unwrap();
    let db = open(&fs);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    for mut batch in [empty, committed] {
        let foreign = batch.insert(&db, "key", "").unwrap_err();
        assert!(matches!(foreign, Error::ForeignKeyspace { .. }), "{foreign}");
    }
}

/// A batch that cannot be committed any more can be cleared and reused.
#[test]
fn cleared_batch_holds_no_keyspace() {
    let db = open_in_memory(Arc::new(MemoryFs::new()));
    let gone = db.keyspace("gone").unwrap();
    let mut batch = db.batch();
    batch.insert(&gone, "key", "value").unwrap();
    db.drop_keyspace("gone").unwrap();
    drop(gone);
    for _ in 0..2 {
        let refused = batch.commit(Durability::Memory).unwrap_err();
        assert!(matches!(refused, Error::KeyspaceDropped { .. }), "{refused}");
    }
    batch.clear();
    assert_eq!((batch.len(), batch.bytes()), (0, 0));
    batch.insert(&db, "key", "later").unwrap();
    batch.commit(Durability::Memory).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"later"[..]));
    batch.insert(&db, "key", "never").unwrap();
    batch.clear();
    db.close().unwrap();
}

#[test]
fn close_reports_errors() {
    let cases = [
        ("the sync of the log", EIO, Call::SyncData, ".log"),
        ("the log on a full disk", ENOSPC, Call::Append, ".log"),
        ("the edit that names the end of the log", EIO, Call::Append, "MANIFEST"),
    ];
    for (name, errno, call, suffix) in cases {
        for handles in [1, 2] {
            let memory = Arc::new(MemoryFs::new());
            let fs = Arc::new(FaultFs::new(memory.clone()));
            let db = open_in_memory(fs.clone());
            // Creates the file.
            db.insert("key", "value").unwrap();
            db.persist(Durability::OsBuffer).unwrap();
            db.insert("other", "value").unwrap();
            let others = vec![db.clone(); handles - 1];
            let names = memory.list(Path::new(STORE_DIR)).unwrap();
            let file = names.iter().find(|file| file.contains(suffix)).unwrap();
            fs.inject(Fault::new(errno, Times::ForGood).calls(&[call]).suffix(file));
            let closed = db.close().map_err(Error::from);
            match (&closed, handles) {
                // The last handle writes to the manifest.
                (Err(Error::StillOpen { .. }), 2) if suffix == "MANIFEST" => {}
                (Err(error @ Error::Io { .. }), _) => {
                    assert_eq!(error.is_no_space(), errno == ENOSPC, "{name}: {error:?}");
                }
                _ => panic!("{name}, {handles} handles: {closed:?}"),
            }
            fs.heal();
            drop(others);
            let db = open(&memory);
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{name}");
        }
    }
}

#[test]
fn close_of_a_read_only_store_reports_the_cause() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let db = open_in_memory(fs.clone());
    db.insert("key", "value").unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::Append]).suffix(".log"));
    db.persist(Durability::Disk).unwrap_err();
    match db.close().map_err(Error::from) {
        Err(Error::ReadOnly { cause }) => assert!(matches!(*cause, Error::Io { .. }), "{cause}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn read_only_store_can_be_closed() {
    let fs = Arc::new(MemoryFs::new());
    open(&fs).close().unwrap();
    let options = || Options::new().fs(fs.clone()).read_only(true);
    options().open(STORE_DIR).unwrap().close().unwrap();
    let db = options().open(STORE_DIR).unwrap();
    let other = db.clone();
    let refused = db.close().unwrap_err();
    assert!(matches!(refused.error(), Error::StillOpen { .. }));
    drop(refused);
    other.close().unwrap();
    open(&fs).close().unwrap();
}
