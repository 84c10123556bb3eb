//! Writes of a transaction that depend on the present value of their key.

use sievedb::{Error, Isolation, TransactionOptions};

use super::open;

#[test]
fn changes_see_stored_and_own_values() {
    let db = open();
    db.insert("stored", "a").unwrap();
    db.fetch_add("count", 5).unwrap();
    let mut transaction = db.begin();
    assert_eq!(transaction.take(&db, "stored").unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(transaction.take(&db, "stored").unwrap(), None);
    assert_eq!(transaction.fetch_add(&db, "count", 1).unwrap(), 5);
    assert_eq!(transaction.fetch_add(&db, "count", -7).unwrap(), 6);
    let old = transaction.fetch_update(&db, "new", |old| old.is_none().then_some("b")).unwrap();
    assert_eq!(old, None);
    let longer = |old: Option<&[u8]>| old.map(|old| [old, b"c"].concat());
    let new = transaction.update_fetch(&db, "new", longer).unwrap();
    assert_eq!(new.as_deref(), Some(&b"bc"[..]));
    let old = transaction.fetch_update(&db, "new", |_| None::<&str>).unwrap();
    assert_eq!(old.as_deref(), Some(&b"bc"[..]));
    assert_eq!(transaction.first(&db).unwrap().unwrap().0, "count");
    transaction.commit(None).unwrap();
    assert_eq!(db.get("count").unwrap().as_deref(), Some(&(-1_i64).to_be_bytes()[..]));
    assert_eq!(db.len().unwrap(), 1);
}

#[test]
fn ends_are_those_of_own_and_stored_entries() {
    let db = open();
    db.insert("b", "stored").unwrap();
    let mut transaction = db.begin();
    assert_eq!(transaction.first(&db).unwrap(), transaction.last(&db).unwrap());
    transaction.insert(&db, "a", "own").unwrap();
    transaction.remove(&db, "b").unwrap();
    assert_eq!(transaction.first(&db).unwrap().unwrap().1, "own");
    assert_eq!(transaction.last(&db).unwrap().unwrap().1, "own");
    transaction.remove(&db, "a").unwrap();
    assert_eq!(transaction.last(&db).unwrap(), None);
}

#[test]
fn change_conflicts_under_snapshot_isolation() {
    let db = open();
    let begin = || db.begin_with(TransactionOptions::new().isolation(Isolation::Snapshot));
    db.fetch_add("count", 1).unwrap();
    // An update that writes nothing depends on the key too, once the transaction writes another.
    let mut keeps = begin();
    keeps.fetch_update(&db, "absent", |_| None::<&str>).unwrap();
    keeps.insert(&db, "other", "").unwrap();
    let mut adds = begin();
    adds.fetch_add(&db, "count", 1).unwrap();
    db.insert("absent", "").unwrap();
    db.fetch_add("count", 1).unwrap();
    for transaction in [keeps, adds] {
        let error = transaction.commit(None).unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
    }
}

#[test]
fn change_of_no_counter_is_refused() {
    let db = open();
    db.insert("text", "abc").unwrap();
    let mut transaction = db.begin();
    let error = transaction.fetch_add(&db, "text", 1).unwrap_err();
    assert!(matches!(error, Error::NotACounter { bytes: 3, .. }), "{error}");
    assert!(transaction.is_empty());
}
