//! Limits: memory, options, handles of other stores.

use std::sync::Arc;

use sievedb::{Counter, Error, Isolation, KeyspaceOptions, Transaction, TransactionOptions};

use super::open;

fn is_too_large<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::TransactionTooLarge { bytes_max: 10_000, .. }))
}

/// Fills a transaction by `call` until it is refused.
fn fill(transaction: &mut Transaction, call: impl Fn(&mut Transaction, u32) -> bool) -> u32 {
    (0..1000).find(|&number| !call(transaction, number)).expect("it is refused")
}

#[test]
fn transaction_beyond_its_limit_is_refused_and_can_commit_the_rest() {
    let db = open();
    let options = TransactionOptions::new().bytes_max(10_000);
    let before = db.stats().memory.bookkeeping_bytes;
    let key = |number: u32| number.to_be_bytes();

    let mut transaction = db.begin_with(options);
    let written = fill(&mut transaction, |transaction, number| {
        let result = transaction.insert(&db, key(number), [7; 100]);
        result.is_ok() || !is_too_large(&result)
    });
    assert!((30..60).contains(&written), "{written}");
    let used = db.stats().memory.bookkeeping_bytes - before;
    assert_eq!(used, transaction.bytes());
    assert!((9700..=10_000).contains(&used), "{used}");
    let reads = (2000..2003).map(|number| transaction.get(&db, key(number)));
    assert!(reads.last().is_some_and(|last| is_too_large(&last)));
    assert!(is_too_large(&transaction.iter(&db).next().transpose()));
    transaction.commit(None).unwrap();
    assert_eq!(db.iter().count(), written as usize);
    assert_eq!(db.stats().memory.bookkeeping_bytes, before);

    let read = fill(&mut db.begin_with(options), |transaction, number| {
        let result = transaction.get(&db, key(number));
        // Again: it is in the set already.
        assert!(result.is_err() || transaction.get(&db, key(number)).is_ok());
        !is_too_large(&result)
    });
    assert!((80..110).contains(&read), "{read}");
    let without = [options.isolation(Isolation::Snapshot), options.read_only(true)];
    for options in without {
        let transaction = db.begin_with(options);
        for number in 0..1000 {
            transaction.get(&db, key(number)).unwrap();
        }
        assert_eq!(transaction.iter(&db).count(), written as usize);
        assert_eq!(transaction.bytes(), 0);
    }
    assert_eq!(db.stats().memory.bookkeeping_bytes, before);
}

#[test]
fn a_scan_to_the_end_is_charged_once() {
    let db = open();
    let charged = db.stats().memory.bookkeeping_bytes;
    let bytes_of_scan = |prefix: &[u8]| {
        let transaction = db.begin();
        assert_eq!(transaction.prefix(&db, prefix).count(), 0);
        transaction.bytes()
    };
    let prefix = [7; 1000];
    let (bytes, without_bounds) = (bytes_of_scan(&prefix), bytes_of_scan(b""));
    assert_eq!(bytes - without_bounds, 2000, "the prefix, and the first key after it");
    let transaction = db.begin_with(TransactionOptions::new().bytes_max(3 * bytes));
    for _ in 0..3 {
        assert!(transaction.prefix(&db, prefix).next().is_none());
    }
    assert_eq!(transaction.bytes(), 3 * bytes);
    let mut partial = db.begin();
    partial.insert(&db, "key", "value").unwrap();
    let before = partial.bytes();
    // The part that was read is the key twice.
    assert!(partial.range(&db, "key"..).next().unwrap().is_ok());
    assert_eq!(partial.bytes() - before, without_bounds + 6);
    drop((transaction, partial));
    assert_eq!(db.stats().memory.bookkeeping_bytes, charged);
}

#[test]
fn writes_that_are_undone_free_their_memory() {
    let db = open();
    let mut transaction = db.begin();
    transaction.insert(&db, "a", "1").unwrap();
    let first = transaction.bytes();
    transaction.insert(&db, "a", "2").unwrap();
    assert_eq!(transaction.bytes(), first);
    let outer = transaction.set_savepoint();
    for number in 0..10 {
        transaction.insert(&db, "a", number.to_string()).unwrap();
        transaction.remove(&db, format!("b{number}")).unwrap();
    }
    // 20 writes, and steps that undo them.
    assert!(transaction.bytes() > 30 * first);
    transaction.rollback_to(&outer).unwrap();
    assert_eq!((transaction.bytes(), transaction.len()), (first, 1));
    transaction.remove_prefix(&db, "").unwrap();
    transaction.rollback_to(&outer).unwrap();
    assert_eq!((transaction.bytes(), transaction.len()), (first, 1));
    transaction.insert(&db, "a", "3").unwrap();
    transaction.release(outer).unwrap();
    assert_eq!(transaction.bytes(), first);
    assert_eq!(transaction.get(&db, "a").unwrap().unwrap(), "3");
}

#[test]
fn invalid_calls_are_refused() {
    let (db, other) = (open(), open());
    let mut transaction = db.begin();
    let foreign = |result: Result<(), Error>| matches!(result, Err(Error::ForeignKeyspace { .. }));
    assert!(foreign(transaction.insert(&other, "a", "")));
    assert!(foreign(transaction.get(&other, "a").map(drop)));
    assert!(foreign(transaction.iter(&other).next().transpose().map(drop)));
    let too_long = vec![0; sievedb::KEY_BYTES_MAX + 1];
    assert!(matches!(transaction.insert(&db, too_long, ""), Err(Error::KeyTooLong { .. })));
    let savepoint = transaction.set_savepoint();
    let mut second = db.begin();
    assert!(matches!(second.rollback_to(&savepoint), Err(Error::NoSavepoint)));
    let inner = transaction.set_savepoint();
    transaction.release(savepoint).unwrap();
    assert!(matches!(transaction.rollback_to(&inner), Err(Error::NoSavepoint)));

    let mut reader = db.begin_with(TransactionOptions::new().read_only(true));
    assert!(matches!(reader.remove(&db, "a"), Err(Error::ReadOnlyTransaction)));
    assert_eq!(reader.get_for_update(&db, "a").unwrap(), None);
    reader.commit(None).unwrap();

    // An open transaction keeps the store open.
    let refused = db.close().unwrap_err();
    let handles = match refused.error() {
        Error::StillOpen { handles, .. } => *handles,
        error => panic!("{error:?}"),
    };
    assert_eq!(handles.transactions, 2);
    assert!(handles.to_string().contains("2 Transactions"), "{handles}");
}

/// The stored value of an overwritten key is not read: its merge may fail.
#[test]
fn overwritten_keys_are_not_merged() {
    let db = open();
    let options = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let counters = db.keyspace_with("counters", &options).unwrap();
    counters.insert("a", "no counter").unwrap();
    counters.merge("a", 1_i64.to_be_bytes()).unwrap();
    counters.insert("b", "2").unwrap();
    let mut transaction = db.begin();
    let failed = transaction.get_many(&counters, ["b", "a"]);
    assert!(matches!(failed, Err(Error::MergeFailed { .. })), "{failed:?}");
    transaction.insert(&counters, "a", "1").unwrap();
    let found = transaction.get_many(&counters, ["b", "a", "c", "a"]).unwrap();
    assert_eq!(found, [Some("2".into()), Some("1".into()), None, Some("1".into())]);
    assert_eq!(transaction.contains_many(&counters, ["c", "a"]).unwrap(), [false, true]);
}
