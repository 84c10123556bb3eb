//! Builds and rebuilds of indexes, and the names of their keyspaces.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use sievedb_typed::{
    Error, Index, IndexChanges, Indexed, Schema, TypedKeyspace,
    sievedb::{Db, Snapshot},
};

use crate::store;

type Counts = Indexed<u32, u64>;
type ByCount = Index<u64, u32, u64>;

fn data(db: &Db, name: &str) -> TypedKeyspace<u32, u64> {
    TypedKeyspace::open(db, name, Schema::new("count", 1)).unwrap()
}

fn index(counts: &mut Counts, name: &str, version: u32) -> Result<ByCount, Error> {
    counts.index(name, version, |_, count: &u64| [*count])
}

#[test]
fn snapshot_without_the_complete_index_is_refused() {
    let (_dir, db) = store();
    let counts = data(&db, "counts");
    for id in 0..3 {
        counts.insert(id, 7).unwrap();
    }
    let before = db.snapshot();
    let mut counts = Indexed::new(&db, counts).unwrap();
    let during = Arc::new(Mutex::new(Vec::<Snapshot>::new()));
    let (taken, store) = (Arc::clone(&during), db.clone());
    let by_count = counts
        .index("by count", 1, move |_, count: &u64| {
            taken.lock().unwrap().push(store.snapshot());
            [*count]
        })
        .unwrap();
    for snapshot in during.lock().unwrap().iter().chain([&before]) {
        assert_eq!(counts.keyspace().at(snapshot).unwrap().iter().count(), 3);
        let error = by_count.at(snapshot).unwrap_err();
        assert!(error.to_string().contains("no complete index"), "{error}");
    }
    let first = db.snapshot();
    assert_eq!(by_count.at(&first).unwrap().get(7).count(), 3);
    // The index of another version has other keys.
    let second_of = |_: &u32, count: &u64| [format!("{count}")];
    let by_text = Indexed::new(&db, data(&db, "counts"))
        .and_then(|mut counts| counts.index("by count", 2, second_of))
        .unwrap();
    assert!(by_text.at(&first).is_err() && by_count.at(&db.snapshot()).is_err());
    assert_eq!(by_text.at(&db.snapshot()).unwrap().get("7").count(), 3);
    assert_eq!(by_count.at(&first).unwrap().get(7).count(), 3);
}

#[test]
fn two_indexes_do_not_share_a_keyspace() {
    let (_dir, db) = store();
    let mut users = Indexed::new(&db, data(&db, "users")).unwrap();
    let mut shops = Indexed::new(&db, data(&db, "shops")).unwrap();
    let by_count = index(&mut users, "by count", 1).unwrap();
    // All keyspaces are empty.
    let error = index(&mut shops, "by count", 1).unwrap_err();
    let Error::SchemaMismatch { stored, expected, .. } = error else { panic!("{error}") };
    assert_eq!((&*stored.0, &*expected.0), ("index of users", "index of shops"));
    assert!(index(&mut users, "by count", 1).is_err(), "the same index twice");
    assert!(index(&mut users, "users", 1).is_err(), "the keyspace of the data");
    assert!(index(&mut users, "shops", 1).is_err(), "another keyspace of data");
    let opened = TypedKeyspace::<u32, u64>::open(&db, "by count", Schema::new("count", 1));
    assert!(matches!(opened, Err(Error::SchemaRecord { .. })), "{opened:?}");
    users.insert(1, 10).unwrap();
    assert_eq!(by_count.get(10).count(), 1);
    assert_eq!(data(&db, "users").get(1).unwrap(), Some(10));
    // The message has the present name of the data.
    db.rename_keyspace("users", "people").unwrap();
    let mut users = Indexed::new(&db, data(&db, "users")).unwrap();
    let error = index(&mut users, "by count", 1).unwrap_err();
    let Error::SchemaMismatch { stored, expected, .. } = error else { panic!("{error}") };
    assert_eq!((&*stored.0, &*expected.0), ("index of people", "index of users"));
}

#[test]
fn index_of_dropped_data_is_rebuilt() {
    let (_dir, db) = store();
    let mut counts = Indexed::new(&db, data(&db, "counts")).unwrap();
    index(&mut counts, "by count", 1).unwrap();
    counts.insert(1, 10).unwrap();
    db.drop_keyspace("counts").unwrap();
    let mut counts = Indexed::new(&db, data(&db, "counts")).unwrap();
    counts.insert(2, 20).unwrap();
    let by_count = index(&mut counts, "by count", 1).unwrap();
    assert_eq!(by_count.keys().map(|key| key.unwrap()).collect::<Vec<_>>(), [(20, 2)]);
    assert_eq!(counts.rebuild().unwrap(), IndexChanges::default());
}

#[test]
fn build_ends_beside_a_writer_of_near_keys() {
    const ROWS: u32 = 30;
    const CALLS_MAX: usize = 10_000;
    let (_dir, db) = store();
    let counts = data(&db, "counts");
    for id in 0..ROWS {
        counts.insert(id, u64::from(id)).unwrap();
    }
    let (calls, written) = (AtomicUsize::new(0), counts.clone());
    let mut counts = Indexed::new(&db, counts).unwrap();
    let by_count = counts
        .index("by count", 1, move |id: &u32, count: &u64| {
            // Conflicts with each transaction that has read the row before.
            if let Some(before) = id.checked_sub(1) {
                written.insert(before, u64::from(before)).unwrap();
            }
            assert!(calls.fetch_add(1, Relaxed) < CALLS_MAX, "the build does not end");
            [*count]
        })
        .unwrap();
    assert_eq!(by_count.keys().count(), ROWS as usize);
}
