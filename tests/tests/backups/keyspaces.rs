//! Restores of some keyspaces.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc};

use sievedb::{Db, Error, RestoreOptions, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace};

use super::{options, set};

/// Restores keyspaces of the newest backup.
fn restored(disk: &Arc<MemoryFs>, names: &[&str], to: &str) -> Db {
    let wanted = RestoreOptions::new().keyspaces(names.iter().copied());
    set(disk).restore_with(&wanted, to).unwrap();
    let db = options(disk).create_if_missing(false).open(to).unwrap();
    assert!(db.verify().unwrap().is_good(), "{to}");
    db
}

fn names_of(db: &Db) -> Vec<String> {
    let mut all = db.keyspaces().unwrap();
    all.sort_unstable();
    all
}

fn tables(disk: &MemoryFs, directory: &str) -> usize {
    let names = disk.list(Path::new(directory)).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

#[test]
fn only_the_wanted_keyspaces_are_restored() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let sized = small_keyspace().memtable_bytes(8 << 10);
    let users = db.keyspace_with("users", &sized).unwrap();
    let links = db.keyspace("links").unwrap();
    for number in 0..40_u32 {
        for keyspace in [&users, &links, db.default_keyspace()] {
            keyspace.insert(number.to_be_bytes(), [1; 300]).unwrap();
        }
    }
    db.flush().unwrap();
    for keyspace in [&users, &links, db.default_keyspace()] {
        keyspace.insert("logged", "1").unwrap();
    }
    set(&disk).create(&db).unwrap();
    let (all, of_users) = (tables(&disk, STORE_DIR), users.iter().count());

    let copy = restored(&disk, &["users"], "data/users");
    assert_eq!(names_of(&copy), ["default", "users"]);
    assert_eq!(copy.iter().count(), 0, "the default keyspace is empty");
    let same = copy.open_keyspace("users").unwrap();
    assert_eq!(same.id(), users.id());
    assert_eq!(same.options(), users.options());
    assert_eq!(same.iter().count(), of_users);
    assert_eq!(same.get("logged").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(tables(&disk, "data/users") < all, "tables of other keyspaces are not copied");
    // Ids of keyspaces that were left out are not used again.
    let new = copy.keyspace("new").unwrap();
    assert!(new.id() > links.id());
    new.insert("key", "").unwrap();
    copy.compact().unwrap();
    drop((copy, same, new));
    let again = options(&disk).create_if_missing(false).open("data/users").unwrap();
    assert_eq!(names_of(&again), ["default", "new", "users"]);
    assert_eq!(again.iter().count(), 0);

    let copy = restored(&disk, &["default"], "data/default");
    assert_eq!(names_of(&copy), ["default"]);
    assert_eq!(copy.iter().count(), db.iter().count());
    let copy = restored(&disk, &["links", "default"], "data/both");
    assert_eq!(names_of(&copy), ["default", "links"]);
    let wanted = RestoreOptions::new().keyspaces(["none"]);
    let refused = set(&disk).restore_with(&wanted, "data/none");
    assert!(matches!(refused, Err(Error::NoKeyspace { .. })), "{refused:?}");
    assert_eq!(disk.list(Path::new("data/none")).unwrap_or_default(), [""; 0]);
}

#[test]
fn keyspaces_that_only_the_log_creates_renames_and_drops_are_restored_by_their_last_names() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let first = db.keyspace("a").unwrap();
    first.insert("key", "first").unwrap();
    db.flush().unwrap();
    db.rename_keyspace("a", "b").unwrap();
    let second = db.keyspace("a").unwrap();
    second.insert("key", "second").unwrap();
    db.keyspace("gone").unwrap().insert("key", "").unwrap();
    db.drop_keyspace("gone").unwrap();
    db.insert("key", "default").unwrap();
    set(&disk).create(&db).unwrap();
    for (number, names) in [&["a"][..], &["b"], &["a", "b"]].into_iter().enumerate() {
        let path = format!("data/restored{number}");
        let copy = restored(&disk, names, &path);
        let mut wanted = names.to_vec();
        wanted.push("default");
        wanted.sort_unstable();
        assert_eq!(names_of(&copy), wanted, "{names:?}");
        for (name, value) in [("a", "second"), ("b", "first")] {
            if names.contains(&name) {
                let found = copy.open_keyspace(name).unwrap().get("key").unwrap();
                assert_eq!(found.as_deref(), Some(value.as_bytes()), "{names:?}");
            }
        }
        assert_eq!(copy.get("key").unwrap(), None);
    }
    let gone = RestoreOptions::new().keyspaces(["gone"]);
    let refused = set(&disk).restore_with(&gone, "data/gone");
    assert!(matches!(refused, Err(Error::NoKeyspace { .. })), "{refused:?}");
}
