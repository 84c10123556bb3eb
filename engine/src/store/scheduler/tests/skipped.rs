//! Searches for compactions after scans have skipped tombstones.

use super::{
    priorities::{claim, tree_of},
    *,
};

/// A compaction that waits for a snapshot does not make each scan search for one.
#[test]
fn scans_make_their_keyspace_due_each_time_their_cost_doubles() {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.idle_compactions(false).open("db").expect("a new store");
    let (scanned, other) = (db.keyspace("scanned"), db.keyspace("other"));
    let (scanned, other) = (scanned.expect("there is room"), other.expect("there is room"));
    for key in 0..100_u64 {
        scanned.insert(key.to_be_bytes(), "value").expect("there is room");
        other.insert(key.to_be_bytes(), "value").expect("there is room");
    }
    let _snapshot = db.snapshot();
    for key in 0..50_u64 {
        scanned.remove(key.to_be_bytes()).expect("there is room");
    }
    scanned.compact().expect("there is room");
    other.compact().expect("there is room");
    assert!(claim(&db).is_none());
    let store = db.store();
    let id = tree_of(&db, "scanned").id;
    let (mut due, scans) = (0, 64);
    for _ in 0..scans {
        assert_eq!(scanned.iter().count(), 50);
        // As each step of a worker does.
        store.free_and_freeze();
        let mut state = store.scheduler.state.lock();
        store.note_changes(&mut state);
        let mut ids = TreeIds::walk_behind(0);
        while let Some(found) = ids.next(&state.due.compact) {
            assert_eq!(found, id, "another keyspace");
            due += 1;
        }
        drop(state);
        assert!(claim(&db).is_none(), "the snapshot keeps the tombstones");
    }
    assert!((1..=8).contains(&due), "due after {due} of {scans} scans");
}
