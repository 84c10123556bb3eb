//! Memtables are freed by a worker.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use sievedb::{Db, Options};
use sievedb_doubles::MemoryFs;

use crate::{
    MIB,
    counting::{freed_here, turn},
};

/// A store with a memtable of some megabytes.
fn filled(workers: usize) -> Db {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(workers);
    let db = options.open("db").unwrap();
    for key in 0..20_000_u32 {
        db.insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    db
}

fn flush_elsewhere(db: &Db) {
    thread::scope(|scope| scope.spawn(|| db.flush().unwrap()).join().unwrap());
    assert!(db.stats().memory.pinned_bytes > MIB as u64, "the reader pins the memtable");
}

/// Waits until a worker has freed the memtables.
#[expect(clippy::disallowed_methods, reason = "it waits by real time")]
fn wait_until_nothing_is_pinned(db: &Db) {
    let start = Instant::now();
    while db.stats().memory.pinned_bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "the memtable is not freed");
        thread::yield_now();
    }
}

#[test]
fn f4_worker_frees_the_memtable_of_the_last_lookup() {
    let _turn = turn();
    let db = filled(1);
    let mut before = 0;
    let read = |value: &[u8]| {
        flush_elsewhere(&db);
        before = freed_here();
        value.len()
    };
    assert_eq!(db.get_with(7_u32.to_be_bytes(), read).unwrap(), Some(100));
    let freed = freed_here() - before;
    assert!(freed < MIB / 16, "the lookup freed {freed} bytes");
    wait_until_nothing_is_pinned(&db);
}

#[test]
fn f4_worker_frees_the_memtable_of_the_last_iterator() {
    let _turn = turn();
    let db = filled(1);
    let mut iterator = db.iter();
    iterator.next().unwrap().unwrap();
    flush_elsewhere(&db);
    let before = freed_here();
    drop(iterator);
    let freed = freed_here() - before;
    assert!(freed < MIB / 16, "the iterator freed {freed} bytes");
    wait_until_nothing_is_pinned(&db);
}

/// Without workers the last reader frees the memtable at once.
#[test]
fn f4_without_workers_nothing_stays_pinned() {
    let _turn = turn();
    let db = filled(0);
    let mut iterator = db.iter();
    iterator.next().unwrap().unwrap();
    flush_elsewhere(&db);
    drop(iterator);
    assert_eq!(db.stats().memory.pinned_bytes, 0);
}

/// The workers have ended: the last iterator frees the memtable.
#[test]
fn f4_closed_store_keeps_no_memory() {
    let _turn = turn();
    let before = crate::counting::live_bytes();
    let db = filled(1);
    let mut iterator = db.iter();
    iterator.next().unwrap().unwrap();
    flush_elsewhere(&db);
    db.shutdown(Duration::from_secs(60)).unwrap();
    drop((iterator, db));
    let kept = crate::counting::live_bytes().saturating_sub(before);
    assert!(kept < MIB / 4, "{kept} bytes are kept");
}
