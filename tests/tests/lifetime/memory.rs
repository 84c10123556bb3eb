//! Memory is charged until its last holder drops it.

use std::sync::Arc;

use sievedb::Db;
use sievedb_doubles::MemoryFs;

use super::small_store::{flush, open};

/// Returns the filter memory of the current tables.
fn filters_of_levels(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.filter_bytes).sum()
}

#[test]
fn iterator_pins_the_memory_of_removed_tables() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    flush(&db, 0..50, "old");
    flush(&db, 0..50, "new");
    let before = db.stats().memory;
    assert!(before.filter_bytes > 0 && before.index_bytes > 0, "{before:?}");
    assert_eq!(before.filter_bytes, filters_of_levels(&db));

    let iterator = db.iter();
    db.compact().unwrap();
    let held = db.stats().memory;
    let present = filters_of_levels(&db);
    assert_eq!(held.filter_bytes, present, "no iterator needs a filter");
    assert!(held.index_bytes > before.index_bytes, "old and new are in memory");
    drop(iterator);
    assert_eq!(db.stats().memory.filter_bytes, present);
    assert!(db.stats().memory.index_bytes < before.index_bytes);
    assert_eq!(db.stats().memory.writing_bytes, 0);
}

#[test]
fn memtables_are_charged_on_write_and_released_on_flush() {
    let db = open(&Arc::new(MemoryFs::new()));
    let empty = db.stats().memory.memtable_bytes;
    db.insert("key", [7; 1000]).unwrap();
    let full = db.stats().memory.memtable_bytes;
    // The filter, a 64th of the memtable's size, and as much allocated but unused memory as the
    // entry needs.
    assert!((empty + 3024..empty + 3500).contains(&full), "{empty} and then {full}");
    let iterator = db.iter();
    db.flush().unwrap();
    let memory = db.stats().memory;
    assert_eq!(memory.memtable_bytes, empty);
    assert_eq!(memory.pinned_bytes, full, "the iterator holds the old one");
    drop(iterator);
    assert_eq!(db.stats().memory.pinned_bytes, 0);
}
