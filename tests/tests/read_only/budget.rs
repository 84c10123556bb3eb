//! The log is loaded completely, even above the limit of memtables.

use std::sync::Arc;

use sievedb::KeyspaceOptions;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::reading;

const ENTRIES: u32 = 20_000;
const PART: u64 = 512 << 10;

#[test]
fn read_only_open_reads_a_log_larger_than_the_memtables() {
    let disk = Arc::new(MemoryFs::new());
    let keyspace = KeyspaceOptions::new().memtable_bytes(32 << 20);
    let options = small_options(disk.clone()).keyspace(keyspace).memtable_bytes_max(64 << 20);
    let options = options.log_segment_bytes(1 << 20).log_bytes_max(64 << 20);
    let db = options.open(STORE_DIR).unwrap();
    for number in 0..ENTRIES {
        db.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let (written, log) = (db.stats().memory.memtable_bytes, db.stats().log_bytes);
    assert!(written > 4 * PART && db.stats().background.flushes == 0, "{}", db.stats());

    let disk = Arc::new(disk.copy());
    let db = reading(disk.clone()).memtable_bytes_max(PART).open(STORE_DIR).unwrap();
    assert_eq!(db.iter().count(), ENTRIES as usize);
    assert_eq!(db.get(9_u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 100][..]));
    assert!(!db.contains_key("absent").unwrap());
    let memory = db.stats().memory;
    assert_eq!(memory.memtable_bytes_max, PART);
    // Filter sizes depend on the available memory, and batches may be shared by their entries.
    let known = written / 2..written * 3 / 2;
    assert!(known.contains(&memory.memtable_bytes), "{} of {written}", memory.memtable_bytes);
    assert_eq!(db.stats().log_bytes, log, "{}", db.stats());
    let other = reading(Arc::new(MemoryFs::new())).memtable_bytes_max(PART);
    assert!(other.open(STORE_DIR).is_err(), "there is no store");
    db.set_memory_budget(16 << 20).unwrap();
    assert_eq!(db.iter().count(), ENTRIES as usize, "nothing is given up");
    assert_eq!(disk.journal(), []);
}
