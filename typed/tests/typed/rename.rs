//! Renamed keyspaces, and those of a repaired store, keep their schemas.

use std::sync::Arc;

use sievedb_doubles::MemoryFs;
use sievedb_typed::{
    Error, Index, IndexChanges, Indexed, Schema, TypedKeyspace,
    sievedb::{Db, OlderValues, Options},
};

use crate::{
    crash::{for_each_crash, open},
    store,
};

type Texts = TypedKeyspace<u32, String>;
type Counts = TypedKeyspace<u32, u64>;

fn texts(db: &Db, name: &str) -> Result<Texts, Error> {
    Texts::open(db, name, Schema::new("text", 1))
}

fn counts(db: &Db, name: &str) -> Result<Counts, Error> {
    Counts::open(db, name, Schema::new("count", 1))
}

fn is_refused<T>(opened: &Result<T, Error>) -> bool {
    matches!(opened, Err(Error::SchemaMismatch { .. }))
}

#[test]
fn schema_follows_its_keyspace() {
    let (_dir, db) = store();
    texts(&db, "a").unwrap().insert(1, "one".to_owned()).unwrap();
    counts(&db, "b").unwrap().insert(1, 10).unwrap();
    db.rename_keyspace("a", "aside").unwrap();
    assert!(is_refused(&counts(&db, "aside")));
    assert_eq!(texts(&db, "aside").unwrap().get(1).unwrap().as_deref(), Some("one"));
    // The names are swapped. A keyspace does not read entries of the other one.
    db.rename_keyspace("b", "a").unwrap();
    db.rename_keyspace("aside", "b").unwrap();
    assert!(is_refused(&texts(&db, "a")) && is_refused(&counts(&db, "b")));
    assert_eq!(counts(&db, "a").unwrap().get(1).unwrap(), Some(10));
    assert_eq!(texts(&db, "b").unwrap().get(1).unwrap().as_deref(), Some("one"));
}

#[test]
fn schema_does_not_pass_to_another_keyspace_of_its_name() {
    let (_dir, db) = store();
    counts(&db, "b").unwrap().insert(1, 10).unwrap();
    db.keyspace("untyped").unwrap().insert("key", "value").unwrap();
    db.drop_keyspace("b").unwrap();
    db.rename_keyspace("untyped", "b").unwrap();
    let opened = counts(&db, "b");
    assert!(matches!(opened, Err(Error::NoSchema { .. })), "{opened:?}");
}

#[test]
fn schema_of_a_dropped_keyspace_is_not_used_after_a_repair() {
    let (dir, db) = store();
    texts(&db, "users").unwrap().insert(1, "one".to_owned()).unwrap();
    db.drop_keyspace("users").unwrap();
    let opened = |db: &Db| Texts::open(db, "users", Schema::new("text", 2));
    opened(&db).unwrap().insert(1, "two".to_owned()).unwrap();
    db.close().unwrap();
    let new = tempfile::tempdir().unwrap();
    Options::new().repair(dir.path(), new.path(), OlderValues::LeaveOut).unwrap();
    let db = Db::open(new.path()).unwrap();
    assert_eq!(opened(&db).unwrap().get(1).unwrap().as_deref(), Some("two"));
}

#[test]
fn schema_of_a_renamed_keyspace_is_not_used_after_a_repair() {
    let (dir, db) = store();
    let former = Texts::open(&db, "users", Schema::new("text", 2)).unwrap();
    former.insert(1, "two".to_owned()).unwrap();
    db.rename_keyspace("users", "former").unwrap();
    texts(&db, "users").unwrap().insert(1, "one".to_owned()).unwrap();
    drop(former);
    db.close().unwrap();
    let new = tempfile::tempdir().unwrap();
    Options::new().repair(dir.path(), new.path(), OlderValues::LeaveOut).unwrap();
    let db = Db::open(new.path()).unwrap();
    assert_eq!(texts(&db, "users").unwrap().get(1).unwrap().as_deref(), Some("one"));
}

type ByCount = Index<u64, u32, u64>;

fn indexed(db: &Db, name: &str) -> Result<(Indexed<u32, u64>, ByCount), Error> {
    let mut indexed = Indexed::new(db, counts(db, name)?)?;
    let by_count = indexed.index("by count", 1, |_, count: &u64| [*count])?;
    Ok((indexed, by_count))
}

#[test]
fn schema_and_index_follow_a_rename_after_a_power_cut() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let (written, by_count) = indexed(&db, "old").unwrap();
    written.insert(1, 10).unwrap();
    db.flush().unwrap();
    drop((written, by_count));
    db.close().unwrap();
    let first = disk.operations();
    let db = open(&disk);
    db.rename_keyspace("old", "new").unwrap();
    db.close().unwrap();

    for_each_crash(&disk, first, |disk, state| {
        let db = open(disk);
        let is_renamed = db.keyspace_exists("new").unwrap();
        assert_ne!(is_renamed, db.keyspace_exists("old").unwrap(), "{state}");
        let name = if is_renamed { "new" } else { "old" };
        assert!(is_refused(&texts(&db, name)), "{state}");
        assert_eq!(counts(&db, name).unwrap().get(1).unwrap(), Some(10), "{state}");
        let (renamed, by_count) = indexed(&db, name).unwrap();
        assert_eq!(renamed.keyspace().get(1).unwrap(), Some(10), "{state}");
        assert_eq!(by_count.iter().map(Result::unwrap).next(), Some((10, 1, 10)), "{state}");
    });
}

#[test]
fn renamed_data_keeps_its_index() {
    let (dir, db) = store();
    indexed(&db, "old").unwrap().0.insert(1, 10).unwrap();
    db.rename_keyspace("old", "new").unwrap();
    db.rename_keyspace("by count", "by count.old").unwrap();
    db.rename_keyspace("by count.old", "by count").unwrap();
    // The index is not rebuilt: an entry written without it remains absent.
    counts(&db, "new").unwrap().insert(2, 20).unwrap();
    let (written, by_count) = indexed(&db, "new").unwrap();
    assert_eq!(by_count.keys().count(), 1);
    drop((written, by_count));
    db.close().unwrap();
    // Another keyspace of the old name does not get the index.
    let db = Db::open(dir.path()).unwrap();
    let refused = indexed(&db, "old").map(drop);
    assert!(is_refused(&refused), "{refused:?}");
    let db_is_read_only = || Options::new().read_only(true).open(dir.path()).unwrap();
    db.rename_keyspace("new", "newer").unwrap();
    db.close().unwrap();
    let (_, by_count) = indexed(&db_is_read_only(), "newer").unwrap();
    assert_eq!(by_count.keys().count(), 1);
}

#[test]
fn repaired_store_keeps_schemas_and_builds_indexes_again() {
    let (dir, db) = store();
    texts(&db, "texts").unwrap().insert(1, "one".to_owned()).unwrap();
    indexed(&db, "counts").unwrap().0.insert(1, 10).unwrap();
    // Bypasses the index: a repair may lose entries of one keyspace only.
    counts(&db, "counts").unwrap().insert(2, 20).unwrap();
    db.close().unwrap();
    let mut from = dir.path().to_owned();
    // A second repair, of the repaired store.
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for to in &dirs {
        Options::new().repair(&from, to.path(), OlderValues::LeaveOut).unwrap();
        let db = Db::open(to.path()).unwrap();
        assert!(is_refused(&counts(&db, "texts")) && is_refused(&texts(&db, "counts")));
        assert_eq!(texts(&db, "texts").unwrap().get(1).unwrap().as_deref(), Some("one"));
        let refused = indexed(&db, "other").map(drop);
        assert!(is_refused(&refused), "{refused:?}");
        let (written, by_count) = indexed(&db, "counts").unwrap();
        assert_eq!(by_count.keys().map(Result::unwrap).collect::<Vec<_>>(), [(10, 1), (20, 2)]);
        assert_eq!(written.rebuild().unwrap(), IndexChanges::default());
        drop((written, by_count));
        db.close().unwrap();
        to.path().clone_into(&mut from);
    }
}
