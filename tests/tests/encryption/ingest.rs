//! Ingests into encrypted stores.

use std::{path::Path, sync::Arc};

use sievedb::{KeyspaceOptions, TableWriter, fs::Fs as _};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{encrypted, on};

fn check_encrypted(disk: &MemoryFs) {
    for (path, bytes) in disk.contents() {
        let is_clear = bytes.windows(6).any(|part| part == b"secret");
        assert!(!is_clear || path.ends_with("STATS"), "{path} is not encrypted");
    }
}

/// Short and long values are encrypted, and read after a reopening.
#[test]
fn ingested_entries_are_encrypted() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    db.insert("secret key", "old").unwrap();
    let value = |number: u32| b"secret value ".repeat(1 + 20 * (number as usize % 2));
    let entries = || (0..100_u32).map(|number| (format!("secret {number:03}"), value(number)));
    db.ingest(entries()).unwrap();
    let mut unsorted = db.unsorted_ingestion("data/runs", 0).unwrap();
    for number in 0..9000 {
        unsorted.insert(format!("secret {:05}", 89_999 - number), "secret value").unwrap();
    }
    assert!(unsorted.run_bytes() > 0);
    check_encrypted(&disk);
    unsorted.finish().unwrap();
    // Files of others are not encrypted.
    disk.create_dir(Path::new("data/files")).unwrap();
    let path = Path::new("data/files/1.sst");
    let mut writer = TableWriter::with_fs(path, on(&disk), &KeyspaceOptions::new()).unwrap();
    writer.insert("secret of a file", "1").unwrap();
    writer.finish().unwrap();
    db.ingest_files([path]).unwrap();
    disk.unlink(path).unwrap();
    assert!(db.stats().keyspaces[0].blob_files > 0, "no long value");
    drop(db);
    check_encrypted(&disk);
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for (key, value) in entries() {
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(&*value), "{key}");
    }
    assert_eq!(db.get("secret of a file").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.len().unwrap(), 9102);
    assert!(db.verify().unwrap().is_good());
}
