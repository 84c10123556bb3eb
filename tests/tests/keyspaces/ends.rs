//! The first and the last key, and the number of keys.

use std::sync::Arc;

use sievedb::{Db, Error};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

pub(super) fn new_store() -> Db {
    small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).expect("a new store")
}

/// Returns the first key, the last key, and the number of keys of any handle.
macro_rules! ends {
    ($handle:expr) => {{
        let key = |entry: Option<(sievedb::Bytes, sievedb::Bytes)>| {
            entry.map(|(key, _)| String::from_utf8_lossy(&key).into_owned())
        };
        let (first, last) = (key($handle.first().unwrap()), key($handle.last().unwrap()));
        let len = $handle.len().unwrap();
        assert_eq!($handle.is_empty().unwrap(), len == 0);
        (first, last, len)
    }};
}

fn want(first: &str, last: &str, len: u64) -> (Option<String>, Option<String>, u64) {
    (Some(first.to_owned()), Some(last.to_owned()), len)
}

#[test]
fn every_handle_has_the_ends_of_its_point_in_time() {
    let db = new_store();
    assert_eq!(ends!(db), (None, None, 0));
    let empty = db.snapshot();
    for key in ["b", "a", "c", "d"] {
        db.insert(key, key).unwrap();
    }
    db.flush().unwrap();
    db.insert("e", "").unwrap();
    db.insert("e", "again").unwrap();
    let five = db.snapshot();
    assert_eq!(ends!(db), want("a", "e", 5));
    assert_eq!(db.last().unwrap().unwrap().1, "again");
    for key in ["a", "e", "d"] {
        db.remove(key).unwrap();
    }
    assert_eq!(ends!(db), want("b", "c", 2));
    assert_eq!(ends!(db.default_keyspace()), want("b", "c", 2));
    db.compact().unwrap();
    assert_eq!(ends!(db), want("b", "c", 2));
    assert_eq!(ends!(five), want("a", "e", 5));
    let of_keyspace = five.keyspace(&db).unwrap();
    assert_eq!(ends!(of_keyspace), want("a", "e", 5));
    assert_eq!(ends!(empty), (None, None, 0));
}

#[test]
fn a_dropped_keyspace_has_no_ends() {
    let db = new_store();
    let gone = db.keyspace("gone").unwrap();
    db.drop_keyspace("gone").unwrap();
    let errors = [
        gone.first().map(drop).unwrap_err(),
        gone.last().map(drop).unwrap_err(),
        gone.len().map(drop).unwrap_err(),
        gone.is_empty().map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::KeyspaceDropped { .. }), "{error:?}");
    }
}
