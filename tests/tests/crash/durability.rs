//! Durability of the writes of a handle.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sievedb::{Db, Durability, Keyspace, KeyspaceOptions};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

type Call = fn(&Keyspace);

/// Every call that writes one key or range.
const CALLS: [(&str, Call); 14] = [
    ("insert", |handle| handle.insert("a", "1").expect("nothing fails")),
    ("insert_with_ttl", |handle| {
        handle.insert_with_ttl("b", "1", Duration::from_secs(60)).expect("nothing fails");
    }),
    ("insert_without_ttl", |handle| handle.insert_without_ttl("c", "1").expect("nothing fails")),
    ("persist_key", |handle| assert!(handle.persist_key("b").expect("nothing fails"))),
    ("insert_if_absent", |handle| {
        assert!(handle.insert_if_absent("d", "1").expect("nothing fails"));
    }),
    ("compare_and_set", |handle| {
        let changed = handle.compare_and_set("d", Some(b"1"), Some(b"2"));
        changed.expect("nothing fails").expect("it is the value");
    }),
    ("fetch_update", |handle| {
        drop(handle.fetch_update("d", |_| Some("3")).expect("nothing fails"));
    }),
    ("fetch_add", |handle| assert_eq!(handle.fetch_add("e", 1).expect("nothing fails"), 0)),
    ("remove_if", |handle| assert!(handle.remove_if("e", |_| true).expect("nothing fails"))),
    ("take", |handle| assert!(handle.take("d").expect("nothing fails").is_some())),
    ("remove", |handle| handle.remove("b").expect("nothing fails")),
    ("pop_first", |handle| assert!(handle.pop_first().expect("nothing fails").is_some())),
    ("remove_range", |handle| handle.remove_range("a".."d").expect("nothing fails")),
    ("remove_prefix", |handle| handle.remove_prefix("z").expect("nothing fails")),
];

fn entries(db: &Db) -> Vec<(Bytes, Bytes)> {
    db.iter().collect::<sievedb::Result<_>>().expect("nothing fails")
}

fn open(fs: &Arc<MemoryFs>, durability: Durability) -> Db {
    let options = small_options(Arc::clone(fs) as _).durability(durability);
    options.open(STORE_DIR).expect("it opens")
}

/// Returns what a power cut leaves.
fn left(fs: &MemoryFs) -> Vec<(Bytes, Bytes)> {
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    entries(&open(&crashed, Durability::Disk))
}

#[test]
fn writes_of_a_handle_have_its_durability() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Durability::Memory);
    let durable = db.default_keyspace().with_durability(Durability::Disk);
    for (name, call) in CALLS {
        call(&durable);
        assert_eq!(left(&fs), entries(&db), "{name}");
    }
    db.insert("f", "1").expect("nothing fails");
    assert!(!left(&fs).contains(&("f".into(), "1".into())), "the other handle is unchanged");
    // A handle made from it keeps the durability.
    let again = durable.with_read_options(sievedb::ReadOptions::new());
    again.insert("g", "1").expect("nothing fails");
    assert_eq!(left(&fs), entries(&db));
}

#[test]
fn a_handle_may_write_with_less_durability_than_its_store() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Durability::Disk);
    let fast = db.default_keyspace().with_durability(Durability::Memory);
    let before = fs.operations();
    for (_, call) in CALLS {
        call(&fast);
    }
    assert_eq!(fs.operations(), before, "nothing was written to a file");
    assert!(left(&fs).is_empty());
    db.insert("a", "1").expect("nothing fails");
    assert_eq!(left(&fs), entries(&db), "a durable write takes the earlier ones with it");
}

#[test]
fn the_log_that_a_recovery_writes_is_compressed() {
    let fs = Arc::new(MemoryFs::new());
    // No flush takes part of the log.
    let open = |fs: &Arc<MemoryFs>| {
        let options = small_options(Arc::clone(fs) as _).log_bytes_max(1 << 20);
        options.keyspace(KeyspaceOptions::new()).open(STORE_DIR).expect("it opens")
    };
    let db = open(&fs);
    for number in 0..20_u8 {
        let mut batch = db.batch();
        batch.insert(&db, [number, 0], [number; 1000]).expect("it is short");
        batch.insert(&db, [number, 1], [number; 1000]).expect("it is short");
        batch.commit(Durability::Disk).expect("nothing fails");
    }
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    let reopened = open(&crashed);
    assert_eq!(entries(&reopened), entries(&db));
    let rewritten = reopened.stats().log_bytes;
    assert!(rewritten < 10_000, "{rewritten} bytes for 40,000 of values");
}
