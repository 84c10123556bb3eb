//! Ingests into encrypted stores.

use std::sync::Arc;

use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{encrypted, on};

/// Short and long values are encrypted, and read after a reopening.
#[test]
fn ingested_entries_are_encrypted() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    db.insert("secret key", "old").unwrap();
    let value = |number: u32| b"secret value ".repeat(1 + 20 * (number as usize % 2));
    let entries = || (0..100_u32).map(|number| (format!("secret {number:03}"), value(number)));
    db.ingest(entries()).unwrap();
    assert!(db.stats().keyspaces[0].blob_files > 0, "no long value");
    drop(db);
    for (path, bytes) in disk.contents() {
        let is_clear = bytes.windows(6).any(|part| part == b"secret");
        assert!(!is_clear || path.ends_with("STATS"), "{path} is not encrypted");
    }
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for (key, value) in entries() {
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(&*value), "{key}");
    }
    assert!(db.verify().unwrap().is_good());
}
