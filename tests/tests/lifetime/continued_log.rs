//! The log is continued after a clean close, and rewritten after a crash: an open writes no table.

use std::sync::Arc;

use sievedb::{Db, Durability, Error, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, Loss, MemoryFs, Operation, Times};

use super::small_store::STORE_DIR;

/// Error of every call after a kill (`EIO`).
const DEAD: i32 = 5;
const KEYSPACES: usize = 50;
/// Maximum number of segments of a continued log, plus the one of the current process.
const SEGMENTS_MAX: u64 = 64 + 1;

fn open(fs: &Arc<impl Fs + 'static>) -> Db {
    options(fs).open(STORE_DIR).unwrap()
}

fn options(fs: &Arc<impl Fs + 'static>) -> Options {
    let options = Options::new().fs(Arc::clone(fs) as Arc<dyn Fs>).background_rewrites(false);
    options.clock(Arc::new(ManualClock::new())).worker_threads(0)
}

fn tables(disk: &MemoryFs) -> usize {
    disk.contents().iter().filter(|(path, _)| path.ends_with(".sst")).count()
}

fn files(disk: &MemoryFs) -> Vec<(String, Vec<u8>)> {
    let files = disk.contents().into_iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec()));
    files.filter(|(path, _)| !path.ends_with("STATS")).collect()
}

fn name(keyspace: usize) -> String {
    format!("k{keyspace}")
}

#[test]
fn n12_open_after_a_clean_close_writes_nothing() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    for keyspace in 0..KEYSPACES {
        db.keyspace(&name(keyspace)).unwrap().insert("key", "first").unwrap();
    }
    db.close().unwrap();
    for round in 0..3 {
        let before = files(&disk);
        let db = open(&disk);
        assert!(files(&disk) == before, "opening {round} wrote");
        for keyspace in 0..KEYSPACES {
            let value = db.keyspace(&name(keyspace)).unwrap().get("key").unwrap();
            assert_eq!(value.as_deref(), Some(&b"first"[..]));
        }
        db.close().unwrap();
        assert!(files(&disk) == before, "closing {round} wrote");
    }
    assert_eq!(tables(&disk), 0);

    let db = open(&disk);
    db.keyspace("k1").unwrap().insert("key", "second").unwrap();
    db.drop_keyspace("k2").unwrap();
    db.close().unwrap();
    let db = open(&disk);
    assert_eq!(db.stats().log_segments, 2);
    assert_eq!(db.keyspace("k1").unwrap().get("key").unwrap().as_deref(), Some(&b"second"[..]));
    assert_eq!(db.keyspaces().unwrap().len(), KEYSPACES);
    db.flush().unwrap();
    assert_eq!(tables(&disk), KEYSPACES - 1, "k2 is dropped, the default keyspace is empty");
    db.close().unwrap();
    let logs = files(&disk).iter().filter(|(path, _)| path.ends_with(".log")).count();
    assert_eq!(logs, 0, "nothing of the log is needed");
    let db = open(&disk);
    assert_eq!(db.keyspace("k1").unwrap().get("key").unwrap().as_deref(), Some(&b"second"[..]));
    assert!(db.verify().unwrap().problems.is_empty());
}

#[test]
fn n12_opens_without_flush_bound_the_segments() {
    let disk = Arc::new(MemoryFs::new());
    let (mut rewritten, mut before) = (0, 0);
    for round in 0..200_u32 {
        let db = open(&disk);
        db.insert(round.to_be_bytes(), "value").unwrap();
        let segments = db.stats().log_segments;
        assert!(segments <= SEGMENTS_MAX, "{segments} segments in round {round}");
        rewritten += u32::from(segments < before);
        before = segments;
        db.close().unwrap();
    }
    assert!((2..=4).contains(&rewritten), "{rewritten} openings rewrote the log");
    let db = open(&disk);
    assert_eq!(db.iter().count(), 200);
}

/// Only a clean close marks the log as synced: data of a killed process is made durable again.
#[test]
fn n12_open_after_a_kill_makes_the_log_durable() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    db.insert("first", "value").unwrap();
    db.close().unwrap();
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = open(&faults);
    db.insert("second", "value").unwrap();
    db.persist(Durability::OsBuffer).unwrap();
    faults.inject(Fault::new(DEAD, Times::ForGood));
    drop(db);
    let db = open(&disk);
    assert_eq!((tables(&disk), db.stats().log_segments), (0, 1));
    let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    for db in [db, open(&crashed)] {
        assert_eq!(db.iter().count(), 2);
    }
}

/// Returns the numbers of created files and of syncs of an open of a crashed store with this number
/// of keyspaces.
fn recovery_of(keyspaces: usize) -> (usize, usize) {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    for keyspace in 0..keyspaces {
        db.keyspace(&name(keyspace)).unwrap().insert("key", "value").unwrap();
    }
    db.keyspace("dropped").unwrap().insert("key", "value").unwrap();
    db.drop_keyspace("dropped").unwrap();
    db.persist(Durability::Disk).unwrap();
    let mut disk = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    drop(db);
    let mut calls = Vec::new();
    // The second open recovers the log of the first.
    for _ in 0..2 {
        let before = disk.operations();
        let db = open(&disk);
        assert_eq!((tables(&disk), db.stats().log_segments), (0, 1));
        let journal = disk.journal().split_off(before);
        let count = |is: fn(&Operation) -> bool| journal.iter().filter(|done| is(done)).count();
        let is_sync = |done: &Operation| {
            matches!(done, Operation::SyncData { .. } | Operation::SyncDir { .. })
        };
        calls.push((count(|done| matches!(done, Operation::Create { .. })), count(is_sync)));
        let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
        drop(db);
        disk = crashed;
    }
    let db = open(&disk);
    assert_eq!(db.keyspaces().unwrap().len(), 1 + keyspaces);
    for keyspace in 0..keyspaces {
        let value = db.keyspace(&name(keyspace)).unwrap().get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
    }
    // Sequence numbers continue: later writes are newer.
    let first = db.keyspace("k0").unwrap();
    first.insert("key", "later").unwrap();
    db.flush().unwrap();
    assert_eq!(first.get("key").unwrap().as_deref(), Some(&b"later"[..]));
    assert_eq!(calls[0], calls[1]);
    calls[0]
}

#[test]
fn n12_recovery_syncs_do_not_grow_with_keyspaces() {
    let (files, syncs) = recovery_of(1);
    assert_eq!(recovery_of(300), (files, syncs));
    assert!(files <= 3 && syncs <= 8, "{files} files, {syncs} syncs");
}

/// The manifest marks the rewritten log as synced: damage in it is not a torn tail.
#[test]
fn n12_rewritten_log_has_a_synced_mark() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    db.insert("key", "value").unwrap();
    db.persist(Durability::Disk).unwrap();
    let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    let db_of_crashed = open(&crashed);
    let left = Arc::new(crashed.crash(crashed.operations(), &Loss::Everything));
    drop((db, db_of_crashed));
    // The unlink of the old segment is lost.
    let mut logs = files(&left);
    logs.retain(|(path, _)| path.ends_with(".log"));
    assert_eq!(logs.len(), 2);
    let (path, mut bytes) = logs.pop().unwrap();
    let at = bytes.windows(5).rposition(|window| window == b"value").unwrap();
    bytes[at] ^= 1;
    left.replace(&path, bytes).unwrap();
    let error = options(&left).open(STORE_DIR).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
}

/// What exceeds the memory for memtables is flushed.
#[test]
fn n12_log_above_the_memtable_limit_is_flushed() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).memory_budget(64 << 20).open(STORE_DIR).unwrap();
    for number in 0..100_u32 {
        db.insert(number.to_be_bytes(), vec![7; 64 << 10]).unwrap();
    }
    db.close().unwrap();
    assert_eq!(tables(&disk), 0);
    let db = options(&disk).memory_budget(8 << 20).open(STORE_DIR).unwrap();
    assert!(tables(&disk) > 0);
    assert_eq!(db.iter().count(), 100);
}

#[test]
fn n13_many_keyspaces_are_dropped_by_one_record_and_one_edit() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    for keyspace in 0..KEYSPACES {
        db.keyspace(&name(keyspace)).unwrap().insert("key", "value").unwrap();
    }
    db.insert("key", "value").unwrap();
    db.flush().unwrap();
    let handle = db.keyspace("k7").unwrap();
    let before = disk.operations();
    let required = db.drop_keyspaces(["k1", "default"]).unwrap_err();
    assert!(matches!(required, Error::RequiredKeyspace { .. }), "{required:?}");
    assert_eq!(db.drop_keyspaces(["missing"]).unwrap(), 0);
    assert_eq!(disk.operations(), before, "nothing is dropped");

    // One name twice, and one that does not exist.
    let names = (0..KEYSPACES - 1).map(name).chain([name(3), "missing".to_owned()]);
    assert_eq!(db.drop_keyspaces(names).unwrap(), KEYSPACES - 1);
    let is_sync = |done: &&Operation| matches!(done, Operation::SyncData { .. });
    let syncs = disk.journal()[before..].iter().filter(is_sync).count();
    // One for the record and one for the edit; the flush may have ended the segment before.
    assert!(syncs <= 4, "{syncs} syncs");
    let dropped = handle.get("key").unwrap_err();
    assert!(matches!(dropped, Error::KeyspaceDropped { .. }), "{dropped:?}");
    drop(handle);
    db.insert("later", "value").unwrap();
    db.persist(Durability::Disk).unwrap();

    let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    db.close().unwrap();
    for disk in [crashed, disk] {
        let db = open(&disk);
        assert_eq!(db.keyspaces().unwrap(), ["default", "k49"]);
        assert_eq!(
            db.iter().count(),
            2,
            "the sequence numbers of the drops are not given out again"
        );
        assert!(tables(&disk) <= 3);
    }
}
