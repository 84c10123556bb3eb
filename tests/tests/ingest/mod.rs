//! Bulk loads against maps, beside readers and writers, and in all that reads the log.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod files;
mod hazards;
mod parallel;
pub(crate) mod races;
mod readers;
mod unsorted;

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Bytes, Db, Error, KeyspaceOptions, Options, Snapshot, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{report, seed, small_options},
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(disk: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(disk) as Arc<dyn Fs>)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn of(entry: sievedb::Result<(Bytes, Bytes)>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = entry.unwrap();
    (key.to_vec(), value.to_vec())
}

fn check(db: &Db, map: &Map, snapshot: &Snapshot, before: &Map) {
    assert!(db.iter().map(of).eq(map.clone()), "the scan differs");
    assert!(db.iter().rev().map(of).eq(map.clone().into_iter().rev()), "the reverse scan differs");
    assert!(snapshot.iter().map(of).eq(before.clone()), "the snapshot has changed");
    for number in 0..200 {
        let key = key(number);
        assert_eq!(db.get(&key).unwrap().as_deref(), map.get(&key).map(Vec::as_slice));
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), before.get(&key).map(Vec::as_slice));
    }
    let keys: Vec<_> = (0..200).map(key).collect();
    let found = db.get_many(&keys).unwrap();
    assert!(found.iter().zip(&keys).all(|(it, key)| it.as_deref() == map.get(key).map(|v| &**v)));
}

/// Ingests over data on all levels are the newest writes, and snapshots do not see them.
#[test]
fn random_ingests_and_writes_agree_with_a_map() {
    let seed = seed("ingests", 1);
    let mut rng = Rng::new(seed);
    let disk = Arc::new(MemoryFs::new());
    let mut db = options(&disk).open("data/db").unwrap();
    let mut map = Map::new();
    for round in 0..60_u64 {
        let snapshot = db.snapshot();
        let before = map.clone();
        let first = rng.below(150) as u64;
        match rng.below(8) {
            0..=2 => {
                let step = 1 + rng.below(3) as u64;
                let numbers = (first..200).step_by(step as usize).take(1 + rng.below(60));
                let value = |number| format!("{round}-{number}").into_bytes().repeat(20);
                let entries: Vec<_> = numbers.map(|it| (key(it), value(it))).collect();
                let ingested = db.ingest(entries.clone()).unwrap();
                assert_eq!(ingested.entries, entries.len() as u64);
                assert_eq!(db.snapshot().sequence(), ingested.sequence);
                map.extend(entries);
            }
            3..=4 => {
                for number in first..first + 20 {
                    let value = format!("{round}+{number}").into_bytes();
                    db.insert(key(number), &value).unwrap();
                    map.insert(key(number), value);
                }
            }
            5 => {
                db.remove_range(key(first)..key(first + 9)).unwrap();
                map.retain(|it, _| *it < key(first) || *it >= key(first + 9));
            }
            6 => db.flush().unwrap(),
            _ if rng.below(2) == 0 => db.compact().unwrap(),
            _ => {
                drop(snapshot);
                drop(db);
                db = options(&disk).open("data/db").unwrap();
                continue;
            }
        }
        check(&db, &map, &snapshot, &before);
    }
    assert!(db.verify().unwrap().is_good(), "{:?}", db.verify());
    let copied = db.checkpoint("data/copy").unwrap();
    drop(db);
    let copy = options(&disk).open("data/copy").unwrap();
    assert!(copy.iter().map(of).eq(map), "checkpoint at {copied:?}");
    report(&format!("ingests agree with a map, seed {seed}"));
}

/// A refused key and a dropped ingestion change nothing, and leave no file.
#[test]
fn unsorted_keys_are_refused_and_change_nothing() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    db.insert("b", "old").unwrap();
    db.flush().unwrap();
    let files =
        |disk: &MemoryFs| disk.contents().into_keys().filter(|it| it.ends_with(".sst")).count();
    let before = files(&disk);
    for keys in [["a", "c", "b"], ["a", "b", "b"]] {
        let error = db.ingest(keys.map(|key| (key, "new"))).unwrap_err();
        let Error::KeysNotAscending { key } = &error else { panic!("{error:?}") };
        assert_eq!(&**key, b"b");
    }
    let mut dropped = db.ingestion().unwrap();
    (0..2000).for_each(|number| dropped.insert(key(number), [7; 100]).unwrap());
    drop(dropped);
    assert_eq!(db.iter().map(of).collect::<Vec<_>>(), [(b"b".to_vec(), b"old".to_vec())]);
    db.flush().unwrap();
    drop(db);
    assert_eq!(files(&disk), before, "files of ingestions that were dropped");
    let db = options(&disk).open("data/db").unwrap();
    let none = db.ingest(std::iter::empty::<(&str, &str)>()).unwrap();
    assert_eq!((none.entries, none.tables, none.sequence), (0, 0, db.snapshot().sequence()));
}

/// A conditional write and a transaction that read before an ingest notice it.
#[test]
fn conditions_notice_an_ingest() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    db.insert("a", "old").unwrap();
    let keyspace = db.keyspace("default").unwrap();
    for by_range in [false, true] {
        let mut transaction = db.begin();
        if by_range {
            assert!(transaction.range(&keyspace, "a".."c").next().is_some());
        } else {
            assert!(transaction.get(&keyspace, "a").unwrap().is_some());
        }
        transaction.insert(&keyspace, "z", "mine").unwrap();
        db.ingest([("a", "new"), ("b", "new")]).unwrap();
        assert!(
            matches!(transaction.commit(None), Err(Error::Conflict { .. })),
            "range {by_range}"
        );
    }
    assert!(!db.insert_if_absent("b", "mine").unwrap());
    assert!(db.compare_and_set("a", Some(b"old"), Some(b"mine")).unwrap().is_err());
    assert!(db.compare_and_set("a", Some(b"new"), Some(b"mine")).unwrap().is_ok());
}

/// Values expire as inserted ones do.
#[test]
fn ingested_values_have_the_default_ttl() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    let hour = std::time::Duration::from_secs(3600);
    let sessions = db.keyspace_with("sessions", &KeyspaceOptions::new().default_ttl(hour)).unwrap();
    sessions.ingest([("anna", "1")]).unwrap();
    let ttl = sessions.ttl("anna").unwrap();
    assert!(matches!(ttl, Some(sievedb::TimeToLive::Remaining(left)) if left <= hour), "{ttl:?}");
    assert_eq!(sessions.get("anna").unwrap().as_deref(), Some(&b"1"[..]));
}
