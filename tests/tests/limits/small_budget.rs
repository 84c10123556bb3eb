//! Stores with the smallest budget.

use std::sync::Arc;

use sievedb::{KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::MemoryFs;

const ENTRIES: u32 = 8_000;

/// With little write memory and large blocks, a table still gets more than one key.
#[test]
fn small_budget_does_not_split_tables_to_single_keys() {
    let cases = [("blocks of 4 KiB", 4, 8), ("blocks of 64 KiB", 64, 4), ("of 1 MiB", 1 << 10, 2)];
    for (name, block_kib, runs) in cases {
        let fs = Arc::new(MemoryFs::with_seed(1));
        let keyspace = KeyspaceOptions::new().block_bytes(block_kib << 10);
        // The minimum for two workers.
        let options = Options::new().fs(fs.clone()).worker_threads(2).memory_budget(8 << 20);
        let options = options.background_rewrites(false).keyspace(keyspace);
        let db = options.open("db").unwrap();
        for run in 0..runs {
            for key in (run..ENTRIES).step_by(runs as usize) {
                db.insert(key.to_be_bytes(), [7; 16]).unwrap();
            }
            db.flush().unwrap();
        }
        db.compact().unwrap();
        let files = fs.list("db".as_ref()).unwrap();
        let tables = files.iter().filter(|file| file.ends_with(".sst")).count();
        assert!(tables <= ENTRIES as usize / 1_000, "{name}: {tables} tables");
        assert_eq!(db.iter().count(), ENTRIES as usize, "{name}");
    }
}
