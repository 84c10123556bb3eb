//! Stored schemas, and migrations that are interrupted at any value.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use sievedb::Durability;

use super::*;
use crate::{TypedKeyspace, key};

fn store() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    (dir, db)
}

type Names = TypedKeyspace<u32, String>;

fn open(db: &Db, schema: Schema) -> Result<Names> {
    Names::open(db, "names", schema)
}

#[test]
fn schema_is_compared_at_each_open() {
    let (dir, db) = store();
    open(&db, Schema::new("name", 2)).unwrap().insert(7, "anna".to_owned()).unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let mismatch = |name: &str, version| {
        let error = open(&db, Schema::new(name, version)).unwrap_err();
        let Error::SchemaMismatch { keyspace, stored, expected } = error else {
            panic!("{error}");
        };
        assert_eq!((&*keyspace, stored), ("names", ("name".to_owned(), 2)));
        assert_eq!(expected, (name.to_owned(), version));
    };
    mismatch("other", 2);
    mismatch("name", 1);
    mismatch("name", 3);
    assert_eq!(open(&db, Schema::new("name", 2)).unwrap().get(7).unwrap().unwrap(), "anna");
}

#[test]
fn empty_keyspace_accepts_any_schema() {
    let (_dir, db) = store();
    let names = open(&db, Schema::new("name", 2)).unwrap();
    names.insert(7, "anna".to_owned()).unwrap();
    db.drop_keyspace("names").unwrap();
    open(&db, Schema::new("other", 1)).unwrap();
    let error = open(&db, Schema::new("name", 2)).map(|names| names.insert(7, "a".to_owned()));
    error.unwrap().unwrap();
    assert!(open(&db, Schema::new("other", 1)).is_err());
}

#[test]
fn untyped_entries_are_adopted_on_request() {
    let (_dir, db) = store();
    let untyped = db.keyspace("names").unwrap();
    untyped.insert(key::to_bytes::<u32>(&7), [1, b'a']).unwrap();
    let error = open(&db, Schema::new("name", 1)).unwrap_err();
    assert!(matches!(error, Error::NoSchema { .. }), "{error}");
    open(&db, Schema::new("name", 1).adopt_untyped()).unwrap();
    assert_eq!(open(&db, Schema::new("name", 1)).unwrap().get(7).unwrap().unwrap(), "a");

    untyped.insert("odd", [1, b'a']).unwrap();
    untyped.insert(key::to_bytes::<u32>(&8), [9]).unwrap();
    let names = open(&db, Schema::new("name", 1)).unwrap();
    let found: Vec<_> = names.iter().collect();
    assert_eq!(found.len(), 3, "continues after errors");
    assert!(matches!(&found[1], Err(Error::Value { key, .. }) if key[..] == [0, 0, 0, 8]));
    assert!(matches!(&found[2], Err(Error::Key { key, .. }) if key == "odd"));
    assert!(matches!(names.get(8), Err(Error::Value { .. })));
}

#[test]
fn unknown_records_and_reserved_names_are_errors() {
    let (_dir, db) = store();
    open(&db, Schema::new("name", 1)).unwrap().insert(7, "anna".to_owned()).unwrap();
    let records = db.keyspace(SCHEMA_KEYSPACE).unwrap();
    let key = record::key_of(db.keyspace("names").unwrap().id());
    let good = records.get(&key).unwrap().unwrap();
    for bytes in [&[][..], &[9], &good[..good.len() - 1], &[&good[..], &[0]].concat()] {
        records.insert(&key, bytes).unwrap();
        let error = open(&db, Schema::new("name", 1)).unwrap_err();
        assert!(matches!(error, Error::SchemaRecord { .. }), "{error}");
    }
    let error = Names::open(&db, SCHEMA_KEYSPACE, Schema::new("name", 1)).unwrap_err();
    assert!(matches!(error, Error::ReservedName { .. }), "{error}");
}

#[test]
fn reserved_name_creates_no_keyspace() {
    let (_dir, db) = store();
    let error = Names::open(&db, SCHEMA_KEYSPACE, Schema::new("name", 1)).unwrap_err();
    assert!(matches!(error, Error::ReservedName { .. }), "{error}");
    let options = sievedb::KeyspaceOptions::new();
    let opened = Names::open_with(&db, SCHEMA_KEYSPACE, &options, Schema::new("name", 1));
    assert!(matches!(opened, Err(Error::ReservedName { .. })), "{opened:?}");
    assert!(!db.keyspace_exists(SCHEMA_KEYSPACE).unwrap());
}

#[test]
fn records_are_pinned() {
    let (_dir, db) = store();
    let mut record = SchemaRecord { name: "a".into(), version: 2, migrated_to: None };
    let keyspace = db.keyspace("x").unwrap();
    let id = keyspace.id();
    let key = [&id.store.to_be_bytes()[..], &id.number.to_be_bytes()].concat();
    let stored = || db.keyspace(SCHEMA_KEYSPACE).unwrap().get(&key).unwrap().unwrap();
    record.write(&db, &keyspace).unwrap();
    assert_eq!(stored(), &b"\x03x\0\0a\0\0\0\0\0\x02\0"[..]);
    record.migrated_to = Some(b"k".to_vec());
    record.write(&db, &keyspace).unwrap();
    assert_eq!(stored(), &b"\x03x\0\0a\0\0\0\0\0\x02\x01k"[..]);
    assert_eq!(SchemaRecord::read(&db, &keyspace).unwrap(), Some(record));
    let index = record::IndexRecord {
        data_number: 2,
        data: "b".into(),
        data_version: 3,
        version: 4,
        is_complete: true,
    };
    index.write(&db, &keyspace).unwrap();
    let contents = b"\0\0\0\0\0\0\0\x02b\0\0\0\0\0\x03\0\0\0\x04\x01";
    assert_eq!(stored(), [&b"\x04x\0\0"[..], contents].concat());
    assert_eq!(record::IndexRecord::read(&db, &keyspace).unwrap(), Some(index));
}

#[test]
fn read_only_store_checks_the_schema() {
    let (dir, db) = store();
    open(&db, Schema::new("name", 1)).unwrap().insert(7, "anna".to_owned()).unwrap();
    db.close().unwrap();
    let db = sievedb::Options::new().read_only(true).open(dir.path()).unwrap();
    assert_eq!(open(&db, Schema::new("name", 1)).unwrap().get(7).unwrap().unwrap(), "anna");
    assert!(matches!(open(&db, Schema::new("a", 1)), Err(Error::SchemaMismatch { .. })));
    let schema = Schema::new("name", 2).migrate(1, |name: String| name);
    assert!(matches!(open(&db, schema), Err(Error::Engine(_))));
}

/// Appends a mark to each value. A value with one mark twice was rewritten twice. Fails from call
/// `fails_at` on.
fn marking(
    mark: char,
    fails_at: usize,
) -> impl Fn(&[u8], Bytes) -> Result<Option<Vec<u8>>, CodecError> {
    let calls = AtomicUsize::new(0);
    move |key, value| {
        if calls.fetch_add(1, Relaxed) >= fails_at {
            return Err("interrupted".into());
        }
        if key == key::to_bytes::<u32>(&3) {
            return Ok(None);
        }
        let mut text: String = Postcard::decode(value)?;
        text.push(mark);
        let mut bytes = Vec::new();
        Postcard::encode(&text, &mut bytes)?;
        Ok(Some(bytes))
    }
}

#[test]
fn interrupted_migration_rewrites_each_value_once() {
    // Large values, so that a migration has many batches.
    let long = "x".repeat(100_000);
    let want: BTreeMap<_, _> =
        (0..10).filter(|id| *id != 3).map(|id| (id, format!("{long}ab"))).collect();
    for fails_at in [0, 1, 4, 9, 99] {
        let (dir, mut db) = store();
        let names = open(&db, Schema::new("name", 1)).unwrap();
        for id in 0..10 {
            names.insert(id, &long).unwrap();
        }
        drop(names);
        let mut interrupted = 0;
        for step in 0..2 {
            let schema = |a, b| {
                let schema = Schema::new("name", 3);
                schema.migrate_bytes(1, marking('a', a)).migrate_bytes(2, marking('b', b))
            };
            let (a, b) = if step == 0 { (fails_at, usize::MAX) } else { (usize::MAX, fails_at) };
            if let Err(error) = open(&db, schema(a, b)) {
                assert!(matches!(error, Error::Migration { .. }), "{error}");
                interrupted += 1;
                // An open with a version in between fails.
                assert!(open(&db, Schema::new("name", 4)).is_err());
            }
            db.close().unwrap();
            db = Db::open(dir.path()).unwrap();
        }
        let names = open(
            &db,
            Schema::new("name", 3)
                .migrate_bytes(1, marking('a', usize::MAX))
                .migrate_bytes(2, marking('b', usize::MAX)),
        )
        .unwrap();
        let found: BTreeMap<_, _> = names.iter().map(|entry| entry.unwrap()).collect();
        assert!(found == want, "failed at {fails_at}");
        assert!(interrupted > 0 || fails_at >= 10, "failed at {fails_at}");
    }
}

#[test]
fn unfinished_migration_is_not_opened_with_the_old_version() {
    let (_dir, db) = store();
    let names = open(&db, Schema::new("name", 1)).unwrap();
    for id in 0..4 {
        names.insert(id, "a".to_owned()).unwrap();
    }
    let schema = Schema::new("name", 2).migrate_bytes(1, marking('b', 2));
    assert!(
        matches!(open(&db, schema), Err(Error::Migration { from: 1, key, .. }) if key[..] == [0, 0, 0, 2])
    );
    let error = open(&db, Schema::new("name", 1)).unwrap_err();
    assert!(matches!(error, Error::MigrationUnfinished { from: 1, .. }), "{error}");
    // A step is missing: nothing is changed.
    let error = open(&db, Schema::new("name", 3).migrate(1, |name: String| name)).unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch { .. }), "{error}");
    let names = open(&db, Schema::new("name", 2).migrate_bytes(1, marking('b', 9))).unwrap();
    let found: Vec<_> = names.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(found, [0, 1, 2].map(|id| (id, "ab".to_owned())));
    db.persist(Durability::Disk).unwrap();
}
