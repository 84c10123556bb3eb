//! Backup sets in stores of the crate `object_store`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod faulty;
mod replicas;

use std::{path::Path, sync::Arc};

use faulty::Faulty;
use sievedb::{
    BackupSet, ChangeRetention, Db, Error, KeyspaceOptions, Options, RestoreOptions, Retention,
    object_store::{
        ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, memory::InMemory, path,
    },
    tokio::runtime::{self, Runtime},
};
use sievedb_tests::settings::report;
use tempfile::TempDir;

const LOCK: &str = "backups/of/LOCK";

fn set_in(store: &Arc<dyn ObjectStore>, runtime: &Runtime) -> BackupSet {
    BackupSet::in_object_store(Arc::clone(store), "backups/of", runtime.handle().clone())
}

fn options() -> Options {
    Options::new().retain_changes(ChangeRetention::bytes(1 << 20)).worker_threads(0)
}

fn entries(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = db.iter().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn entries_in(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = options().create_if_missing(false).open(path).unwrap();
    assert!(db.verify().unwrap().is_good());
    entries(&db)
}

/// Returns a runtime, and a store in a directory.
fn begin() -> (Runtime, TempDir, Db) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path().join("db")).unwrap();
    (runtime, dir, db)
}

/// Does everything with a set in `store`.
fn whole_life(store: &Arc<dyn ObjectStore>) {
    let (runtime, dir, db) = begin();
    let set = set_in(store, &runtime);
    assert_eq!(set.list().unwrap(), []);
    let mut wanted = Vec::new();
    for round in 0..3_u8 {
        for number in 0..50_u32 {
            db.insert(number.to_be_bytes(), [round; 200]).unwrap();
        }
        if round == 1 {
            db.flush().unwrap();
        }
        set.create(&db).unwrap();
        wanted.push(entries(&db));
    }
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    db.insert("archived", "").unwrap();
    let point = archive.update().unwrap().sequence;
    let archived = entries(&db);
    db.insert("later", "").unwrap();
    archive.update().unwrap();
    assert!(set.verify().unwrap().problems.is_empty());
    for (wanted, number) in wanted.iter().zip(1..) {
        let path = dir.path().join(format!("restored{number}"));
        set.restore(number, &path).unwrap();
        assert_eq!(entries_in(&path), *wanted, "backup {number}");
    }
    let path = dir.path().join("point");
    set.restore_with(&RestoreOptions::new().to(point), &path).unwrap();
    assert_eq!(entries_in(&path), archived);
    assert_eq!(set.prune(&Retention::new().last(2)).unwrap().removed, [1, 2]);
    assert!(set.verify().unwrap().problems.is_empty());
    let path = dir.path().join("last");
    set.restore_with(&RestoreOptions::new(), &path).unwrap();
    assert_eq!(entries_in(&path), entries(&db));
    assert!(!set.break_lock().unwrap(), "the lock was released");
}

#[test]
fn sets_live_in_memory_and_in_directories() {
    whole_life(&(Arc::new(InMemory::new()) as _));
    let dir = tempfile::tempdir().unwrap();
    whole_life(&(Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap()) as _));
}

#[test]
fn long_tables_are_uploaded_and_read_in_parts() {
    let (runtime, dir, _) = begin();
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 20).table_bytes(64 << 20);
    let large = options().memory_budget(512 << 20).keyspace(keyspace);
    let db = large.open(dir.path().join("large")).unwrap();
    let mut state = 1_u64;
    for number in 0..40_u32 {
        let value: Vec<u8> = (0..1 << 20)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        db.insert(number.to_be_bytes(), value).unwrap();
    }
    db.flush().unwrap();
    let store = Arc::new(InMemory::new()) as Arc<dyn ObjectStore>;
    let set = set_in(&store, &runtime);
    let backup = set.create(&db).unwrap();
    assert!(backup.bytes > 40 << 20, "{backup:?}");
    assert!(set.verify().unwrap().problems.is_empty());
    let path = dir.path().join("restored");
    set.restore(backup.number, &path).unwrap();
    assert_eq!(entries_in(&path), entries(&db));
}

#[test]
fn a_second_writer_is_refused_until_the_lock_is_broken() {
    let (runtime, _dir, db) = begin();
    let store = Arc::new(InMemory::new()) as Arc<dyn ObjectStore>;
    let set = set_in(&store, &runtime);
    let lock = path::Path::from(LOCK);
    runtime.block_on(store.put(&lock, b"another".to_vec().into())).unwrap();
    assert!(matches!(set.create(&db), Err(Error::Locked { .. })));
    assert!(matches!(set.prune(&Retention::new().last(1)), Err(Error::Locked { .. })));
    assert_eq!(set.list().unwrap(), []);
    assert!(set.break_lock().unwrap());
    set.create(&db).unwrap();
    assert!(runtime.block_on(store.head(&lock)).is_err(), "the lock was released");
}

#[test]
fn a_writer_whose_lock_was_broken_stores_no_record() {
    let (runtime, _dir, db) = begin();
    db.insert("key", "value").unwrap();
    let faulty = Arc::new(Faulty::new());
    faulty.take_lock(path::Path::from(LOCK));
    let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let set = set_in(&store, &runtime);
    let refused = set.create(&db);
    let Err(Error::Io { source, .. }) = &refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("broke the lock"), "{source}");
    assert_eq!(set.list().unwrap(), []);
    // The lock of the other writer stays.
    assert!(matches!(set.create(&db), Err(Error::Locked { .. })));
}

/// A request without a response may have been carried out.
#[test]
fn a_failed_call_does_not_lock_the_set() {
    let mut locked = 0;
    for (call, loses) in (0..24).flat_map(|call| [(call, false), (call, true)]) {
        let (runtime, _dir, db) = begin();
        db.insert("key", "value").unwrap();
        let faulty = Arc::new(Faulty::new());
        let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
        let set = set_in(&store, &runtime);
        match loses {
            true => faulty.lose(call, 1),
            false => faulty.fail(call, 1),
        }
        let _ = set.create(&db);
        faulty.heal();
        let lock = path::Path::from(LOCK);
        let is_locked = || runtime.block_on(store.head(&lock)).is_ok();
        locked += usize::from(is_locked());
        set.create(&db).unwrap_or_else(|error| panic!("call {call}, {loses}: {error:?}"));
        assert!(!is_locked(), "call {call}, {loses}");
    }
    assert!(locked > 1, "no call left a lock");
}

/// Fails `count` calls of a backup and an archive. Returns whether one failed, and whether the next
/// backup continued.
fn run(call: usize, count: usize) -> (bool, bool) {
    let (runtime, dir, db) = begin();
    let faulty = Arc::new(Faulty::new());
    let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
    let set = set_in(&store, &runtime);
    for number in 0..30_u32 {
        db.insert(number.to_be_bytes(), [1; 100]).unwrap();
    }
    db.flush().unwrap();
    db.insert("logged", "").unwrap();
    faulty.fail(call, count);
    let mut archive = set.archive(&db).unwrap();
    let mut wanted = None;
    for round in 0..2_u8 {
        db.insert("round", [round]).unwrap();
        if let Ok(update) = archive.update() {
            wanted = Some((update.sequence, entries(&db)));
        }
    }
    let struck = faulty.failures() > 0;
    faulty.heal();
    // A process that was killed leaves its lock.
    let set = set_in(&store, &runtime);
    let listed = set.list().unwrap();
    assert!(set.verify().unwrap().problems.is_empty(), "call {call}");
    if let Some((sequence, content)) = &wanted {
        let path = dir.path().join("archived");
        set.restore_with(&RestoreOptions::new().to(*sequence), &path).unwrap();
        assert_eq!(entries_in(&path), *content, "call {call}");
    }
    for backup in &listed {
        set.restore(backup.number, dir.path().join(format!("{}", backup.number))).unwrap();
    }
    set.break_lock().unwrap();
    archive.update().unwrap();
    let again = set.create(&db).unwrap();
    let path = dir.path().join("again");
    set.restore(again.number, &path).unwrap();
    assert_eq!(entries_in(&path), entries(&db), "call {call}");
    (struck, again.bytes_added < again.bytes)
}

#[test]
fn failed_and_interrupted_backups_are_not_listed_and_continue() {
    let trials: Vec<_> =
        (0..20).flat_map(|call| [1, usize::MAX / 2].map(|it| (call, it))).collect();
    let results: Vec<_> = trials.iter().map(|&(call, count)| run(call, count)).collect();
    let struck = results.iter().filter(|(struck, _)| *struck).count();
    let continued = results.iter().filter(|(_, continued)| *continued).count();
    report(&format!(
        "failing calls of object stores: {} trials, {struck} struck, {continued} continued",
        trials.len()
    ));
    assert!(struck > 25 && continued > 25, "{struck} struck, {continued} continued");
}
