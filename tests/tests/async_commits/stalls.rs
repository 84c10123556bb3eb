//! Writes that are refused where others are delayed, and waits for room.

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Error, KeyspaceOptions, Options, StallReason, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    hook_fs::HookFs,
    settings::{STORE_DIR, small_options},
};

use super::executor::{block_on, poll_once};

const ENOSPC: i32 = 28;

/// Holds the creation of tables while it is set.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    waiting: usize,
}

impl Gate {
    fn pass(&self, path: &Path) {
        if path.extension().is_none_or(|extension| extension != "sst") {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_held {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }

    /// Waits until a flush is held.
    fn wait_for_flush(&self) {
        let mut state = self.state.lock().unwrap();
        while state.waiting == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn set(&self, is_held: bool) {
        self.state.lock().unwrap().is_held = is_held;
        self.changed.notify_all();
    }
}

/// Opens a store whose flushes are held.
fn open_held(options: impl FnOnce(Arc<dyn Fs>) -> Options) -> (Db, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let there = Arc::clone(&gate);
    let fs = Arc::new(HookFs::new(move |path: &Path| there.pass(path)));
    let db = options(fs).worker_threads(2).open(STORE_DIR).unwrap();
    gate.set(true);
    (db, gate)
}

/// Writes until a write would be delayed. Returns the number of writes, and the error.
fn fill(db: &Db) -> (u32, Error) {
    for n in 0_u32..1000 {
        if let Err(error) = db.try_insert(n.to_be_bytes(), [b'x'; 200]) {
            return (n, error);
        }
    }
    panic!("no write was refused");
}

#[test]
fn a_write_that_would_be_delayed_is_refused_and_writes_nothing() {
    let (db, gate) = open_held(small_options);
    let (count, refused) = fill(&db);
    assert!(
        matches!(refused, Error::WouldStall { reason: StallReason::Flushes, delay: Some(_) }),
        "{refused:?}"
    );
    assert!(!db.contains_key(count.to_be_bytes()).unwrap());
    let removed = db.try_remove(0_u32.to_be_bytes());
    assert!(matches!(removed, Err(Error::WouldStall { .. })), "{removed:?}");
    assert!(db.contains_key(0_u32.to_be_bytes()).unwrap());
    assert_eq!(db.snapshot().sequence(), u64::from(count) + first_sequence());
    assert_eq!(db.stats().writes.stalls, 0, "no write waited");
    let mut batch = db.batch();
    batch.insert(&db, "a", "1").unwrap();
    for result in [
        batch.try_commit(Durability::OsBuffer).map(drop),
        batch.try_commit_async(Durability::OsBuffer).map(drop),
    ] {
        assert!(matches!(result, Err(Error::WouldStall { .. })), "{result:?}");
    }
    assert_eq!(batch.len(), 1, "the batch keeps its writes");

    let mut room = db.room();
    assert!(poll_once(&mut room).is_pending() && poll_once(&mut batch.room()).is_pending());
    thread::scope(|scope| {
        let awaits = scope.spawn(|| block_on(room));
        let blocks = scope.spawn(|| db.room().wait());
        gate.set(false);
        awaits.join().unwrap().unwrap();
        blocks.join().unwrap().unwrap();
    });
    block_on(batch.room()).unwrap();
    batch.try_commit(Durability::Disk).unwrap();
    assert!(batch.is_empty() && db.contains_key("a").unwrap());
    db.try_remove("a").unwrap();
    assert!(!db.contains_key("a").unwrap());
}

/// Returns the sequence number of a new store.
fn first_sequence() -> u64 {
    small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).unwrap().snapshot().sequence()
}

#[test]
fn a_write_without_room_in_memtables_is_refused() {
    let (db, gate) = open_held(|fs| Options::new().fs(fs).memory_budget(8 << 20));
    let mut batch = db.batch();
    batch.insert(&db, "a", vec![7; 1_200 << 10]).unwrap();
    batch.try_commit(Durability::OsBuffer).unwrap();
    batch.insert(&db, "b", vec![7; 1_200 << 10]).unwrap();
    let refused = batch.try_commit(Durability::OsBuffer);
    assert!(
        matches!(
            refused,
            Err(Error::WouldStall { reason: StallReason::MemtableMemory, delay: None })
        ),
        "{refused:?}"
    );
    let mut room = batch.room();
    assert!(poll_once(&mut room).is_pending());
    gate.set(false);
    block_on(room).unwrap();
    batch.try_commit_async(Durability::Disk).unwrap().wait().unwrap();
    assert!(db.contains_key("b").unwrap());

    batch.insert(&db, "c", vec![7; 8 << 20]).unwrap();
    let too_large = batch.room().wait();
    assert!(matches!(too_large, Err(Error::WriteTooLarge { .. })), "{too_large:?}");
}

/// Otherwise none would ever succeed, and each blocking write would flush a memtable.
#[test]
fn empty_keyspaces_delay_no_write() {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memtable_bytes_max(512 << 10).open(STORE_DIR).unwrap();
    let keyspaces: Vec<_> = (0..2_000).map(|n| db.keyspace(&format!("{n}")).unwrap()).collect();
    for keyspace in &keyspaces[..100] {
        keyspace.try_insert("key", "value").unwrap();
    }
    assert_eq!(db.stats().background.flushes, 0);
}

/// Otherwise a caller that repeats a large write spins until a flush ends.
#[test]
fn a_wait_for_a_large_entry_lasts_until_it_has_room() {
    let (db, gate) = open_held(|fs| Options::new().fs(fs).memory_budget(8 << 20));
    let value = vec![7; 700 << 10];
    db.try_insert("a", &value).unwrap();
    db.try_insert("b", &value).unwrap();
    // Of a limit of 2 MiB, 600 KiB are left, and a write may take 3/4 of these.
    let refused = db.try_insert("c", &value);
    assert!(
        matches!(
            refused,
            Err(Error::WouldStall { reason: StallReason::MemtableMemory, delay: None })
        ),
        "{refused:?}"
    );
    gate.wait_for_flush();
    assert!(poll_once(&mut db.room()).is_ready(), "a small write has room");
    let mut room = db.room_for(1 + value.len());
    assert!(poll_once(&mut room).is_pending());
    thread::scope(|scope| {
        let blocks = scope.spawn(|| db.room_for(1 + value.len()).wait());
        gate.set(false);
        blocks.join().unwrap().unwrap();
    });
    block_on(room).unwrap();
    db.try_insert("c", &value).unwrap();
    for bytes in [8 << 20, usize::MAX] {
        let too_large = db.room_for(bytes).wait();
        assert!(matches!(too_large, Err(Error::WriteTooLarge { .. })), "{too_large:?}");
    }
}

#[test]
fn waits_for_room_end_with_the_store() {
    let (db, gate) = open_held(small_options);
    fill(&db);
    let mut room = db.room();
    assert!(poll_once(&mut room).is_pending());
    let awaits = thread::spawn(|| block_on(room));
    gate.wait_for_flush();
    let busy = db.shutdown(Duration::ZERO);
    assert!(matches!(busy, Err(Error::StillBusy { .. })), "{busy:?}");
    let closed = awaits.join().unwrap();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    let closed = db.room().wait();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    let late = db.room();
    gate.set(false);
    db.shutdown(Duration::from_secs(60)).unwrap();
    drop(db);
    assert!(matches!(block_on(late), Err(Error::Closed)));
}

#[test]
fn full_disk_ends_waits_for_room() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let db = small_options(fs.clone()).worker_threads(1).open(STORE_DIR).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Create]).suffix(".sst"));
    fill(&db);
    for full in [block_on(db.room()), db.room().wait()] {
        assert!(full.as_ref().is_err_and(Error::is_no_space), "{full:?}");
    }
    fs.heal();
    db.wait_for_background().unwrap();
    block_on(db.room()).unwrap();
    db.try_insert("a", "1").unwrap();
}

#[test]
fn without_workers_a_wait_for_room_does_the_work() {
    let db = small_options(Arc::new(MemoryFs::new()))
        .keyspace(KeyspaceOptions::new().memtable_bytes(4 << 10))
        .open(STORE_DIR)
        .unwrap();
    for n in 0_u32..200 {
        while let Err(error) = db.try_insert(n.to_be_bytes(), [b'x'; 200]) {
            assert!(matches!(error, Error::WouldStall { .. }), "{error:?}");
            assert!(poll_once(&mut db.room()).is_ready());
        }
    }
    assert_eq!(db.len().unwrap(), 200);
    db.batch().room().wait().unwrap();
}

/// A refused write places nothing, which would make the flush due.
#[test]
fn a_refused_write_makes_the_flush_due_that_it_waits_for() {
    // Of a limit of 2 MiB, two values are above and below the 3/4 from which writes are delayed.
    let cases = [(0, 800 << 10), (2, 800 << 10), (0, 700 << 10), (2, 700 << 10)];
    let (sender, done) = mpsc::channel();
    for (workers, value_bytes) in cases {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).memory_budget(8 << 20);
        let db = options.worker_threads(workers).open(STORE_DIR).unwrap();
        let sender = sender.clone();
        thread::spawn(move || {
            for n in 0_u8..8 {
                while let Err(error) = db.try_insert([n], vec![7; value_bytes]) {
                    assert!(matches!(error, Error::WouldStall { .. }), "{error:?}");
                    db.room_for(1 + value_bytes).wait().unwrap();
                }
            }
            sender.send((workers, value_bytes)).unwrap();
        });
    }
    let ended = || done.recv_timeout(Duration::from_secs(120)).ok();
    let mut ended: Vec<_> = (0..cases.len()).map_while(|_| ended()).collect();
    ended.sort_unstable();
    let mut expected = cases;
    expected.sort_unstable();
    assert_eq!(ended, expected, "the others wait for ever");
}

/// A task waits where a thread does.
#[test]
fn a_poll_makes_the_flush_due_that_it_waits_for() {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).memory_budget(8 << 20);
    let db = options.worker_threads(2).open(STORE_DIR).unwrap();
    for n in 0_u8..2 {
        db.try_insert([n], vec![7; 800 << 10]).unwrap();
    }
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(block_on(db.room())));
    done.recv_timeout(Duration::from_secs(120)).expect("a flush makes room").unwrap();
}
