//! The cost of a flush does not depend on the number of other objects.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use sievedb::{Db, Durability, Keyspace, Options, clock::ManualClock};
use sievedb_doubles::MemoryFs;

use crate::corruption::allocation::{count_in, largest_bytes, reset_largest};

/// Large enough to distinguish a cost per object from a constant one.
const MANY: usize = 1_000;

fn open() -> Db {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(7)));
    let options = options.worker_threads(0).clock(Arc::new(ManualClock::new()));
    options.durability(Durability::Memory).open("db").unwrap()
}

/// Returns the allocations of a write into each keyspace and its flush, with background work.
fn allocations(keyspaces: &[Keyspace]) -> usize {
    let ((), count) = count_in(|| {
        for keyspace in keyspaces {
            keyspace.insert("key", "another value").unwrap();
            keyspace.flush().unwrap();
        }
    });
    count / keyspaces.len()
}

#[test]
fn flush_cost_is_independent_of_other_keyspaces() {
    let of = |count: usize| {
        let db = open();
        let keyspaces: Vec<_> =
            (0..count).map(|at| db.keyspace(&format!("keyspace {at}")).unwrap()).collect();
        for keyspace in &keyspaces {
            keyspace.insert("key", "value").unwrap();
        }
        db.flush().unwrap();
        let some = allocations(&keyspaces[..10]);
        for keyspace in &keyspaces {
            assert!(keyspace.contains_key("key").unwrap());
        }
        some
    };
    let (few, many) = (of(10), of(MANY));
    // The manifest copies its list of keyspaces, in nodes of at least five, once for some of the
    // edits.
    assert!(many < few + MANY, "{few} allocations among 10 keyspaces, {many} among {MANY}");
}

#[test]
fn flush_cost_is_independent_of_snapshots() {
    let db = open();
    let mut snapshots = Vec::new();
    for at in 0..50 * MANY as u32 {
        db.insert(at.to_be_bytes(), "value").unwrap();
        snapshots.push(db.snapshot());
    }
    db.flush().unwrap();
    db.insert("key", "value").unwrap();
    reset_largest();
    db.flush().unwrap();
    let largest = largest_bytes();
    assert!(largest < 50 * MANY * 8, "{largest} bytes at once");
    for (at, snapshot) in snapshots.iter().enumerate().step_by(997) {
        assert_eq!(snapshot.iter().keys().count(), at + 1);
    }
}
