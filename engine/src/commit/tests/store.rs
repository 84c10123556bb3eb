//! A whole store on an in-memory disk.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{below, explore, stepped_fs::SteppedFs};
use crate::{
    Db, Durability, Keyspace, KeyspaceOptions, Options, Result,
    fs::{Call, Fault, Loss, Times},
    sync::thread,
    tests::ENOSPC,
};

fn options(worker_threads: usize) -> Options {
    Options::new()
        .fs(Arc::new(SteppedFs::new()))
        .block_cache_bytes(0)
        .log_segment_bytes(4 << 10)
        .log_bytes_max(8 << 10)
        .worker_threads(worker_threads)
        .keyspace(KeyspaceOptions::new().memtable_bytes(4 << 10))
}

/// A store whose writes have a durability that the schedule chooses.
fn open(worker_threads: usize) -> Db {
    let durability =
        [Durability::Memory, Durability::OsBuffer, Durability::Disk][below(3) as usize];
    options(worker_threads).durability(durability).open("db").unwrap()
}

/// Of concurrent insertions of an absent key exactly one succeeds, and its value stays.
#[test]
fn one_of_many_inserts_an_absent_key() {
    explore(2000, || {
        let db = open(0);
        let insert = |value: u8| {
            let db = db.clone();
            thread::spawn(move || db.insert_if_absent("key", [value]).unwrap())
        };
        let inserted: Vec<_> = (0..3).map(insert).collect();
        let inserted: Vec<_> = inserted.into_iter().map(|thread| thread.join().unwrap()).collect();
        let winners: Vec<_> = (0..3u8).filter(|&value| inserted[usize::from(value)]).collect();
        let &[winner] = &winners[..] else { panic!("inserted by {winners:?}") };
        assert_eq!(db.get("key").unwrap(), Some(Bytes::copy_from_slice(&[winner])));
    });
}

/// The same beside a removal, which allows a second insertion.
#[test]
fn removal_makes_room_for_one_more() {
    explore(2000, || {
        let db = open(0);
        let inserts: Vec<_> = (0..3u8)
            .map(|value| {
                let db = db.clone();
                thread::spawn(move || db.insert_if_absent("key", [value]).unwrap())
            })
            .collect();
        db.remove("key").unwrap();
        let inserted: Vec<_> = inserts.into_iter().map(|thread| thread.join().unwrap()).collect();
        let count = inserted.iter().filter(|&&inserted| inserted).count();
        let value = db.get("key").unwrap();
        assert!((1..=2).contains(&count), "{count} insertions beside one removal");
        assert!(count == 1 || value.is_some(), "the second insertion is the last write");
        if let Some(value) = value {
            assert!(inserted[usize::from(value[0])], "{value:?} was refused");
        }
    });
}

/// Counters lose no addition, with writes to the same key and to others in flight.
#[test]
fn no_addition_is_lost() {
    explore(1000, || {
        let db = open(0);
        let threads = [0, 1, 2].map(|thread: u8| {
            let db = db.clone();
            thread::spawn(move || {
                db.insert([thread], "").unwrap();
                db.fetch_add("count", 1).unwrap();
                let added = db.transaction(|transaction| {
                    let before = transaction.get(&db, "sum")?.map_or(0, |sum| sum[0]);
                    let counted = transaction.prefix(&db, "c").count();
                    transaction.insert(&db, "sum", [before + counted as u8])
                });
                added.unwrap();
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(db.get("count").unwrap().as_deref(), Some(&3_i64.to_be_bytes()[..]));
        // Each transaction follows the first addition of its own thread.
        assert_eq!(db.get("sum").unwrap().as_deref(), Some(&[3][..]));
    });
}

/// Counters lose no addition if a memtable is replaced between the reads of a condition and its
/// check.
#[test]
fn no_addition_is_lost_in_a_replaced_memtable() {
    explore(6000, || {
        let db = open(0);
        db.insert("other", "").unwrap();
        let threads = [false, true].map(|flushes| {
            let db = db.clone();
            thread::spawn(move || {
                if flushes {
                    db.flush().unwrap();
                }
                db.fetch_add("count", 1).unwrap();
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(db.get("count").unwrap().as_deref(), Some(&2_i64.to_be_bytes()[..]));
    });
}

/// A condition on a value that a clear removes holds before the clear, or not at all.
#[test]
fn conditions_fail_after_a_clear() {
    explore(2000, || {
        let db = open(0);
        db.insert("key", "old").unwrap();
        let clear = {
            let db = db.clone();
            thread::spawn(move || db.default_keyspace().clear().unwrap())
        };
        // If the condition held after the clear, the new value would remain.
        let _ = db.compare_and_set("key", Some(b"old"), Some(b"new")).unwrap();
        clear.join().unwrap();
        assert_eq!(db.get("key").unwrap(), None);
    });
}

/// Of two transactions that each read a key written by the other, one fails.
#[test]
fn write_skew_is_prevented() {
    explore(1000, || {
        let db = open(0);
        let threads = [("a", "b"), ("b", "a")].map(|(own, other)| {
            let db = db.clone();
            let is_range = below(2) == 0;
            thread::spawn(move || {
                let mut transaction = db.begin();
                let is_free = match is_range {
                    true => transaction.prefix(&db, other).next().is_none(),
                    false => !transaction.contains_key(&db, other).unwrap(),
                };
                if is_free {
                    transaction.insert(&db, own, "").unwrap();
                }
                // A conflict writes nothing.
                let _ = transaction.commit(None);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(db.iter().count(), 1);
    });
}

/// Snapshots and reads beside a writer whose memtables a worker flushes and compacts. At the end
/// the store is closed, which notifies the worker.
#[test]
fn reads_are_the_same_before_and_after_compactions() {
    explore(1500, || {
        let db = open(1);
        db.insert("a", [0]).unwrap();
        db.insert("b", [0]).unwrap();
        let threads = [write_and_compact, read_newest, read_snapshots].map(|body| {
            let db = db.clone();
            thread::spawn(move || body(&db))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&[VALUES][..]));
    });
}

const VALUES: u8 = 3;

fn write_and_compact(db: &Db) {
    for value in 1..=VALUES {
        let mut batch = db.batch();
        batch.insert(db, "a", [value]).unwrap();
        batch.insert(db, "b", [value]).unwrap();
        batch.commit(Durability::Memory).unwrap();
        if below(2) == 0 {
            db.flush().unwrap();
        }
    }
    db.compact().unwrap();
}

/// Reads never return older states, and an iterator sees whole batches.
fn read_newest(db: &Db) {
    let mut newest = 0;
    for _ in 0..3 {
        let value = db.get("a").unwrap().expect("the key was always there")[0];
        assert!(value >= newest, "{value} after {newest}");
        newest = value;
        let both: Vec<_> = db.iter().map(|entry| entry.unwrap().1[0]).collect();
        assert!(both.len() == 2 && both[0] == both[1] && both[0] >= newest, "{both:?}");
        newest = both[0];
    }
}

/// A snapshot never changes.
fn read_snapshots(db: &Db) {
    for _ in 0..2 {
        let snapshot = db.snapshot();
        let first = snapshot.get("a").unwrap().expect("the key was always there");
        for key in ["b", "a", "b"] {
            assert_eq!(snapshot.get(key).unwrap(), Some(first.clone()), "{key} has changed");
        }
    }
}

/// Writers, created and dropped keyspaces, flushes forced by a long log, and at times a full disk.
/// No thread waits forever, and all acknowledged writes survive a power cut.
#[test]
fn durable_writes_survive_whatever_runs_beside_them() {
    explore(1000, || {
        let fs = Arc::new(SteppedFs::new());
        let options = options(1).fs(Arc::clone(&fs) as _).durability(Durability::Disk);
        let db = options.open("db").unwrap();
        if below(2) == 0 {
            let fault = Fault::new(ENOSPC, Times::Once).calls(&Call::GROWING);
            let after = usize::try_from(below(30)).unwrap();
            fs.faults
                .inject(fault.after(after).written_bytes(usize::try_from(below(500)).unwrap()));
        }
        let survivors = Arc::new(Survivors::default());
        let threads = [Survivors::write, Survivors::write_elsewhere, Survivors::create_and_drop];
        let threads = threads.map(|body| {
            let (db, survivors) = (db.clone(), Arc::clone(&survivors));
            thread::spawn(move || body(&survivors, &db))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let memory = fs.memory.crash(fs.memory.operations(), &Loss::Everything);
        drop(db);
        let fs = Arc::new(memory) as _;
        let db = self::options(0).fs(fs).open("db").unwrap();
        for (keyspace, key) in &*survivors.acknowledged.lock().unwrap() {
            assert!(db.keyspaces().unwrap().contains(keyspace), "the keyspace {keyspace} is lost");
            let value = db.keyspace(keyspace).unwrap().get([*key]).unwrap();
            assert!(value.is_some_and(|value| value == vec![*key; VALUE_BYTES]), "{key} is lost");
        }
        assert!(!survivors.is_dropped() || !db.keyspaces().unwrap().contains(&"brief".to_owned()));
    });
}

/// Two values fill a memtable and a log segment.
const VALUE_BYTES: usize = 1800;

/// Data that must survive a power cut.
#[derive(Debug, Default)]
struct Survivors {
    /// Names of keyspaces, and keys in them.
    acknowledged: Mutex<Vec<(String, u8)>>,
    dropped: Mutex<bool>,
}

impl Survivors {
    fn write(&self, db: &Db) {
        for key in 0..4 {
            self.insert(db.default_keyspace(), key);
        }
    }

    fn write_elsewhere(&self, db: &Db) {
        let Ok(other) = db.keyspace("other") else { return };
        for key in 10..13 {
            self.insert(&other, key);
        }
        // A flush reports a full disk.
        let _ = other.flush();
    }

    fn create_and_drop(&self, db: &Db) {
        let Ok(brief) = db.keyspace("brief") else { return };
        let _ = brief.insert("key", vec![1; VALUE_BYTES]);
        if matches!(db.drop_keyspace("brief"), Ok(true)) {
            *self.dropped.lock().unwrap() = true;
        }
        self.insert(db.default_keyspace(), 20);
    }

    fn insert(&self, keyspace: &Keyspace, key: u8) {
        let inserted: Result<()> = keyspace.insert([key], vec![key; VALUE_BYTES]);
        if inserted.is_ok() {
            let name = keyspace.name();
            self.acknowledged.lock().unwrap().push((name, key));
        }
    }

    fn is_dropped(&self) -> bool {
        *self.dropped.lock().unwrap()
    }
}
