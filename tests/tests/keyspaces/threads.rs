//! Handles and iterators can be moved to other threads.

use sievedb::{Batch, Db, EntryRef, Keys, Keyspace, KeyspaceSnapshot, Range, Snapshot};

const fn moves_to_threads<T: Send + 'static>() {}

const fn is_shared_by_threads<T: Send + Sync + 'static>() {}

/// The check is done by the compiler.
const _: () = {
    is_shared_by_threads::<Db>();
    is_shared_by_threads::<Keyspace>();
    is_shared_by_threads::<Snapshot>();
    is_shared_by_threads::<KeyspaceSnapshot>();
    is_shared_by_threads::<Batch>();
    moves_to_threads::<Range>();
    moves_to_threads::<Keys>();
    moves_to_threads::<EntryRef<'static>>();
};

#[test]
fn a_range_that_was_begun_continues_on_another_thread() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path()).expect("a new store");
    for key in ["a", "b", "c"] {
        db.insert(key, "").expect("there is room");
    }
    db.flush().expect("there is room");
    let mut range = db.iter();
    drop(db);
    assert_eq!(range.next().expect("a key").expect("readable").0, "a");
    let rest = std::thread::spawn(move || range.keys().collect::<Result<Vec<_>, _>>());
    assert_eq!(rest.join().expect("no panic").expect("readable"), ["b", "c"]);
}
