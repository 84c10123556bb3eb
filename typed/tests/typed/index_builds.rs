//! Builds and rebuilds of indexes, and the names of their keyspaces.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use sievedb_typed::{Indexed, Schema, TypedKeyspace, sievedb::Db};

use crate::store;

fn data(db: &Db, name: &str) -> TypedKeyspace<u32, u64> {
    TypedKeyspace::open(db, name, Schema::new("count", 1)).unwrap()
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
