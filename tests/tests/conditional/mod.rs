//! Conditional writes: no update is lost, whatever happens between read and write.

use std::{sync::Arc, thread};

use bytes::Bytes;
use sievedb::{Db, Durability, Error};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

fn open() -> Db {
    small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).expect("a new store")
}

fn count(db: &Db, key: &str) -> i64 {
    let value = db.get(key).expect("a read").expect("a counter");
    i64::from_be_bytes(value[..].try_into().expect("8 bytes"))
}

#[test]
fn eight_threads_lose_no_update_beside_flushes_and_compactions() {
    const THREADS: i64 = 8;
    const ROUNDS: i64 = 300;
    for durability in [Durability::Memory, Durability::Disk] {
        let options = small_options(Arc::new(MemoryFs::new())).worker_threads(2);
        let db = options.durability(durability).open(STORE_DIR).unwrap();
        let rounds = if durability == Durability::Disk { ROUNDS / 10 } else { ROUNDS };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..rounds {
                        db.fetch_add("shared", 1).unwrap();
                        db.insert(format!("other{round}"), [7; 200]).unwrap();
                        db.fetch_update("text", |old| {
                            Some([old.unwrap_or_default(), &b"x"[..]].concat())
                        })
                        .unwrap();
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20 {
                    db.flush().unwrap();
                    db.compact().unwrap();
                }
            });
        });
        assert_eq!(count(&db, "shared"), THREADS * rounds);
        assert_eq!(db.get("text").unwrap().unwrap().len() as i64, THREADS * rounds);
    }
}

/// A write between the read and the commit restarts the call, also if it is in a table by then,
/// with a sequence number that a compaction has dropped.
#[test]
fn write_in_between_restarts_the_call() {
    type Between = fn(&Db);
    let cases: [(&str, Between); 5] = [
        ("put", |db| db.insert("key", "1").unwrap()),
        ("flushed", |db| {
            db.insert("key", "1").unwrap();
            db.flush().unwrap();
        }),
        ("settled", |db| {
            db.insert("key", "1").unwrap();
            db.compact().unwrap();
        }),
        ("removed and dropped", |db| {
            db.remove("key").unwrap();
            db.compact().unwrap();
        }),
        ("the same value", |db| db.insert("key", "0").unwrap()),
    ];
    for (name, between) in cases {
        let db = open();
        db.insert("key", "0").unwrap();
        db.flush().unwrap();
        let mut seen: Vec<Option<Bytes>> = Vec::new();
        let change = |old: Option<&[u8]>| {
            seen.push(old.map(Bytes::copy_from_slice));
            if seen.len() == 1 {
                between(&db);
            }
            Some(format!("new {}", seen.len()))
        };
        let before = db.fetch_update("key", change).unwrap();
        assert_eq!(seen.len(), 2, "{name}: {seen:?}");
        assert_eq!(before, seen[1], "{name}");
        assert_eq!(db.get("key").unwrap().unwrap(), "new 2", "{name}");
    }
}

/// Not even flushes do: other keys rarely share the slot of a key.
#[test]
fn writes_to_other_keys_do_not_restart_the_call() {
    let db = open();
    let mut calls = 0;
    for number in 0..300 {
        let change = |_: Option<&[u8]>| {
            calls += 1;
            db.insert(format!("other{number}"), [7; 100]).unwrap();
            Some("value")
        };
        db.fetch_update("key", change).unwrap();
    }
    assert!(db.stats().background.flushes > 3);
    assert!((300..=301).contains(&calls), "{calls} calls");
}

#[test]
fn each_call_follows_its_rule() {
    let db = open();
    let current =
        |value: Option<&str>| Err(value.map(|value| Bytes::copy_from_slice(value.as_bytes())));
    let set = |expected: Option<&str>, new: Option<&str>| {
        let (expected, new) = (expected.map(str::as_bytes), new.map(str::as_bytes));
        db.compare_and_set("key", expected, new).unwrap().map_err(|current| current.value)
    };
    assert_eq!(set(Some("a"), Some("b")), current(None));
    assert_eq!(set(None, None), Ok(()));
    assert_eq!(set(None, Some("a")), Ok(()));
    assert_eq!(set(None, Some("b")), current(Some("a")));
    assert_eq!(set(Some("b"), None), current(Some("a")));
    assert_eq!(set(Some("a"), Some("b")), Ok(()));
    assert_eq!(set(Some("b"), None), Ok(()));
    assert_eq!(db.get("key").unwrap(), None);

    let entries = db.stats().writes.entries;
    assert_eq!(db.fetch_update("key", |_| None::<Bytes>).unwrap(), None);
    assert_eq!(db.update_fetch("key", |_| None::<Bytes>).unwrap(), None);
    assert_eq!(db.take("key").unwrap(), None);
    assert!(!db.remove_if("key", |_| true).unwrap(), "an absent key");
    assert_eq!(db.stats().writes.entries, entries, "nothing was written");

    let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"!"].concat());
    assert_eq!(db.fetch_update("key", longer).unwrap(), None);
    assert_eq!(db.update_fetch("key", longer).unwrap().unwrap(), "!!");
    assert_eq!(db.fetch_update("key", longer).unwrap().unwrap(), "!!");
    assert_eq!(db.update_fetch("key", |_| None::<Bytes>).unwrap(), None);

    assert!(db.insert_if_absent("key", "1234567").unwrap());
    assert!(!db.remove_if("key", |value| value == b"other").unwrap());
    match db.fetch_add("key", 1).unwrap_err() {
        Error::NotACounter { key, bytes: 7 } => assert_eq!(key, "key"),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.take("key").unwrap().unwrap(), "1234567");
    assert_eq!(db.fetch_add("key", i64::MAX).unwrap(), 0);
    assert_eq!(db.fetch_add("key", 1).unwrap(), i64::MAX);
    assert_eq!(count(&db, "key"), i64::MIN);
    assert!(db.remove_if("key", |value| value.len() == 8).unwrap());
    assert_eq!(db.get("key").unwrap(), None);
}

/// A key is taken once, whichever threads try.
#[test]
fn one_of_many_takes_a_key() {
    let db = open();
    for number in 0..500_u32 {
        db.insert(number.to_be_bytes(), "").unwrap();
    }
    let take_all = || (0..500_u32).filter(|n| db.take(n.to_be_bytes()).unwrap().is_some()).count();
    let taken: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(taken, 500);
    assert!(db.iter().is_empty().unwrap());
}

#[test]
fn conditional_writes_of_a_dropped_keyspace_are_refused() {
    let db = open();
    let brief = db.keyspace("brief").unwrap();
    let mut calls = 0;
    let change = |_: Option<&[u8]>| {
        calls += 1;
        db.drop_keyspace("brief").unwrap();
        Some("value")
    };
    let refused = brief.fetch_update("key", change).unwrap_err();
    assert!(matches!(refused, Error::KeyspaceDropped { .. }), "{refused:?}");
    assert_eq!(calls, 1);
}
