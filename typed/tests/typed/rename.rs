//! Renamed keyspaces keep their schemas.

use std::sync::Arc;

use sievedb_doubles::MemoryFs;
use sievedb_typed::{
    Error, Index, Indexed, SCHEMA_KEYSPACE, Schema, TypedKeyspace, rename_keyspace,
    sievedb::{self, Db},
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
    rename_keyspace(&db, "a", "aside").unwrap();
    assert!(is_refused(&counts(&db, "aside")));
    assert_eq!(texts(&db, "aside").unwrap().get(1).unwrap().as_deref(), Some("one"));
    // The names are swapped: the entries of each are not read as those of the other.
    rename_keyspace(&db, "b", "a").unwrap();
    rename_keyspace(&db, "aside", "b").unwrap();
    assert!(is_refused(&texts(&db, "a")) && is_refused(&counts(&db, "b")));
    assert_eq!(counts(&db, "a").unwrap().get(1).unwrap(), Some(10));
    assert_eq!(texts(&db, "b").unwrap().get(1).unwrap().as_deref(), Some("one"));
    let names: Vec<_> =
        db.open_keyspace(SCHEMA_KEYSPACE).unwrap().iter().keys().map(Result::unwrap).collect();
    assert_eq!(names, ["a", "b"], "no record is left behind");
}

#[test]
fn refused_renames_change_nothing() {
    let (_dir, db) = store();
    texts(&db, "a").unwrap().insert(1, "one".to_owned()).unwrap();
    counts(&db, "b").unwrap().insert(1, 10).unwrap();
    let engine = |result: Result<(), Error>| match result {
        Err(Error::Engine(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = engine(rename_keyspace(&db, "a", "b"));
    assert!(matches!(error, sievedb::Error::KeyspaceExists { .. }), "{error:?}");
    let error = engine(rename_keyspace(&db, "c", "d"));
    assert!(matches!(error, sievedb::Error::NoKeyspace { .. }), "{error:?}");
    for (old, new) in [("a", SCHEMA_KEYSPACE), (SCHEMA_KEYSPACE, "c")] {
        let result = rename_keyspace(&db, old, new);
        assert!(matches!(result, Err(Error::ReservedName { .. })), "{result:?}");
    }
    assert!(is_refused(&counts(&db, "a")) && is_refused(&texts(&db, "b")));
    // An untyped keyspace takes no schema from an earlier one of its new name.
    db.keyspace("untyped").unwrap().insert("key", "value").unwrap();
    db.drop_keyspace("b").unwrap();
    rename_keyspace(&db, "untyped", "b").unwrap();
    let opened = counts(&db, "b");
    assert!(matches!(opened, Err(Error::NoSchema { .. })), "{opened:?}");
}

type ByCount = Index<u64, u32, u64>;

fn indexed(db: &Db, name: &str) -> Result<(Indexed<u32, u64>, ByCount), Error> {
    let mut indexed = Indexed::new(db, counts(db, name)?)?;
    let by_count = indexed.index("by count", 1, |_, count: &u64| [*count])?;
    Ok((indexed, by_count))
}

#[test]
fn rename_after_a_power_cut_is_done_or_can_be_completed() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let (written, by_count) = indexed(&db, "old").unwrap();
    written.insert(1, 10).unwrap();
    db.flush().unwrap();
    drop((written, by_count));
    db.close().unwrap();
    let first = disk.operations();
    let db = open(&disk);
    rename_keyspace(&db, "old", "new").unwrap();
    db.close().unwrap();

    for_each_crash(&disk, first, |disk, state| {
        let db = open(disk);
        let is_renamed = db.keyspace_exists("new");
        assert_ne!(is_renamed, db.keyspace_exists("old"), "{state}");
        let name = if is_renamed { "new" } else { "old" };
        assert!(is_refused(&texts(&db, name)), "{state}");
        assert_eq!(counts(&db, name).unwrap().get(1).unwrap(), Some(10), "{state}");
        match rename_keyspace(&db, "old", "new") {
            Ok(()) => {}
            // It was complete.
            Err(Error::Engine(sievedb::Error::NoKeyspace { .. })) if is_renamed => {}
            Err(error) => panic!("{state}: {error}"),
        }
        let (renamed, by_count) = indexed(&db, "new").unwrap();
        assert_eq!(renamed.keyspace().get(1).unwrap(), Some(10), "{state}");
        assert_eq!(by_count.iter().map(Result::unwrap).next(), Some((10, 1, 10)), "{state}");
    });
}
