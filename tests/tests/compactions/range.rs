//! Compactions of a range of keys.

use sievedb::{Db, Error};

use super::{flush, open, tables};

fn bytes_written(db: &Db) -> u64 {
    db.stats().background.compaction_bytes_written
}

#[test]
fn only_tables_with_a_key_in_the_range_are_merged() {
    let db = open();
    flush(&db, 0..400);
    db.compact().unwrap();
    flush(&db, 0..100);
    flush(&db, 200..300);
    let (above, below) = tables(&db.stats());
    assert!(above >= 4 && below >= 8, "{}", db.stats());
    db.remove_range(&50_u32.to_be_bytes()[..]..&60_u32.to_be_bytes()[..]).unwrap();
    let before = bytes_written(&db);
    db.compact_range(..20_u32.to_be_bytes()).unwrap();
    let written = bytes_written(&db) - before;
    assert!((1..20_000).contains(&written), "{written} bytes for a twentieth of the keys");
    let (left, _) = tables(&db.stats());
    assert!(0 < left && left < above + 1, "{left} of {above} tables of level 0 stay");
    db.compact_range(..100_u32.to_be_bytes()).unwrap();
    let before = bytes_written(&db);
    db.compact_range(..100_u32.to_be_bytes()).unwrap();
    assert_eq!(bytes_written(&db), before, "the range is compact");
    assert!(tables(&db.stats()).0 > 0, "{}", db.stats());
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(tables(&db.stats()).0, 0, "{}", db.stats());
    assert_eq!(db.len().unwrap(), 390);
}

#[test]
fn an_empty_range_merges_nothing() {
    let db = open();
    flush(&db, 0..10);
    flush(&db, 0..10);
    db.compact_range("b".."a").unwrap();
    db.compact_range("a".."a").unwrap();
    assert_eq!(tables(&db.stats()), (2, 0));
    db.compact_range([0; 4]..=[0; 4]).unwrap();
    assert_eq!(tables(&db.stats()), (0, 1));
}

/// Each caller waits for its own range, and for no other.
#[test]
fn threads_compact_several_ranges_at_once() {
    let db = super::small_options().worker_threads(2).open("db").unwrap();
    for _ in 0..3 {
        flush(&db, 0..400);
    }
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let db = &db;
            scope.spawn(move || {
                let start = thread / 2 * 100;
                db.compact_range(start.to_be_bytes()..(start + 100).to_be_bytes()).unwrap();
            });
        }
    });
    assert_eq!(tables(&db.stats()).0, 0, "{}", db.stats());
    assert_eq!(db.len().unwrap(), 400);
}

#[test]
fn other_keyspaces_stay_and_dropped_ones_are_refused() {
    let db = open();
    let other = db.keyspace("other").unwrap();
    for _ in 0..2 {
        other.insert("key", "value").unwrap();
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
    }
    other.compact_range("a".."z").unwrap();
    assert_eq!(tables(&db.stats()), (2, 1));
    db.drop_keyspace("other").unwrap();
    assert!(matches!(other.compact_range("a".."z"), Err(Error::KeyspaceDropped { .. })));
}
