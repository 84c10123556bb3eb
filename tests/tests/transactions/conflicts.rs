//! Which changes by others make a commit fail.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use bytes::Bytes;
use sievedb::{Db, Error, Isolation, Keyspace, Result, Transaction, TransactionOptions};

use super::open;

/// A step between a change and the commit.
type After = fn(&Db);

const AFTER: [(&str, After); 3] = [
    ("in the memtable", |_| ()),
    ("flushed", |db| db.flush().unwrap()),
    ("compacted", |db| db.compact().unwrap()),
];

fn filled() -> (Db, Keyspace) {
    let db = open();
    let other = db.keyspace("other").unwrap();
    for keyspace in [db.default_keyspace(), &other] {
        for key in ["b", "d", "f"] {
            keyspace.insert(key, "0").unwrap();
        }
    }
    db.compact().unwrap();
    (db, other)
}

fn keys(transaction: &Transaction, db: &Db, count: usize) {
    assert_eq!(transaction.iter(db).take(count).filter(Result::is_ok).count(), count);
}

/// The key of a conflict; `None` after a commit.
fn outcome(result: Result<u64>) -> Option<Bytes> {
    match result {
        Ok(_) => None,
        Err(Error::Conflict { key, .. }) => Some(key),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn serializable_commit_fails_if_what_was_read_was_written() {
    type Reads = fn(&Transaction, &Db);
    type Write = fn(&Db);
    let put_b: Write = |db| db.insert("b", "1").unwrap();
    let put_c: Write = |db| db.insert("c", "1").unwrap();
    let put_g: Write = |db| db.insert("g", "1").unwrap();
    let remove_d: Write = |db| db.remove("d").unwrap();
    let cases: [(&str, Reads, Write, Option<&str>); 21] = [
        ("nothing read", |_, _| (), put_b, None),
        ("present key", |t, db| drop(t.get(db, "b")), put_b, Some("b")),
        ("same value", |t, db| drop(t.get(db, "b")), |db| db.insert("b", "0").unwrap(), Some("b")),
        ("other key", |t, db| drop(t.get(db, "d")), put_b, None),
        ("absent key", |t, db| drop(t.get(db, "c")), put_c, Some("c")),
        ("removed key", |t, db| drop(t.contains_key(db, "d")), remove_d, Some("d")),
        ("many", |t, db| drop(t.get_many(db, ["x", "d", "b"])), remove_d, Some("d")),
        ("contained", |t, db| drop(t.contains_many(db, ["x", "c"])), put_c, Some("c")),
        ("locked", |t, db| drop(t.get_for_update(db, "b")), put_b, Some("b")),
        ("whole range", |t, db| assert!(t.iter(db).count() < 9), put_c, Some("c")),
        ("whole range, removal", |t, db| assert!(t.iter(db).count() < 9), remove_d, Some("d")),
        ("end of the range", |t, db| assert!(t.iter(db).count() < 9), put_g, Some("g")),
        ("front of a range", |t, db| keys(t, db, 2), put_c, Some("c")),
        ("beyond the front", |t, db| keys(t, db, 1), put_c, None),
        ("beyond the front, removal", |t, db| keys(t, db, 1), remove_d, None),
        ("back of a range", |t, db| drop(t.iter(db).next_back()), put_g, Some("g")),
        ("beyond the back", |t, db| drop(t.iter(db).next_back()), put_c, None),
        (
            "both ends",
            |t, db| {
                let mut range = t.iter(db);
                assert!(range.next().is_some() && range.next_back().is_some());
            },
            put_c,
            None,
        ),
        ("empty range", |t, db| drop(t.range(db, "g".."h").next()), put_g, Some("g")),
        ("outside of the bounds", |t, db| assert!(t.range(db, "a".."c").count() < 9), put_c, None),
        ("prefix", |t, db| drop(t.prefix(db, "g").next()), put_g, Some("g")),
    ];
    for (name, reads, write, want) in cases {
        for (after_name, after) in AFTER {
            let (db, other) = filled();
            let mut transaction = db.begin();
            reads(&transaction, &db);
            transaction.insert(&other, "result", "").unwrap();
            write(&db);
            after(&db);
            let got = outcome(transaction.commit(None));
            assert_eq!(got.as_deref(), want.map(str::as_bytes), "{name}, {after_name}");
            assert_eq!(other.contains_key("result").unwrap(), want.is_none(), "{name}");
        }
    }
}

/// Writes in another keyspace, before the transaction, or by a transaction that failed do not
/// count.
#[test]
fn only_later_writes_to_the_same_keyspace_conflict() {
    let (db, other) = filled();
    db.insert("b", "before").unwrap();
    let mut transaction = db.begin();
    assert_eq!(transaction.get(&db, "b").unwrap().unwrap(), "before");
    assert_eq!(transaction.iter(&db).count(), 3);
    transaction.insert(&db, "b", "new").unwrap();
    other.insert("b", "1").unwrap();
    let mut failing = db.begin();
    failing.get(&other, "b").unwrap();
    failing.insert(&db, "b", "never").unwrap();
    other.insert("b", "2").unwrap();
    assert_eq!(outcome(failing.commit(None)).unwrap(), "b");
    transaction.commit(None).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), "new");
}

/// Two doctors are on call, and each leaves if the other one stays.
#[test]
fn write_skew_is_prevented_only_if_serializable() {
    let cases = [
        (Isolation::Serializable, false, true),
        (Isolation::Snapshot, false, false),
        (Isolation::Snapshot, true, true),
    ];
    for (isolation, locks, is_prevented) in cases {
        let (db, _) = filled();
        let leave = |own: &str, other: &str| {
            let options = TransactionOptions::new().isolation(isolation);
            let mut transaction = db.begin_with(options);
            let get = if locks { Transaction::get_for_update } else { Transaction::get };
            assert_eq!(get(&transaction, &db, other).unwrap().unwrap(), "0");
            transaction.remove(&db, own).unwrap();
            transaction
        };
        let (first, second) = (leave("b", "d"), leave("d", "b"));
        first.commit(None).unwrap();
        let got = outcome(second.commit(None));
        assert_eq!(got.as_deref(), is_prevented.then_some(&b"b"[..]), "{isolation:?}");
    }
}

#[test]
fn first_committer_wins_under_snapshot_isolation() {
    for (after_name, after) in AFTER {
        let (db, _) = filled();
        let options = TransactionOptions::new().isolation(Isolation::Snapshot);
        let mut transaction = db.begin_with(options);
        transaction.get(&db, "b").unwrap();
        transaction.insert(&db, "new", "").unwrap();
        db.insert("new", "other").unwrap();
        after(&db);
        assert_eq!(outcome(transaction.commit(None)).unwrap(), "new", "{after_name}");
    }
}

/// Without a read, the later of two writes wins, as of two batches.
#[test]
fn blind_writes_do_not_conflict() {
    let (db, _) = filled();
    let mut transaction = db.begin();
    transaction.insert(&db, "b", "late").unwrap();
    db.insert("b", "early").unwrap();
    transaction.commit(None).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), "late");
}

#[test]
fn own_writes_are_no_dependency() {
    let (db, _) = filled();
    let mut transaction = db.begin();
    transaction.insert(&db, "b", "own").unwrap();
    assert_eq!(transaction.get(&db, "b").unwrap().unwrap(), "own");
    db.insert("b", "other").unwrap();
    transaction.commit(None).unwrap();
}

#[test]
fn transaction_without_writes_never_conflicts() {
    let (db, _) = filled();
    let transaction = db.begin();
    transaction.get(&db, "b").unwrap();
    db.insert("b", "1").unwrap();
    assert_eq!(transaction.get(&db, "b").unwrap().unwrap(), "0");
    transaction.commit(None).unwrap();
}

#[test]
fn dropped_keyspaces_are_refused() {
    let (db, other) = filled();
    let dropped = |result: Result<()>| matches!(result, Err(Error::KeyspaceDropped { .. }));
    let mut reader = db.begin();
    reader.get(&other, "b").unwrap();
    reader.insert(&db, "b", "1").unwrap();
    let mut writer = db.begin();
    writer.insert(&other, "b", "1").unwrap();
    let mut neither = db.begin();
    neither.insert(&db, "b", "2").unwrap();
    db.drop_keyspace("other").unwrap();
    assert!(dropped(reader.get(&other, "b").map(drop)));
    assert!(dropped(writer.get(&other, "b").map(drop)));
    assert!(matches!(reader.iter(&other).next(), Some(Err(Error::KeyspaceDropped { .. }))));
    assert!(dropped(reader.commit(None).map(drop)));
    assert!(dropped(writer.commit(None).map(drop)));
    neither.commit(None).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), "2");
}

#[test]
fn conflict_runs_the_transaction_again() {
    let (db, _) = filled();
    let mut runs = 0;
    let count = db.transaction(|transaction| {
        runs += 1;
        let count = transaction.iter(&db).count();
        if runs < 4 {
            db.insert(format!("a{runs}"), "").unwrap();
        }
        transaction.insert(&db, "count", count.to_string())?;
        Ok(count)
    });
    assert_eq!((count.unwrap(), runs), (6, 4));

    let options = TransactionOptions::new().retries_max(2);
    let mut runs = 0;
    let refused = db.transaction_with(options, |transaction| {
        runs += 1;
        transaction.get(&db, "b")?;
        db.insert("b", "again").unwrap();
        transaction.remove(&db, "b")
    });
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(runs, 3);
    let failed: Result<()> = db.transaction(|transaction| {
        transaction.remove(&db, "b")?;
        Err(Error::NoSavepoint)
    });
    assert!(matches!(failed, Err(Error::NoSavepoint)));
    assert!(db.contains_key("b").unwrap());
}

/// An iterator that was never advanced has read nothing. One that was names a key of its bounds.
#[test]
fn a_clear_conflicts_with_what_was_read_before() {
    let (db, other) = filled();
    for (steps, wanted) in [(0, None), (1, Some("b".into()))] {
        let mut transaction = db.begin();
        assert_eq!(transaction.range(&other, "b"..).take(steps).count(), steps);
        transaction.insert(&db, "z", "").unwrap();
        other.clear().unwrap();
        assert_eq!(outcome(transaction.commit(None)), wanted, "{steps} steps");
        other.insert("b", "").unwrap();
    }
}
