//! Failed syncs, full disks, and the end of the store.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Error};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};

use super::{executor::poll_once, held_syncs::held_syncs, insert_async, open, survives};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn faulty() -> (Arc<MemoryFs>, Arc<FaultFs>) {
    let disk = Arc::new(MemoryFs::new());
    (Arc::clone(&disk), Arc::new(FaultFs::new(disk)))
}

#[test]
fn failed_sync_fails_all_commits_in_flight() {
    for workers in [0, 2] {
        let (disk, fs) = faulty();
        let db = open(&fs, workers);
        db.insert("a", "1").unwrap();
        db.wait_durable(db.snapshot().sequence()).unwrap();
        let watermark = db.durable_sequence();
        fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::SyncData]).suffix(".log"));
        let mut commits = vec![insert_async(&db, "b", Durability::Disk).unwrap()];
        // A thread may have failed the sync by now.
        commits.extend(insert_async(&db, "c", Durability::Disk).ok());
        let errors: Vec<_> = commits.into_iter().map(|it| it.wait().unwrap_err()).collect();
        assert!(matches!(errors[0], Error::Io { op: "sync", .. }), "{errors:?}");
        fs.heal();
        assert_eq!(db.durable_sequence(), watermark);
        assert!(db.contains_key("b").unwrap(), "visible, as before");
        let refused = insert_async(&db, "d", Durability::Disk);
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
        let refused = db.wait_durable(db.snapshot().sequence());
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
        db.wait_durable(watermark).unwrap();
        drop(db);
        assert!(survives(&disk, "a") && !survives(&disk, "b"));
    }
}

#[test]
fn panic_in_a_sync_fails_all_commits_in_flight() {
    let (_, fs) = faulty();
    let db = open(&fs, 2);
    db.insert("a", "1").unwrap();
    db.wait_durable(db.snapshot().sequence()).unwrap();
    fs.inject(Fault::panic(Times::Once).calls(&[Call::SyncData]).suffix(".log"));
    let failed = insert_async(&db, "b", Durability::Disk).unwrap().wait();
    assert!(matches!(failed, Err(Error::WorkerPanicked)), "{failed:?}");
    let refused = insert_async(&db, "c", Durability::Disk);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
}

/// The write stays in memory, and becomes durable when there is room.
#[test]
fn full_disk_fails_commits_that_may_become_durable_later() {
    for workers in [0, 2] {
        let (disk, fs) = faulty();
        let db = open(&fs, workers);
        db.insert("a", "1").unwrap();
        fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".log"));
        let commit = insert_async(&db, "b", Durability::Disk).unwrap();
        let sequence = commit.sequence();
        let full = commit.wait().unwrap_err();
        assert!(full.is_no_space(), "{full:?}");
        assert!(db.wait_durable(sequence).unwrap_err().is_no_space());
        assert!(db.durable_sequence() < sequence);
        fs.heal();
        db.wait_durable(sequence).unwrap();
        assert!(db.durable_sequence() >= sequence && survives(&disk, "b"));
    }
}

#[test]
fn close_resolves_commits_in_flight() {
    for workers in [0, 2] {
        let fs = held_syncs();
        let disk = &fs.0.disk;
        let db = open(&fs, workers);
        let commit = insert_async(&db, "a", Durability::Disk).unwrap();
        db.close().unwrap();
        commit.wait().unwrap();
        assert!(survives(disk, "a"));

        let db = open(&fs, workers);
        let commit = insert_async(&db, "b", Durability::Disk).unwrap();
        drop(db);
        commit.wait().unwrap();
        assert!(survives(disk, "b"));

        let db = open(&fs, workers);
        let mut commit = insert_async(&db, "c", Durability::Disk).unwrap();
        db.shutdown(Duration::from_secs(60)).unwrap();
        assert!(poll_once(&mut commit).is_ready());
        let closed = insert_async(&db, "d", Durability::Disk);
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        assert!(matches!(db.wait_durable(u64::MAX), Err(Error::Closed)));
    }
}

#[test]
fn close_with_a_failed_sync_fails_commits_in_flight() {
    let (_, fs) = faulty();
    let db = open(&fs, 0);
    let commit = insert_async(&db, "a", Durability::Disk).unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::SyncData]).suffix(".log"));
    db.close().unwrap_err();
    let failed = commit.wait();
    assert!(matches!(failed, Err(Error::Io { op: "sync", .. })), "{failed:?}");
}

#[test]
fn failed_asynchronous_commit_keeps_the_batch() {
    let db = open(&Arc::new(MemoryFs::new()), 0);
    let users = db.keyspace("users").unwrap();
    let mut batch = db.batch();
    batch.insert(&users, "a", "1").unwrap();
    batch.insert(&db, "a", "1").unwrap();
    db.drop_keyspace("users").unwrap();
    let refused = batch.commit_async(Durability::Disk);
    assert!(matches!(refused, Err(Error::KeyspaceDropped { .. })), "{refused:?}");
    assert_eq!(batch.len(), 2);
    assert!(!db.contains_key("a").unwrap());
}

/// Inserts a key when it is dropped.
struct InsertsAtDrop(Db);

impl Drop for InsertsAtDrop {
    fn drop(&mut self) {
        self.0.default_keyspace().with_durability(Durability::Disk).insert("a", "1").unwrap();
    }
}

#[test]
fn a_durable_write_of_a_thread_that_unwinds_fails_no_other_write() {
    let fs = held_syncs();
    let db = open(&fs, 2);
    let durable = db.default_keyspace().with_durability(Durability::Disk);
    let hold = fs.0.hold();
    thread::scope(|scope| {
        let first = scope.spawn(|| durable.insert("first", "1"));
        hold.wait_for_sync();
        let unwinds = scope.spawn(|| {
            let inserts = InsertsAtDrop(db.clone());
            panic::catch_unwind(AssertUnwindSafe(move || {
                let _inserts = inserts;
                panic::resume_unwind(Box::new(()));
            }))
        });
        // It syncs next, for both.
        thread::sleep(Duration::from_millis(50));
        let joins = scope.spawn(|| durable.insert("b", "1"));
        thread::sleep(Duration::from_millis(50));
        drop(hold);
        first.join().unwrap().unwrap();
        unwinds.join().unwrap().unwrap_err();
        joins.join().unwrap().unwrap();
    });
    assert!(survives(&fs.0.disk, "a") && survives(&fs.0.disk, "b"));
    db.insert("c", "1").unwrap();
}
