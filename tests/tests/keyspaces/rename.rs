//! Renames of keyspaces.

use std::sync::Arc;

use sievedb::Error;
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::ends::new_store;

#[test]
fn handles_snapshots_and_ranges_remain_valid() {
    let db = new_store();
    let users = db.keyspace("users").unwrap();
    users.insert("a", "1").unwrap();
    let (other, snapshot, range) = (users.clone(), db.snapshot(), users.iter());
    let mut batch = db.batch();
    batch.insert(&users, "b", "2").unwrap();
    db.rename_keyspace("users", "people").unwrap();
    batch.commit(sievedb::Durability::Disk).unwrap();
    assert_eq!((users.name(), other.name()), ("people".to_owned(), "people".to_owned()));
    assert_eq!(db.keyspaces().unwrap(), ["default", "people"]);
    assert!(!db.keyspace_exists("users").unwrap() && db.keyspace_exists("people").unwrap());
    assert_eq!(snapshot.keyspace(&users).unwrap().len().unwrap(), 1);
    assert_eq!(range.count(), 1);
    assert_eq!(db.open_keyspace("people").unwrap().len().unwrap(), 2);
    assert_eq!(
        db.stats().keyspaces.iter().map(|it| &*it.name).collect::<Vec<_>>(),
        ["default", "people"]
    );
    let again = db.keyspace("users").unwrap();
    assert!(again.is_empty().unwrap(), "a new keyspace has the old name");
    assert!(db.drop_keyspace("people").unwrap());
    let dropped = users.get("a").unwrap_err();
    assert!(matches!(&dropped, Error::KeyspaceDropped { name } if name == "people"), "{dropped}");
    db.rename_keyspace("users", "people").unwrap();
    assert_eq!(again.name(), "people");
}

#[test]
fn each_mistake_has_its_error_and_changes_nothing() {
    let db = new_store();
    db.keyspace("users").unwrap();
    let refused = |old: &str, new: &str| db.rename_keyspace(old, new).unwrap_err();
    let long = "x".repeat(256);
    assert!(matches!(refused("none", "new"), Error::NoKeyspace { name } if name == "none"));
    assert!(matches!(refused("users", "users"), Error::KeyspaceExists { name } if name == "users"));
    assert!(matches!(refused("users", "default"), Error::KeyspaceExists { .. }));
    assert!(matches!(refused("default", "new"), Error::RequiredKeyspace { .. }));
    assert!(matches!(refused("users", ""), Error::InvalidKeyspaceName { .. }));
    assert!(matches!(refused("users", &long), Error::InvalidKeyspaceName { .. }));
    assert_eq!(db.keyspaces().unwrap(), ["default", "users"]);
}

#[test]
fn a_new_name_survives_a_crash_a_close_and_a_read_only_open() {
    let fs = Arc::new(MemoryFs::new());
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let keyspace = db.keyspace(name).unwrap();
        keyspace.insert("key", number.to_string()).unwrap();
    }
    // The two names change places.
    db.rename_keyspace("a", "c").unwrap();
    db.rename_keyspace("b", "a").unwrap();
    db.rename_keyspace("c", "b").unwrap();
    db.persist(sievedb::Durability::Disk).unwrap();
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    for read_only in [true, false, false, true] {
        let db = small_options(crashed.clone()).read_only(read_only).open(STORE_DIR).unwrap();
        assert_eq!(db.keyspaces().unwrap(), ["a", "b", "default"]);
        let value = |name| db.open_keyspace(name).unwrap().get("key").unwrap().unwrap();
        assert_eq!((value("a"), value("b")), ("1".into(), "0".into()));
        if !read_only {
            db.flush().unwrap();
        }
    }
    let db = small_options(crashed).read_only(true).open(STORE_DIR).unwrap();
    let refused = db.rename_keyspace("a", "z").unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
}
