//! Iterators over the keys of a transaction.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use sievedb::{Bytes, Counter, Db, Error, KeyspaceOptions, Result, Transaction};

use super::open;

fn keys(keys: impl Iterator<Item = Result<Bytes>>) -> String {
    let text = |key: Result<Bytes>| String::from_utf8(key.unwrap().to_vec()).unwrap();
    keys.map(text).collect()
}

/// Returns a transaction that sees the keys "abdfg": some stored, some its own, between ranges that
/// it has removed.
fn begin(db: &Db) -> Transaction {
    for key in ["b", "c", "d", "e", "g"] {
        db.insert(key, "stored").unwrap();
    }
    let mut transaction = db.begin();
    transaction.remove_range(db, "e".."f").unwrap();
    transaction.insert(db, "a", "own").unwrap();
    transaction.insert(db, "d", "own").unwrap();
    transaction.insert(db, "f", "own").unwrap();
    transaction.remove(db, "c").unwrap();
    transaction
}

#[test]
fn keys_are_those_of_the_entries() {
    let db = open();
    let transaction = begin(&db);
    assert_eq!(keys(transaction.iter(&db).keys()), "abdfg");
    assert_eq!(keys(transaction.iter(&db).keys().rev()), "gfdba");
    assert_eq!(keys(transaction.range(&db, "b".."g").keys()), "bdf");
    assert_eq!(keys(transaction.prefix(&db, "c").keys()), "");
    // After the first steps from both ends.
    let mut range = transaction.iter(&db);
    assert_eq!(range.next().unwrap().unwrap().0, "a");
    assert_eq!(range.next_back().unwrap().unwrap().0, "g");
    let mut rest = range.keys();
    assert_eq!(rest.next_back().unwrap().unwrap(), "f");
    assert_eq!(keys(rest), "bd");
    assert!(!transaction.iter(&db).is_empty().unwrap());
    assert!(transaction.range(&db, "e".."f").is_empty().unwrap());
    assert!(transaction.prefix(&db, "c").is_empty().unwrap());
}

#[test]
fn keys_apply_no_operands() {
    let db = open();
    let options = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let counters = db.keyspace_with("counters", &options).unwrap();
    counters.insert("a", "no counter").unwrap();
    counters.merge("a", 1_i64.to_be_bytes()).unwrap();
    let mut transaction = db.begin();
    let failed = transaction.iter(&counters).next().unwrap();
    assert!(matches!(failed, Err(Error::MergeFailed { .. })), "{failed:?}");
    assert!(!transaction.iter(&counters).is_empty().unwrap());
    assert_eq!(keys(transaction.iter(&counters).keys()), "a");
    // In the parts between removed ranges, too.
    transaction.remove_range(&counters, "b".."c").unwrap();
    assert_eq!(keys(transaction.iter(&counters).keys().rev()), "a");
}

#[test]
fn a_commit_depends_on_the_keys_that_were_read() {
    let db = open();
    let conflicts = |read: &dyn Fn(&Transaction), inserted: &str| {
        db.clear().unwrap();
        let mut transaction = begin(&db);
        read(&transaction);
        transaction.insert(&db, "z", "").unwrap();
        db.insert(inserted, "").unwrap();
        matches!(transaction.commit(None), Err(Error::Conflict { .. }))
    };
    let is_empty = |it: &Transaction| assert!(it.range(&db, "h"..).is_empty().unwrap());
    assert!(conflicts(&is_empty, "i"));
    let has_some = |it: &Transaction| assert!(!it.range(&db, "aa"..).is_empty().unwrap());
    assert!(conflicts(&has_some, "ab") && !conflicts(&has_some, "ba"));
    let first = |it: &Transaction| assert!(it.range(&db, "aa"..).keys().next().is_some());
    assert!(conflicts(&first, "ab") && !conflicts(&first, "ba"));
}
