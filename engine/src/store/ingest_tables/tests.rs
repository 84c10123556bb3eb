//! Batches of an ingest, their memory, and the threads that write them.

use crate::{Compression, KeyspaceOptions, Options, fs::MemoryFs};

use super::*;

#[test]
fn an_ingestion_dropped_in_a_forked_child_leaves_its_tables() {
    let fs = Arc::new(MemoryFs::new());
    let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
    let db = options.open("db").expect("a new store");
    let mut ingestion = db.ingestion().expect("the store is open");
    ingestion.insert("key", "value").expect("there is room");
    let store = db.store();
    store.gate.set_forked(true);
    drop(ingestion);
    store.gate.set_forked(false);
    store.unlink_last();
    assert!(fs.contents().keys().any(|name| name.ends_with(".sst")), "the parent writes it");
}

#[test]
fn batches_in_a_forked_child_keep_their_memory() {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.open("db").expect("a new store");
    let mut tables =
        db.store().begin_ingest(db.default_keyspace().tree()).expect("the store is open");
    tables.threads.set(2, 2);
    db.store().add_ingested(&mut tables, b"key", b"value").expect("there is room");
    let share = Arc::clone(tables.batch.as_ref().expect("one entry").taken.share());
    tables.forget_files();
    drop(tables);
    assert!(share.bytes() > 0, "a release waits for locks");
}

/// Otherwise compactions of long entries would wait for the caller.
#[test]
fn a_batch_stays_within_its_share_when_the_limit_grows() {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(2);
    let db = options.memory_budget(16 << 20).open("db").expect("a new store");
    let tree = db.store().versions.trees().get("default").cloned().expect("it is always there");
    let mut tables = db.store().begin_ingest(&tree).expect("it is open");
    tables.threads.set(2, 2);
    let mut is_beyond = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let added = db.store().add_ingested(&mut tables, &number.to_be_bytes(), &[7; 1000]);
            added.expect("there is room");
            if tables.batch.as_ref().is_some_and(|batch| batch.taken.share().is_beyond()) {
                return true;
            }
        }
        false
    };
    assert!(!is_beyond(0..1));
    db.set_memory_budget(256_u64 << 20).expect("a valid budget");
    assert!(!is_beyond(1..10_000));
    db.store().discard_ingested(&mut tables);
}

/// Begins an ingest with batches of 512 KiB into an open store.
fn begin(options: KeyspaceOptions) -> (crate::Db, IngestTables) {
    let store = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(2);
    let db = store.memory_budget(16 << 20).keyspace(options).open("db").expect("a new store");
    let tree = Arc::clone(db.default_keyspace().tree());
    let tables = db.store().begin_ingest(&tree).expect("it is open");
    (db, tables)
}

fn add(db: &crate::Db, tables: &mut IngestTables, number: u64, bytes: usize) {
    let added = db.store().add_ingested(tables, &number.to_be_bytes(), &vec![7; bytes]);
    added.expect("there is room");
}

#[test]
fn fewer_threads_write_the_batches_of_more() {
    let (db, mut tables) = begin(KeyspaceOptions::new());
    tables.threads.set(8, 8);
    let mut numbers = 0..20_000;
    while tables.full.len() < 5 {
        add(&db, &mut tables, numbers.next().expect("batches are short"), 1000);
    }
    tables.threads.set(2, 8);
    for number in numbers.by_ref().take(3000) {
        add(&db, &mut tables, number, 1000);
        assert!(tables.full.len() <= 5, "{} batches", tables.full.len());
    }
    db.store().discard_ingested(&mut tables);
}

#[test]
fn threads_continue_after_the_table_of_a_long_entry() {
    let options = KeyspaceOptions::new().table_bytes(1 << 20).compression(Compression::None);
    let (db, mut tables) = begin(options);
    tables.threads.set(2, 2);
    add(&db, &mut tables, 0, 100 << 10);
    assert!(tables.direct.open.is_some(), "it is long");
    let mut numbers = 1..4000;
    while tables.batch.is_none() {
        add(&db, &mut tables, numbers.next().expect("the table is full before"), 1000);
    }
    assert!(numbers.start > 500, "a table of {} entries is short", numbers.start);
    assert!(tables.direct.open.is_none(), "its entries precede those of the batch");
    db.store().discard_ingested(&mut tables);
}
