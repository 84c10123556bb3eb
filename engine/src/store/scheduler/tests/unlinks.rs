//! Unlinks of obsolete files.

use super::{
    priorities::{busy, claim_long, freeze, options},
    *,
};

fn tables(fs: &MemoryFs) -> usize {
    fs.contents().into_keys().filter(|name| name.ends_with(".sst")).count()
}

/// Waits until a worker has unlinked all tables but `left`, without a call of the store.
fn wait_for_tables(fs: &MemoryFs, left: usize) {
    for _ in 0..1_000 {
        if tables(fs) == left {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} tables instead of {left}", tables(fs));
}

#[test]
fn the_end_of_the_last_reader_notifies_a_worker() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let db = options(1).fs(Arc::clone(&fs) as _).open("db").expect("a new store");
    for _ in 0..2 {
        db.insert("key", "value").expect("there is room");
        db.flush().expect("there is room");
    }
    // Its memtable is empty: a drop of a flushed one notifies a worker.
    let mut scan = db.iter();
    scan.next().expect("an entry").expect("it is good");
    db.compact().expect("there is room");
    db.wait_for_background().expect("there is room");
    assert_eq!(tables(&fs), 3, "the iterator reads two of them");
    drop(scan);
    wait_for_tables(&fs, 1);
}

/// Otherwise its files fill the disk, and a failed write notifies no worker.
#[test]
fn the_end_of_a_failed_ingestion_notifies_a_worker() {
    let memory = Arc::new(MemoryFs::with_seed(1));
    let fs = Arc::new(FaultFs::new(Arc::clone(&memory) as _));
    let options = options(1).fs(Arc::clone(&fs) as _).keyspace(small());
    let db = options.open("db").expect("a new store");
    db.wait_for_background().expect("there is room");
    let mut ingestion = db.ingestion().expect("it is open");
    let failed = (0..u64::MAX).find_map(|key| {
        if tables(&memory) == 3 {
            fs.inject(Fault::new(28, Times::ForGood).calls(&Call::GROWING).suffix(".sst"));
        }
        ingestion.insert(key.to_be_bytes(), [7; 100]).err()
    });
    assert!(failed.is_some_and(|error| error.is_no_space()));
    drop(ingestion);
    wait_for_tables(&memory, 0);
}

/// Otherwise hundreds of unlinks stop writes, with one worker.
#[test]
fn a_flush_waits_for_few_unlinks() {
    let busy = busy(options(1));
    let (db, store) = (&busy.db, busy.db.store());
    while let Some(job) = store.claim() {
        store.carry_out(&job);
    }
    let files = &store.tables.obsolete_files;
    files.extend((1_000..1_200).map(|id| FileName::Table(id).path(&store.tables.folder)));
    freeze(db, "other", 1);
    let unlink = store.claim().expect("files are obsolete");
    assert!(matches!(unlink, Job::Unlink), "{unlink:?}");
    assert!(store.carry_out(&unlink));
    let left = files.take(usize::MAX);
    assert_eq!(left.len(), 184);
    files.extend(left);
    let flush = store.claim().expect("a memtable is frozen");
    assert!(matches!(flush, Job::Flush(_)), "{flush:?}");
    assert!(store.carry_out(&flush), "there is room");
    assert!(matches!(store.claim(), Some(Job::Unlink)));
}

/// Otherwise an unlink that hangs would block it.
#[test]
fn a_request_waits_for_no_unlink() {
    let busy = busy(options(2));
    let store = busy.db.store();
    let long = claim_long(&busy.db);
    let is_done = || store.scheduler.state.lock().requests.is_empty();
    assert!(!is_done() && store.carry_out(&long), "there is room");
    assert!(is_done());
    assert!(matches!(store.claim(), Some(Job::Unlink)), "its inputs are obsolete");
}

/// Otherwise its flushes would wait for as long.
#[test]
fn a_worker_does_not_wait_for_the_unlinks_of_a_caller() {
    let busy = busy(options(1));
    let (db, store) = (&busy.db, busy.db.store());
    while let Some(job) = store.claim() {
        store.carry_out(&job);
    }
    let unlinking = store.scheduler.begin_unlinks().expect("the store is open");
    store.tables.obsolete_files.push(FileName::Table(1_000).path(&store.tables.folder));
    freeze(db, "other", 1);
    let flush = store.claim().expect("a memtable is frozen");
    assert!(matches!(flush, Job::Flush(_)), "{flush:?}");
    assert!(store.carry_out(&flush), "there is room");
    let rings = store.scheduler.bell.rings();
    drop(unlinking);
    assert!(store.scheduler.bell.rings() > rings, "a file is left");
    let unlink = store.claim().expect("a file is obsolete");
    assert!(matches!(unlink, Job::Unlink), "{unlink:?}");
    let caller = db.clone();
    let caller = thread::spawn(move || drop(caller.store().scheduler.begin_unlinks()));
    freeze(db, "other", 1);
    assert!(matches!(store.claim(), Some(Job::Flush(_))));
    assert!(!caller.is_finished(), "it waits for the worker");
    assert!(store.carry_out(&unlink));
    caller.join().expect("it has ended");
}

/// Another process may own a file of this name.
#[test]
fn a_list_that_cannot_be_created_unlinks_no_file() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let db = options(0).fs(Arc::clone(&fs) as _).open("db").expect("a new store");
    let other = db.keyspace("other").expect("there is room");
    other.insert("key", "value").expect("there is room");
    db.flush().expect("there is room");
    let mut scan = other.iter();
    scan.next().expect("an entry").expect("it is good");
    db.drop_keyspace("other").expect("there is room");
    drop((scan, other));
    let store = db.store();
    let path = FileName::Table(store.tables.next_file_id()).path(&store.tables.folder);
    fs.create(&path).expect("no file has this name");
    store.unlink_last();
    assert_eq!(tables(&fs), 1, "only that of the keyspace is unlinked");
    fs.open(&path).expect("it was not created by the store");
}
