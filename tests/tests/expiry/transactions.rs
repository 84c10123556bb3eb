//! Values that expire, in transactions.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{
    Db, Error, Isolation, TimeToLive, Transaction, TransactionOptions, VALUE_BYTES_MAX,
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

const SECOND: Duration = Duration::from_secs(1);

fn new_store() -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let options = small_options(Arc::new(MemoryFs::new())).clock(Arc::clone(&clock) as _);
    (options.open(STORE_DIR).expect("it succeeds"), clock)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn left(seconds: u64) -> Option<TimeToLive> {
    Some(TimeToLive::Remaining(Duration::from_secs(seconds)))
}

/// Compares every read of "a" to "f" with `want`, the present keys.
fn check_reads(transaction: &Transaction, db: &Db, want: &str) {
    let keys = ["a", "b", "c", "d", "e", "f"];
    let is_there = keys.map(|key| want.contains(key));
    let found = |key: &str| transaction.get(db, key).expect("it succeeds").is_some();
    assert_eq!(keys.map(found), is_there);
    let contains = |key: &str| transaction.contains_key(db, key).expect("it succeeds");
    assert_eq!(keys.map(contains), is_there);
    let many = transaction.get_many(db, keys).expect("it succeeds");
    assert!(many.iter().map(Option::is_some).eq(is_there));
    let many = transaction.contains_many(db, keys).expect("it succeeds");
    assert!(many.into_iter().eq(is_there));
    let ttl = |key: &str| transaction.ttl(db, key).expect("it succeeds").is_some();
    assert_eq!(keys.map(ttl), is_there);
    let text = |entry: sievedb::Result<(sievedb::Bytes, sievedb::Bytes)>| {
        String::from_utf8(entry.expect("it succeeds").0.to_vec()).expect("it is text")
    };
    assert_eq!(transaction.iter(db).map(text).collect::<String>(), want);
    let down: String = transaction.range(db, "a"..).rev().map(text).collect();
    assert_eq!(down.chars().rev().collect::<String>(), want);
}

#[test]
fn a_transaction_sees_its_own_expiries_by_its_fixed_clock() {
    let (db, clock) = new_store();
    clock.advance(10 * SECOND);
    for key in ["a", "b", "c"] {
        db.insert_with_ttl(key, "stored", 5 * SECOND).unwrap();
    }
    db.insert("d", "stored").unwrap();
    let mut transaction = db.begin();
    assert_eq!(transaction.ttl(&db, "a").unwrap(), left(5));
    transaction.insert_with_ttl(&db, "a", "own", Duration::ZERO).unwrap();
    transaction.insert_expiring_at(&db, "b", "own", at(10)).unwrap();
    transaction.insert_with_ttl(&db, "e", "own", SECOND).unwrap();
    transaction.insert_expiring_at(&db, "f", "own", at(11)).unwrap();
    check_reads(&transaction, &db, "cdef");
    clock.advance(4 * SECOND);
    assert_eq!(db.iter().count(), 4, "the writes are not visible");
    assert_eq!(transaction.ttl(&db, "e").unwrap(), left(1), "its clock stands still");
    assert_eq!(transaction.ttl(&db, "f").unwrap(), left(1));
    assert_eq!(transaction.ttl(&db, "c").unwrap(), left(5));
    transaction.insert_with_ttl(&db, "c", "own", 6 * SECOND).unwrap();
    clock.advance(SECOND);
    check_reads(&transaction, &db, "cdef");
    transaction.commit(None).unwrap();
    let keys: Vec<_> = db.iter().keys().map(|key| key.unwrap()).collect();
    assert_eq!(keys, ["c", "d"], "\"e\" and \"f\" expired before the commit");
    assert_eq!(db.ttl("c").unwrap(), left(1), "counted from the start");
    clock.advance(SECOND);
    assert_eq!(db.get("c").unwrap(), None);
}

#[test]
fn expiries_are_set_removed_and_rolled_back() {
    let (db, _) = new_store();
    db.insert("a", "1").unwrap();
    db.insert_with_ttl("b", "2", 9 * SECOND).unwrap();
    let mut transaction = db.begin();
    let bytes = transaction.bytes();
    assert!(!transaction.expire_at(&db, "c", at(5)).unwrap());
    assert!(!transaction.expire_after(&db, "c", 5 * SECOND).unwrap());
    assert!(!transaction.persist_key(&db, "c").unwrap());
    assert!(transaction.persist_key(&db, "a").unwrap());
    assert!(transaction.is_empty(), "nothing changes");
    let savepoint = transaction.set_savepoint();
    assert!(transaction.expire_at(&db, "a", at(5)).unwrap());
    assert!(transaction.persist_key(&db, "b").unwrap());
    assert_eq!(transaction.ttl(&db, "a").unwrap(), left(5));
    assert_eq!(transaction.ttl(&db, "b").unwrap(), Some(TimeToLive::Unlimited));
    assert!(transaction.expire_at(&db, "b", at(0)).unwrap(), "at once");
    assert!(!transaction.persist_key(&db, "b").unwrap(), "it is too late");
    assert_eq!(transaction.get(&db, "b").unwrap(), None);
    transaction.rollback_to(&savepoint).unwrap();
    assert_eq!(transaction.ttl(&db, "a").unwrap(), Some(TimeToLive::Unlimited));
    assert_eq!(transaction.ttl(&db, "b").unwrap(), left(9));
    assert!(transaction.expire_after(&db, "a", 6 * SECOND).unwrap());
    let inner = transaction.set_savepoint();
    transaction.insert_without_ttl(&db, "a", "3").unwrap();
    assert_eq!(transaction.ttl(&db, "a").unwrap(), Some(TimeToLive::Unlimited));
    transaction.rollback_to(&inner).unwrap();
    assert_eq!(transaction.ttl(&db, "a").unwrap(), left(6), "the expiry returns too");
    transaction.release(savepoint).unwrap();
    assert!(transaction.bytes() > bytes);
    transaction.commit(None).unwrap();
    assert_eq!((db.ttl("a").unwrap(), db.ttl("b").unwrap()), (left(6), left(9)));
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_commit_depends_on_a_time_to_live_that_was_read() {
    let (db, _) = new_store();
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let options = TransactionOptions::new().isolation(isolation);
        let conflicts = |read: &dyn Fn(&mut Transaction)| {
            db.insert("a", "1").unwrap();
            let mut transaction = db.begin_with(options);
            read(&mut transaction);
            transaction.insert(&db, "other", "1").unwrap();
            assert!(db.expire_at("a", at(99)).unwrap());
            matches!(transaction.commit(None), Err(Error::Conflict { .. }))
        };
        let tracks = isolation == Isolation::Serializable;
        assert_eq!(conflicts(&|it| assert!(it.ttl(&db, "a").unwrap().is_some())), tracks);
        assert!(conflicts(&|it| assert!(it.persist_key(&db, "a").unwrap())), "{isolation:?}");
        assert!(conflicts(&|it| assert!(it.expire_at(&db, "a", at(7)).unwrap())), "{isolation:?}");
    }
    // Time alone is no conflict.
    db.insert_with_ttl("a", "1", SECOND).unwrap();
    let mut transaction = db.begin();
    assert!(transaction.get(&db, "a").unwrap().is_some());
    transaction.insert(&db, "other", "2").unwrap();
    db.insert("unrelated", "").unwrap();
    transaction.commit(None).unwrap();
}

#[test]
fn refused_writes_change_nothing() {
    let (db, _) = new_store();
    db.insert("a", "1").unwrap();
    let mut read_only = db.begin_with(TransactionOptions::new().read_only(true));
    let refused = |result: sievedb::Result<()>| {
        assert!(matches!(result, Err(Error::ReadOnlyTransaction)), "{result:?}");
    };
    refused(read_only.insert_with_ttl(&db, "a", "2", SECOND));
    refused(read_only.insert_expiring_at(&db, "a", "2", at(0)));
    refused(read_only.insert_without_ttl(&db, "a", "2"));
    refused(read_only.expire_at(&db, "a", at(5)).map(drop));
    assert_eq!(read_only.ttl(&db, "a").unwrap(), Some(TimeToLive::Unlimited));
    let mut transaction = db.begin();
    let long = vec![0; VALUE_BYTES_MAX + 1];
    for ttl in [Duration::ZERO, SECOND] {
        let result = transaction.insert_with_ttl(&db, "a", &long, ttl);
        assert!(matches!(result, Err(Error::ValueTooLong { .. })), "{result:?}");
    }
    assert!(transaction.is_empty());
    let (other, _) = new_store();
    let result = transaction.insert_with_ttl(&other, "a", "", SECOND);
    assert!(matches!(result, Err(Error::ForeignKeyspace { .. })), "{result:?}");
}
