//! Length of the log that an idle keyspace pins.

use std::sync::Arc;

use sievedb::{Db, Options, clock::ManualClock};
use sievedb_doubles::MemoryFs;

use super::small_store::STORE_DIR;

const MIB: u64 = 1 << 20;

/// Opens a store with these limits of budget and log.
fn open(options: Options) -> Db {
    let options = options.fs(Arc::new(MemoryFs::new())).clock(Arc::new(ManualClock::new()));
    options.worker_threads(0).background_rewrites(false).open(STORE_DIR).unwrap()
}

/// Writes to one keyspace and then 48 MiB to another. Returns whether the first is still in memory,
/// and the largest length of the log.
fn write(db: &Db) -> (bool, u64) {
    let idle = db.keyspace("idle").unwrap();
    idle.insert("key", "value").unwrap();
    let mut longest = 0;
    for number in 0..48 * 16_u32 {
        db.insert(number.to_be_bytes(), vec![number as u8; 64 << 10]).unwrap();
        longest = longest.max(db.stats().log_bytes);
    }
    let stats = db.stats();
    let idle = stats.keyspaces.iter().find(|keyspace| keyspace.name == "idle").unwrap();
    (idle.tables == 0, longest)
}

#[test]
fn small_store_has_a_short_log() {
    let small = || Options::new().memory_budget(16 * MIB);
    let (in_memory, longest) = write(&open(small()));
    assert!(!in_memory && longest > 32 * MIB, "{longest}");
    // A segment of 4 MiB, and the batch that exceeded it.
    assert!(longest < 37 * MIB, "{longest}");

    let (in_memory, longest) = write(&open(small().log_bytes_max(256 * MIB)));
    assert!(in_memory && longest > 48 * MIB, "as it was set: {longest}");

    let db = open(small());
    db.set_memory_budget(64 * MIB).unwrap();
    let (in_memory, longest) = write(&db);
    assert!(in_memory && longest > 48 * MIB, "64 MiB: {longest}");
}
