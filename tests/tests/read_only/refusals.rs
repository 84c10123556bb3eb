//! Writes are refused, and so is a directory without a store.

use std::{error::Error as _, sync::Arc};

use sievedb::{Batch, Db, Durability, Error, FilterPolicy, Result, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{check_entries, is_refused, killed, reading};

#[test]
fn writes_are_refused() {
    let disk = Arc::new(killed());
    let db = reading(disk.clone()).open(STORE_DIR).unwrap();
    let batch = |fill: fn(&mut Batch, &Db) -> Result<()>| {
        let mut batch = db.batch();
        fill(&mut batch, &db).and_then(|()| batch.commit(Durability::Memory).map(drop))
    };
    let cases = [
        ("insert", db.insert("a", "1")),
        ("remove", db.remove("a")),
        ("insert_if_absent", db.insert_if_absent("a", "1").map(drop)),
        ("a batch", batch(|batch, db| batch.insert(db, "a", "1"))),
        ("persist", db.persist(Durability::Disk)),
        ("flush", db.flush()),
        ("flush of a keyspace", db.keyspace("users").unwrap().flush()),
        ("compact", db.compact()),
        ("compact of a keyspace", db.keyspace("users").unwrap().compact()),
        ("a new keyspace", db.keyspace("new").map(drop)),
        (
            "a new keyspace with options",
            db.keyspace_with("new", &db.default_keyspace().options()).map(drop),
        ),
        ("a keyspace to drop", db.drop_keyspace("users").map(drop)),
        ("options", db.default_keyspace().set_options(db.default_keyspace().options())),
        ("a filter policy", db.default_keyspace().set_filter_policy(FilterPolicy::default())),
        ("a prefix extractor", db.default_keyspace().set_prefix_extractor(None)),
    ];
    for (name, outcome) in cases {
        assert!(is_refused(&outcome), "{name}: {outcome:?}");
    }
    assert!(!db.insert_if_absent(8_u32.to_be_bytes(), "").unwrap(), "nothing is to be written");
    assert!(!db.drop_keyspace("never there").unwrap());
    check_entries(&db);
    assert_eq!(disk.journal(), []);

    let error = db.insert("a", "1").unwrap_err();
    assert_eq!(error.to_string(), "the store is open read-only");
    let cause = error.source().expect("it has a cause").to_string();
    assert!(cause.contains(STORE_DIR) && cause.contains("Options::read_only"), "{cause}");
    assert!(db.stats().read_only.is_none());
}

/// No file is created, whatever the other options are.
#[test]
fn missing_store_is_an_error() {
    let cases: [(&str, Option<&[&str]>); 4] = [
        ("a missing directory", None),
        ("an empty directory", Some(&[])),
        ("files of others", Some(&["letter"])),
        ("a creation that was broken off", Some(&["LOCK", "MANIFEST-000001"])),
    ];
    for (name, files) in cases {
        let disk = Arc::new(MemoryFs::new());
        if let Some(files) = files {
            disk.create_dir(STORE_DIR.as_ref()).unwrap();
            for file in files {
                disk.create(format!("{STORE_DIR}/{file}").as_ref()).unwrap();
            }
        }
        let operations = disk.operations();
        for create in [false, true] {
            match reading(disk.clone()).create_if_missing(create).open(STORE_DIR) {
                Err(Error::NoStore { path }) => {
                    assert!(path.ends_with(STORE_DIR), "{name}: {path:?}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(disk.operations(), operations, "{name}");
    }
}

/// The first open of a store creates the default keyspace last: without it the store is empty.
#[test]
fn store_created_without_a_keyspace_is_empty() {
    let disk = Arc::new(MemoryFs::new());
    drop(small_options(disk.clone()).open(STORE_DIR).unwrap());
    let mut found = 0;
    for at in 0..disk.operations() {
        let disk = Arc::new(disk.crash(at, &Loss::Nothing));
        let Ok(db) = reading(disk.clone()).open(STORE_DIR) else { continue };
        found += 1;
        assert_eq!(
            (db.keyspaces().unwrap(), db.iter().count()),
            (vec!["default".to_owned()], 0),
            "{at}"
        );
        assert!(is_refused(&db.insert("a", "1")));
        assert!(db.verify().unwrap().is_good());
        assert_eq!(disk.journal(), []);
    }
    assert!(found > 1, "some of these have a manifest");
}
