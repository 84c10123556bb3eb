//! An operator that fails or panics loses no operand, and harms no other key.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use sievedb::{Db, Error, Event, EventListener, KeyspaceOptions, MergeError, MergeOperator};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::options;

/// Joins parts, unless one is `bad`, or `worse`, which makes it panic.
#[derive(Debug, Default)]
struct Picky {
    is_mild: AtomicBool,
}

impl MergeOperator for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        if !self.is_mild.load(SeqCst) {
            assert!(!operands.contains(&&b"worse"[..]), "an operator panics, as it should");
            if operands.contains(&&b"bad"[..]) {
                return Err(MergeError::new("a bad operand"));
            }
        }
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(parts.concat())
    }

    fn partial_merge(&self, _: &[u8], _: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        assert!(newer != b"worse", "a partial merge panics, as it should");
        None
    }
}

#[derive(Debug, Default)]
struct Failures(Mutex<Vec<Error>>);

impl EventListener for Failures {
    fn on_event(&self, event: &Event) {
        if let Event::MergeFailed { error, .. } = event {
            self.0.lock().unwrap().push(error.clone());
        }
    }
}

/// Checks that a read fails for this key and reason.
fn check_failed<T: std::fmt::Debug>(result: Result<T, Error>, want: &str, reason: &'static str) {
    match result {
        Err(Error::MergeFailed { keyspace, operator, key, source }) => {
            assert_eq!((&*keyspace, &*operator), ("default", "picky"));
            assert_eq!((&*key, source), (want.as_bytes(), MergeError::new(reason)));
        }
        other => panic!("{want}: {other:?}"),
    }
}

fn check_reads(db: &Db) {
    let (bad, panicked) = ("a bad operand", "the operator panicked");
    for (key, reason) in [("bad", bad), ("worse", panicked)] {
        check_failed(db.get(key), key, reason);
        check_failed(db.get_with(key, <[u8]>::len), key, reason);
        check_failed(db.get_many(["good", key]), key, reason);
        check_failed(db.prefix(key).next().transpose(), key, reason);
        check_failed(db.prefix(key).next_back().transpose(), key, reason);
        assert!(db.contains_key(key).unwrap(), "it has a value");
        assert_eq!(db.contains_many([key]).unwrap(), [true]);
    }
    check_keys(db);
    assert_eq!(db.get("good").unwrap(), Some("good1".into()));
    assert_eq!(db.range("c".."w").count(), 1);
}

/// Checks that listings of keys, in both directions, read no value.
fn check_keys(db: &Db) {
    let mut keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
    assert!(["bad", "good", "worse"].iter().all(|key| keys.iter().any(|it| it == key)), "{keys:?}");
    let back: Vec<_> = db.iter().keys().rev().map(Result::unwrap).collect();
    keys.reverse();
    assert_eq!(keys, back);
    assert_eq!(db.len().unwrap(), keys.len() as u64);
    for key in ["bad", "worse"] {
        assert!(!db.prefix(key).is_empty().unwrap(), "{key}");
        let mut entries = db.prefix(key);
        assert!(entries.next().unwrap().is_err(), "{key}");
        let mut both = db.range("bad"..="worse").keys();
        assert_eq!(both.next_back().unwrap().unwrap(), "worse");
        assert_eq!(both.next().unwrap().unwrap(), "bad");
    }
}

#[test]
fn operands_are_kept_until_the_operator_can_apply_them() {
    let fs = Arc::new(MemoryFs::new());
    let (picky, failures) = (Arc::<Picky>::default(), Arc::<Failures>::default());
    let db = options(&fs, picky.clone()).listener(failures.clone()).open(STORE_DIR).unwrap();
    for key in ["bad", "worse", "good"] {
        db.insert(key, key).unwrap();
        db.merge(key, "1").unwrap();
    }
    db.merge("bad", "bad").unwrap();
    db.merge("worse", "worse").unwrap();
    db.merge("bad", "2").unwrap();
    check_reads(&db);
    db.flush().unwrap();
    check_reads(&db);
    db.merge("bad", "3").unwrap();
    db.compact().unwrap();
    check_reads(&db);
    assert_eq!(db.stats().keyspaces[0].merges_failed, 4);
    assert_eq!(failures.0.lock().unwrap().len(), 1, "reported once");
    picky.is_mild.store(true, SeqCst);
    db.insert("other", "").unwrap();
    let want = [Some(Bytes::from("bad1bad23")), Some("worse1worse".into())];
    assert_eq!(db.get_many(["bad", "worse"]).unwrap(), want);
    db.compact().unwrap();
    picky.is_mild.store(false, SeqCst);
    assert_eq!(db.get_many(["bad", "worse"]).unwrap(), want, "the results are stored");
}

#[test]
fn a_write_replaces_operands_that_cannot_be_applied() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, Arc::<Picky>::default()).open(STORE_DIR).unwrap();
    for key in ["bad", "worse"] {
        db.merge(key, key).unwrap();
    }
    db.flush().unwrap();
    db.remove("bad").unwrap();
    db.insert("worse", "new").unwrap();
    db.compact().unwrap();
    assert_eq!(db.get_many(["bad", "worse"]).unwrap(), [None, Some("new".into())]);
    assert_eq!(db.iter().count(), 1);
}

#[test]
fn errors_have_the_present_name_of_the_keyspace() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, Arc::<Picky>::default()).open(STORE_DIR).unwrap();
    let with_operator = KeyspaceOptions::new().merge_operator(Arc::<Picky>::default());
    let keyspace = db.keyspace_with("old", &with_operator).unwrap();
    keyspace.merge("bad", "bad").unwrap();
    db.rename_keyspace("old", "new").unwrap();
    let error = keyspace.get("bad").unwrap_err();
    assert!(
        matches!(&error, Error::MergeFailed { keyspace, .. } if &**keyspace == "new"),
        "{error}"
    );
}

#[test]
fn a_transaction_iterates_past_operands_that_it_overwrites() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs, Arc::<Picky>::default()).open(STORE_DIR).unwrap();
    for key in ["a", "c", "e"] {
        db.insert(key, key).unwrap();
    }
    for key in ["b", "d", "f"] {
        db.merge(key, "bad").unwrap();
    }
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
        }
        let mut transaction = db.begin();
        check_failed(transaction.iter(&db).nth(1).transpose(), "b", "a bad operand");
        check_failed(transaction.iter(&db).next_back().transpose(), "f", "a bad operand");
        transaction.insert(&db, "b", "new").unwrap();
        transaction.remove(&db, "d").unwrap();
        transaction.insert(&db, "f", "new").unwrap();
        // Each order of the two ends.
        for order in 0..1_u32 << 6 {
            let (mut left, mut iter) =
                (VecDeque::from(["a", "b", "c", "e", "f"]), transaction.iter(&db));
            for step in 0..6 {
                let (want, got) = if order >> step & 1 == 0 {
                    (left.pop_front(), iter.next())
                } else {
                    (left.pop_back(), iter.next_back())
                };
                let got = got.map(|entry| entry.unwrap().0);
                assert_eq!(got.as_deref(), want.map(str::as_bytes), "order {order:b}, {step}");
            }
        }
    }
    // Without the operands of its neighbours a failing key still fails.
    let mut transaction = db.begin();
    transaction.insert(&db, "b", "new").unwrap();
    let mut iter = transaction.iter(&db);
    check_failed(iter.nth(3).transpose(), "d", "a bad operand");
    assert!(iter.next().is_none() && iter.next_back().is_none(), "it is at its end");
}
