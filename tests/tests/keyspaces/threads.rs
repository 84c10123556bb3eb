//! Handles and iterators can be moved to other threads.

use sievedb::{
    Archive, BackupSet, Batch, Changes, CloseError, CommitFuture, CompactionPause, Db, EntryRef,
    Error, Ingestion, Keys, Keyspace, KeyspaceOptions, KeyspaceSnapshot, MemoryPool, Options,
    Range, Replica, RoomFuture, Savepoint, Snapshot, Stats, TableWriter, Transaction,
    TransactionRange, UnsortedIngestion, ValueReader,
};

const fn moves_to_threads<T: Send + 'static>() {}

const fn is_shared_by_threads<T: Send + Sync + 'static>() {}

/// The check is done by the compiler.
const _: () = {
    is_shared_by_threads::<Db>();
    is_shared_by_threads::<Keyspace>();
    is_shared_by_threads::<Snapshot>();
    is_shared_by_threads::<KeyspaceSnapshot>();
    is_shared_by_threads::<Batch>();
    is_shared_by_threads::<Transaction>();
    is_shared_by_threads::<Savepoint>();
    is_shared_by_threads::<CommitFuture>();
    is_shared_by_threads::<RoomFuture>();
    is_shared_by_threads::<CompactionPause>();
    is_shared_by_threads::<BackupSet>();
    is_shared_by_threads::<Archive>();
    is_shared_by_threads::<Replica>();
    is_shared_by_threads::<MemoryPool>();
    is_shared_by_threads::<Options>();
    is_shared_by_threads::<KeyspaceOptions>();
    is_shared_by_threads::<Stats>();
    is_shared_by_threads::<Error>();
    is_shared_by_threads::<CloseError>();
    moves_to_threads::<Range>();
    moves_to_threads::<Keys>();
    moves_to_threads::<EntryRef<'static>>();
    moves_to_threads::<TransactionRange<'static>>();
    moves_to_threads::<Changes>();
    moves_to_threads::<ValueReader>();
    moves_to_threads::<Ingestion>();
    moves_to_threads::<UnsortedIngestion>();
    moves_to_threads::<TableWriter>();
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
