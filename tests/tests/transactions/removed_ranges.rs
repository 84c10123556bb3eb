//! Range deletes in transactions: conflicts, limits and what is left after a commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{Db, Error, Isolation, KEY_BYTES_MAX, Transaction, TransactionOptions};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::open;

fn filled() -> Db {
    fill(open())
}

fn fill(db: Db) -> Db {
    for key in ["a", "b", "c", "d"] {
        db.insert(key, "0").expect("nothing fails");
    }
    db
}

fn keys(db: &Db) -> Vec<sievedb::Bytes> {
    db.iter().map(|entry| entry.expect("nothing fails").0).collect()
}

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    db.begin_with(TransactionOptions::new().isolation(isolation))
}

#[test]
fn others_conflict_with_a_committed_range() {
    for flushes in [false, true] {
        let db = filled();
        let mut transaction = db.begin();
        transaction.remove_range(&db, "b".."d").expect("it fits");
        let readers = [db.begin(), db.begin(), db.begin()];
        readers[0].get(&db, "c").expect("nothing fails");
        assert_eq!(readers[1].range(&db, "c"..).count(), 2);
        readers[2].get(&db, "d").expect("nothing fails");
        transaction.commit(None).expect("it has read nothing");
        if flushes {
            db.flush().expect("nothing fails");
        }
        for (reader, conflict) in readers.into_iter().zip([Some("c"), Some("c"), None]) {
            let mut reader = reader;
            reader.insert(&db, "own", "").expect("it fits");
            match (reader.commit(None), conflict) {
                (Ok(_), None) => {}
                (Err(Error::Conflict { key, keyspace }), Some(want)) => {
                    assert_eq!((&*key, keyspace), (want.as_bytes(), db.default_keyspace().name()));
                }
                (other, want) => panic!("{other:?} instead of a conflict with {want:?}"),
            }
        }
        assert_eq!(keys(&db), ["a", "d", "own"]);
    }
}

/// First committer wins under snapshot isolation; a serializable commit removes what was written.
#[test]
fn a_range_conflicts_with_writes_in_it_under_snapshot_isolation() {
    type Write = fn(&Db);
    let cases: [(&str, Write, Option<&str>); 6] = [
        ("present key", |db| db.insert("c", "1").expect("nothing fails"), Some("c")),
        ("new key", |db| db.insert("bb", "1").expect("nothing fails"), Some("bb")),
        ("removed key", |db| db.remove("b").expect("nothing fails"), Some("b")),
        ("range", |db| db.remove_range("c"..="d").expect("nothing fails"), Some("c")),
        ("end of the range", |db| db.insert("d", "1").expect("nothing fails"), None),
        ("before the range", |db| db.remove("a").expect("nothing fails"), None),
    ];
    for (name, write, conflict) in cases {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            for flushes in [false, true] {
                let db = filled();
                let mut transaction = begin(&db, isolation);
                transaction.remove_range(&db, "b".."d").expect("it fits");
                write(&db);
                if flushes {
                    db.flush().expect("nothing fails");
                }
                match (transaction.commit(None), conflict) {
                    (Err(Error::Conflict { key, .. }), Some(want)) => {
                        assert_eq!(isolation, Isolation::Snapshot, "{name}");
                        assert_eq!(&*key, want.as_bytes(), "{name}");
                    }
                    (Ok(_), _) => {
                        let wins = isolation == Isolation::Snapshot && conflict.is_some();
                        assert!(!wins, "{name}: no conflict");
                        let is_left = |key: &[u8]| key < &b"b"[..] || key >= &b"d"[..];
                        assert!(keys(&db).iter().all(|key| is_left(key)), "{name}");
                    }
                    (other, want) => panic!("{name}: {other:?} instead of {want:?}"),
                }
            }
        }
    }
}

#[test]
fn what_a_range_replaces_is_not_written() {
    let db = filled();
    let other = db.keyspace("other").expect("a keyspace");
    let mut transaction = db.begin();
    transaction.insert(&db, "bb", "dropped").expect("it fits");
    transaction.insert(&other, "bb", "kept").expect("it fits");
    transaction.remove_range(&db, "b"..="c").expect("it fits");
    transaction.insert(&db, "c", "later").expect("it fits");
    transaction.remove_range(&db, "z".."y").expect("an empty range is valid");
    assert_eq!(transaction.len(), 3);
    assert_eq!(transaction.get(&db, "bb").expect("nothing fails"), None);
    transaction.commit(None).expect("nothing conflicts");
    assert_eq!(keys(&db), ["a", "c", "d"]);
    assert_eq!(other.iter().count(), 1);

    let mut transaction = db.begin();
    transaction.remove_prefix(&db, "").expect("it fits");
    assert!(!transaction.is_empty() && transaction.iter(&db).next_back().is_none());
    transaction.commit(None).expect("nothing conflicts");
    assert!(keys(&db).is_empty());
}

#[test]
fn an_older_removed_range_makes_a_commit_read_nothing() {
    let options = small_options(Arc::new(MemoryFs::new())).block_cache_bytes(0);
    let db = fill(options.open(STORE_DIR).expect("a new store"));
    db.flush().expect("nothing fails");
    db.remove_range("b".."c").expect("nothing fails");
    db.flush().expect("nothing fails");
    let mut transaction = db.begin();
    assert_eq!(transaction.iter(&db).count(), 3);
    transaction.insert(&db, "own", "").expect("it fits");
    let read = db.stats().table_reads.calls;
    transaction.commit(None).expect("nothing conflicts");
    assert_eq!(db.stats().table_reads.calls, read);
}

/// Other ranges are removed for as long as the commit runs.
#[test]
fn a_commit_ends_beside_removed_ranges_that_it_has_not_read() {
    const KEYS: u32 = 20_000;
    const REMOVED_MAX: u64 = 200_000;
    let db = open();
    let key = |index: u32| format!("a{index:05}");
    (0..KEYS).for_each(|index| db.insert(key(index), "").expect("nothing fails"));
    let mut transaction = db.begin();
    assert_eq!(transaction.prefix(&db, "a").count(), KEYS as usize);
    (0..KEYS).for_each(|index| assert!(transaction.get(&db, key(index)).is_ok()));
    transaction.insert(&db, "own", "").expect("it fits");
    let (is_over, removed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) && removed.load(Relaxed) < REMOVED_MAX {
                db.remove_range("x/1".."x/2").expect("nothing fails");
                removed.fetch_add(1, Relaxed);
            }
        });
        while removed.load(Relaxed) < 10 {
            thread::yield_now();
        }
        transaction.commit(None).expect("nothing conflicts");
        is_over.store(true, Relaxed);
    });
    assert!(removed.into_inner() < REMOVED_MAX, "the commit ended after the other writes");
}

#[test]
fn a_range_that_cannot_be_written_changes_nothing() {
    let db = filled();
    let mut transaction = db.begin_with(TransactionOptions::new().bytes_max(1000));
    let too_long = vec![0; KEY_BYTES_MAX + 1];
    let refused = transaction.remove_range(&db, ..&too_long[..]);
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    let refused = transaction.remove_prefix(&db, vec![b'x'; 900]);
    assert!(matches!(refused, Err(Error::TransactionTooLarge { .. })), "{refused:?}");
    assert!(transaction.is_empty() && transaction.bytes() == 0);
    let mut reader = db.begin_with(TransactionOptions::new().read_only(true));
    let refused = reader.remove_range(&db, "a"..);
    assert!(matches!(refused, Err(Error::ReadOnlyTransaction)), "{refused:?}");
    assert_eq!(reader.iter(&db).count(), 4);
}
