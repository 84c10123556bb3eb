//! Range deletes: what they cost, and whom they concern.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lookups;

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{
    Compression, Db,
    Durability::{Memory, OsBuffer},
    Error, KEY_BYTES_MAX, KeyspaceOptions, Options,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::small_options;

fn open() -> Db {
    small_options(Arc::new(MemoryFs::with_seed(1))).open("db").unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn keys(db: &Db) -> Vec<Vec<u8>> {
    let keys: Vec<_> = db.iter().keys().map(|key| key.unwrap().to_vec()).collect();
    let mut back: Vec<_> = db.iter().rev().map(|entry| entry.unwrap().0.to_vec()).collect();
    back.reverse();
    assert_eq!(keys, back);
    keys
}

#[test]
fn bounds_of_the_longest_keys_are_exact() {
    let db = open();
    let longest = |last: u8| [vec![0xff; KEY_BYTES_MAX - 1], vec![last]].concat();
    let all = [vec![], vec![0], longest(0xfe), longest(0xff)];
    let fill = || all.iter().for_each(|key| db.insert(key, "").unwrap());
    fill();
    db.remove_range(..=longest(0xfe)).unwrap();
    assert_eq!(keys(&db), [longest(0xff)]);
    fill();
    db.remove_range((Bound::Excluded(longest(0xfe)), Bound::Unbounded)).unwrap();
    assert_eq!(keys(&db), all[..3]);
    fill();
    db.remove_range((Bound::Excluded(longest(0xff)), Bound::<Vec<u8>>::Unbounded)).unwrap();
    db.remove_range(..vec![]).unwrap();
    assert_eq!(keys(&db), all);
    db.flush().unwrap();
    db.remove_range(..=longest(0xff)).unwrap();
    assert!(keys(&db).is_empty());
    db.remove_prefix("").unwrap();
    db.compact().unwrap();
    assert!(keys(&db).is_empty());
    let too_long = vec![0; KEY_BYTES_MAX + 1];
    for refused in [db.remove_range(too_long.clone()..), db.remove_range(..too_long.clone())] {
        assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    }
}

#[test]
fn a_batch_removes_what_it_wrote_before_and_nothing_after() {
    let db = open();
    let mut batch = db.batch();
    batch.insert(&db, "a", "1").unwrap();
    batch.insert(&db, "b", "1").unwrap();
    batch.remove_range(&db, "a".."c").unwrap();
    batch.insert(&db, "b", "2").unwrap();
    batch.commit(OsBuffer).unwrap();
    assert_eq!(keys(&db), [b"b"]);
    db.flush().unwrap();
    assert_eq!(keys(&db), [b"b"]);
}

#[test]
fn explain_and_conditional_writes_see_a_range_tombstone() {
    let db = open();
    db.insert("b", "1").unwrap();
    db.flush().unwrap();
    db.remove_range("a".."c").unwrap();
    let explanation = db.explain("b").unwrap();
    assert!(explanation.range_tombstone.is_some(), "{explanation}");
    assert!(!db.contains_key("b").unwrap());
    assert_eq!(db.get_many(["a", "b"]).unwrap(), [None, None]);
    assert!(db.insert_if_absent("b", "2").unwrap());
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(db.explain("b").unwrap().range_tombstone, explanation.range_tombstone);
}

#[test]
fn a_transaction_conflicts_with_a_range_that_covers_what_it_read() {
    type Step = (&'static str, fn(&Db));
    let after: [Step; 3] = [
        ("in the memtable", |_| ()),
        ("flushed", |db| db.flush().unwrap()),
        ("compacted", |db| db.compact().unwrap()),
    ];
    for (name, after) in after {
        for (covers, range) in [(true, "b".."d"), (false, "x".."z")] {
            let db = open();
            db.insert("c", "1").unwrap();
            db.insert("y", "1").unwrap();
            let mut transactions = [db.begin(), db.begin(), db.begin()];
            transactions[0].get(&db, "c").unwrap();
            transactions[1].get(&db, "bb").unwrap();
            assert_eq!(transactions[2].range(&db, "a".."e").count(), 1);
            for transaction in &mut transactions {
                transaction.insert(&db, "own", "1").unwrap();
            }
            db.remove_range(range).unwrap();
            after(&db);
            for (number, transaction) in transactions.into_iter().enumerate() {
                let is_conflict =
                    matches!(transaction.commit(OsBuffer), Err(Error::Conflict { .. }));
                assert_eq!(is_conflict, covers, "{name}: transaction {number}");
            }
        }
    }
}

#[test]
fn space_comes_back_without_a_call_of_compact() {
    let db = open();
    for number in 0..400 {
        db.insert(key(number), vec![7; 100]).unwrap();
    }
    db.compact().unwrap();
    let full = db.stats().keyspaces[0].table_bytes;
    let snapshot = db.snapshot();
    db.remove_range(key(10)..key(390)).unwrap();
    db.flush().unwrap();
    assert!(db.stats().keyspaces[0].table_bytes >= full, "the snapshot needs all");
    assert_eq!(snapshot.iter().count(), 400);
    assert_eq!(keys(&db).len(), 20);
    drop(snapshot);
    db.flush().unwrap();
    db.insert(key(0), "").unwrap();
    db.flush().unwrap();
    let left = db.stats().keyspaces[0].table_bytes;
    assert!(left < full / 4, "{left} of {full} bytes");
    assert_eq!(keys(&db).len(), 20);
}

#[test]
fn a_covered_table_is_dropped_without_being_read() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let options = Options::new().worker_threads(0).fs(disk).idle_compactions(false);
    let keyspace = KeyspaceOptions::new().table_bytes(16 << 10).compression(Compression::None);
    let db = options.keyspace(keyspace).open("db").unwrap();
    for number in 0..4000 {
        db.insert(key(number), vec![number as u8; 100]).unwrap();
    }
    db.compact().unwrap();
    assert!(db.stats().keyspaces[0].tables > 10);
    let snapshot = db.snapshot();
    db.remove_range(key(5)..).unwrap();
    let before = db.stats().table_reads.bytes;
    // No call of `compact`: the flush makes the compaction due, as one of a full memtable does.
    db.flush().unwrap();
    let tables = db.stats().keyspaces[0].tables;
    assert!(tables > 10, "the snapshot needs {tables} tables");
    drop(snapshot);
    db.insert(key(0), "").unwrap();
    db.flush().unwrap();
    let tables = db.stats().keyspaces[0].tables;
    let read = db.stats().table_reads.bytes - before;
    assert!(tables < 5 && read < 64 << 10, "{tables} tables are left, {read} bytes were read");
    assert_eq!(keys(&db).len(), 5);
    db.compact().unwrap();
    assert_eq!(keys(&db).len(), 5);
}

#[test]
fn a_scan_seeks_over_a_removed_range_of_tables() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let options = Options::new().worker_threads(0).fs(disk).background_rewrites(false);
    let keyspace = KeyspaceOptions::new().table_bytes(16 << 10);
    let db = options.block_cache_bytes(0).keyspace(keyspace).open("db").unwrap();
    for number in 0..4000 {
        db.insert(key(number), vec![number as u8; 100]).unwrap();
    }
    db.compact().unwrap();
    db.remove_range(key(5)..key(3995)).unwrap();
    let before = db.stats().table_reads.calls;
    assert_eq!(keys(&db).len(), 10);
    let read = db.stats().table_reads.calls - before;
    assert!(read < 40, "{read} reads");
}

/// Readers of counters that a writer removes by ranges: each sees a prefix of the history.
#[test]
fn readers_see_whole_range_deletes() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let keyspace = KeyspaceOptions::new().memtable_bytes(16 << 10).table_bytes(16 << 10);
    let db = Options::new().fs(disk).keyspace(keyspace).open("db").unwrap();
    let (round, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=150_u64 {
                let mut batch = db.batch();
                batch.remove_range(&db, key(0)..key(20)).unwrap();
                for place in 0..20 {
                    batch.insert(&db, key(place), number.to_be_bytes()).unwrap();
                }
                batch.commit(Memory).unwrap();
                round.store(number, SeqCst);
                db.remove_range(key(0)..key(20)).unwrap();
                if number % 40 == 0 {
                    db.flush().unwrap();
                }
            }
            done.store(true, SeqCst);
        });
        for from_back in [false, true] {
            let (db, round, done) = (&db, &round, &done);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    let least = round.load(SeqCst);
                    let range = db.range(key(0)..key(20));
                    let values: Vec<_> = match from_back {
                        true => range.rev().map(|entry| entry.unwrap().1).collect(),
                        false => range.map(|entry| entry.unwrap().1).collect(),
                    };
                    assert!(values.is_empty() || values.len() == 20, "{} keys", values.len());
                    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
                    if let Some(value) = values.first() {
                        let number = u64::from_be_bytes(value[..].try_into().unwrap());
                        assert!(number >= least, "{number} after {least}");
                    }
                    if let Some(value) = db.get(key(7)).unwrap() {
                        assert!(u64::from_be_bytes(value[..].try_into().unwrap()) >= least);
                    }
                }
            });
        }
    });
    assert!(keys(&db).is_empty());
}
