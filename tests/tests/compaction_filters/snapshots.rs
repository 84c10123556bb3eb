//! Snapshots and transactions that begin while a compaction filters.

use std::sync::{
    Arc, Mutex,
    mpsc::{self, Receiver, Sender},
};

use bytes::Bytes;
use sievedb::{CompactionContext, CompactionFilter, Decision, Durability};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace};

use super::{all, of_snapshot, options};

/// Removes all keys but `stay`. Reports its first call, and waits for an answer.
#[derive(Debug)]
struct Waits(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl CompactionFilter for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], _: &[u8]) -> Decision {
        if let Some((called, goes_on)) = self.0.lock().unwrap().take() {
            called.send(()).unwrap();
            goes_on.recv().unwrap();
        }
        if key == b"stay" { Decision::Keep } else { Decision::Remove }
    }
}

#[test]
fn a_snapshot_taken_while_a_compaction_filters_does_not_change() {
    let fs = Arc::new(MemoryFs::new());
    let ((called, was_called), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    let filter = Arc::new(Waits(Mutex::new(Some((called, goes_on)))));
    let keyspace = small_keyspace().compaction_filter(filter);
    let db = options(&fs).keyspace(keyspace).worker_threads(1).open(STORE_DIR).unwrap();
    for key in ["a", "b", "c", "stay"] {
        db.insert(key, "value").unwrap();
    }
    let compacted = std::thread::spawn({
        let db = db.clone();
        move || db.compact()
    });
    was_called.recv().unwrap();
    let (snapshot, mut tx) = (db.snapshot(), db.begin());
    let before = of_snapshot(&snapshot);
    let mut range = db.iter();
    let first = range.next().unwrap().unwrap();
    assert_eq!(tx.get(&db, "a").unwrap(), Some(Bytes::from("value")));
    go_on.send(()).unwrap();
    compacted.join().unwrap().unwrap();

    let keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
    assert_eq!(keys, ["stay"]);
    assert_eq!(of_snapshot(&snapshot), before);
    assert_eq!(snapshot.get_many(["a", "x"]).unwrap(), [Some("value".into()), None]);
    assert!(snapshot.contains_key("b").unwrap() && snapshot.may_contain("b"));
    let rest: Vec<_> = [Ok(first)].into_iter().chain(range).collect();
    assert_eq!(all(rest.into_iter()), before, "an iterator has a view of its own");

    // The removal is no write: the transaction sees its snapshot, and commits.
    assert_eq!(tx.get(&db, "b").unwrap(), Some(Bytes::from("value")));
    tx.insert(&db, "b", "new").unwrap();
    tx.commit(Durability::OsBuffer).unwrap();
    assert_eq!(db.get("b").unwrap(), Some(Bytes::from("new")));
    assert_eq!(of_snapshot(&snapshot), before);

    let later = db.snapshot();
    drop(snapshot);
    let now =
        all([("b", "new"), ("stay", "value")].map(|(k, v)| Ok((k.into(), v.into()))).into_iter());
    assert_eq!(of_snapshot(&later), now);
    db.compact().unwrap();
    assert_eq!(of_snapshot(&later), now, "it is older than the last compaction");
    drop(later);
    db.compact().unwrap();
    assert_eq!(db.len().unwrap(), 1);
}

#[test]
fn a_transaction_detects_a_write_that_a_filter_removed() {
    let fs = Arc::new(MemoryFs::new());
    let filter = Arc::new(Waits(Mutex::new(None)));
    let keyspace = small_keyspace().compaction_filter(filter);
    let db = options(&fs).keyspace(keyspace).open(STORE_DIR).unwrap();
    db.insert("stay", "1").unwrap();
    let mut tx = db.begin();
    assert_eq!(tx.get(&db, "a").unwrap(), None);
    db.insert("a", "written later").unwrap();
    db.compact().unwrap();
    assert_eq!(db.get("a").unwrap(), None, "the filter removed it");
    tx.insert(&db, "stay", "2").unwrap();
    let conflict = tx.commit(Durability::OsBuffer);
    assert!(matches!(conflict, Err(sievedb::Error::Conflict { .. })), "{conflict:?}");
}
