//! Clears, on one thread.

use std::{path::Path, sync::Arc, time::Duration};

use sievedb::{Durability, Error, Keyspace, Options, Result, TimeToLive};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::ends::new_store;

fn keys(keyspace: &Keyspace) -> Vec<String> {
    let keys = keyspace.iter().keys().collect::<Result<Vec<_>>>().expect("readable");
    keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

/// Returns the number of table files on `fs`.
fn tables(fs: &MemoryFs) -> usize {
    let names = fs.contents().into_keys();
    names.filter(|path| Path::new(&**path).extension().is_some_and(|it| it == "sst")).count()
}

#[test]
fn snapshots_and_ranges_keep_what_they_see() {
    let db = new_store();
    let users = db.keyspace("users").unwrap();
    let empty = db.snapshot();
    for key in ["in a table", "removed"] {
        users.insert(key, "old").unwrap();
    }
    users.flush().unwrap();
    users.insert("in a memtable", "old").unwrap();
    users.remove("removed").unwrap();
    let (first, mut range) = (db.snapshot(), users.iter().keys());
    users.clear().unwrap();
    assert!(users.is_empty().unwrap());
    assert_eq!(users.get("in a table").unwrap(), None);
    assert!(!users.may_contain("in a table"), "nothing is left that could match");
    assert!(users.insert_if_absent("in a table", "new").unwrap());
    let second = db.snapshot();
    users.clear().unwrap();
    users.insert("third", "").unwrap();
    for _ in 0..2 {
        let of = |snapshot: &sievedb::Snapshot| snapshot.keyspace(&users).unwrap();
        assert_eq!(of(&empty).len().unwrap(), 0);
        let first = of(&first);
        assert_eq!(first.len().unwrap(), 2);
        let both = first.get_many(["in a memtable", "removed", "in a table", "third"]).unwrap();
        assert_eq!(both, [Some("old".into()), None, Some("old".into()), None]);
        assert_eq!(first.get("in a table").unwrap().as_deref(), Some(&b"old"[..]));
        assert!(first.may_contain("in a table") && first.contains_key("in a memtable").unwrap());
        assert_eq!(first.explain("in a table").unwrap().tables.len(), 1);
        assert_eq!(of(&second).get("in a table").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(of(&second).len().unwrap(), 1);
        assert_eq!(keys(&users), ["third"]);
        db.flush().unwrap();
        db.compact().unwrap();
    }
    assert_eq!(range.next().unwrap().unwrap(), "in a memtable");
    assert_eq!(range.next().unwrap().unwrap(), "in a table");
    range.refresh().unwrap();
    assert_eq!(range.next().unwrap().unwrap(), "third");
}

/// Tables are unlinked when their last reader is gone.
#[test]
fn tables_are_unlinked_after_their_last_reader() {
    let fs = Arc::new(MemoryFs::new());
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    for number in 0..200_u32 {
        db.insert(number.to_be_bytes(), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    assert!(tables(&fs) > 0);
    let (snapshot, range) = (db.snapshot(), db.iter());
    db.default_keyspace().clear().unwrap();
    db.wait_for_background().unwrap();
    assert!(tables(&fs) > 0, "two readers need them");
    assert_eq!(range.count(), 200);
    db.wait_for_background().unwrap();
    assert_eq!(snapshot.len().unwrap(), 200);
    drop(snapshot);
    db.wait_for_background().unwrap();
    assert_eq!(tables(&fs), 0);
    assert!(db.is_empty().unwrap());
    db.insert("a", "").unwrap();
    assert_eq!(db.stats().keyspaces[0].tables, 0);
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn a_cleared_keyspace_is_empty_after_a_crash_and_read_only() {
    let fs = Arc::new(MemoryFs::new());
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("flushed", "").unwrap();
    users.flush().unwrap();
    let mut batch = db.batch();
    batch.insert(&users, "logged", "").unwrap();
    batch.insert(&db, "logged", "").unwrap();
    batch.commit(Durability::Disk).unwrap();
    users.clear().unwrap();
    users.insert("later", "").unwrap();
    db.persist(Durability::Disk).unwrap();
    let crashed = Arc::new(fs.crash(fs.operations(), &sievedb_doubles::Loss::Everything));
    for read_only in [true, false, false] {
        let db = small_options(crashed.clone()).read_only(read_only).open(STORE_DIR).unwrap();
        assert_eq!(keys(&db.open_keyspace("users").unwrap()), ["later"]);
        assert_eq!(keys(db.default_keyspace()), ["logged"]);
        assert!(Options::new().fs(crashed.clone()).open(STORE_DIR).is_err(), "it is locked");
    }
}

#[test]
fn a_clear_is_refused_where_a_write_is() {
    let fs = Arc::new(MemoryFs::new());
    let open = |read_only| small_options(fs.clone()).read_only(read_only).open(STORE_DIR).unwrap();
    let db = open(false);
    let gone = db.keyspace("gone").unwrap();
    db.insert("a", "").unwrap();
    db.drop_keyspace("gone").unwrap();
    assert!(matches!(gone.clear(), Err(Error::KeyspaceDropped { .. })));
    drop((gone, db));
    let db = open(true);
    assert!(matches!(db.default_keyspace().clear(), Err(Error::ReadOnly { .. })));
    assert_eq!(db.len().unwrap(), 1);
}

#[test]
fn a_snapshot_keeps_the_time_to_live_of_what_was_cleared() {
    let db = new_store();
    let users = db.keyspace("users").unwrap();
    users.insert("stays", "").unwrap();
    users.insert_with_ttl("expires", "", Duration::from_secs(9)).unwrap();
    let before = db.snapshot().keyspace(&users).unwrap();
    users.clear().unwrap();
    users.insert_with_ttl("stays", "", Duration::from_secs(3)).unwrap();
    assert_eq!(before.ttl("stays").unwrap(), Some(TimeToLive::Unlimited));
    let left = before.ttl("expires").unwrap();
    assert!(matches!(left, Some(TimeToLive::Remaining(_))), "{left:?}");
    assert_eq!(users.ttl("expires").unwrap(), None);
}
