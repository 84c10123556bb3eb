//! Tables of one ingest, written by several threads.

use std::sync::Arc;

use sievedb::{KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::rng::Rng;

use super::{key, of};

const ENTRIES: u64 = 20_000;
const ENOSPC: i32 = 28;

fn options(fs: Arc<dyn Fs>) -> Options {
    let keyspace = KeyspaceOptions::new().table_bytes(64 << 10);
    Options::new().fs(fs).memory_budget(256 << 20).worker_threads(2).keyspace(keyspace)
}

/// Values of 100 bytes that cannot be compressed; each 1,000th is too long for a batch.
fn entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rng = Rng::new(1);
    let mut value = |number: u64| {
        let mut value = Vec::new();
        rng.fill(&mut value, if number % 1000 == 700 { 80 << 10 } else { 100 });
        value
    };
    (0..ENTRIES).map(|number| (key(number), value(number))).collect()
}

/// The number of threads changes the borders of tables only.
#[test]
fn threads_write_the_same_entries() {
    let entries = entries();
    for threads in [1, 2, 3, 8, 1000] {
        let disk = Arc::new(MemoryFs::new());
        let db = options(disk.clone()).open("data/db").unwrap();
        let mut ingestion = db.ingestion().unwrap().threads(threads);
        for (key, value) in &entries {
            ingestion.insert(key, value).unwrap();
        }
        assert_eq!(ingestion.entries(), ENTRIES);
        let bytes = ingestion.bytes();
        let ingested = ingestion.finish().unwrap();
        assert!(ingested.tables > 30, "{threads} threads: {ingested:?}");
        assert!((bytes / 2..2 * bytes).contains(&ingested.bytes), "{bytes} bytes, {ingested:?}");
        drop(db);
        let db = options(disk).open("data/db").unwrap();
        assert!(db.iter().map(of).eq(entries.iter().cloned()), "{threads} threads");
        assert!(db.verify().unwrap().is_good());
    }
}

/// An error on one thread fails the ingest, and the tables of the others are removed.
#[test]
fn an_error_on_a_thread_leaves_no_table() {
    let entries = entries();
    for after in [0, 7, 20] {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(FaultFs::new(disk.clone()));
        let db = options(fs.clone()).open("data/db").unwrap();
        fs.inject(
            Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".sst").after(after),
        );
        let mut ingestion = db.ingestion().unwrap().threads(4);
        let added = entries.iter().try_for_each(|(key, value)| ingestion.insert(key, value));
        let error = added.and_then(|()| ingestion.finish().map(drop)).unwrap_err();
        assert!(error.is_no_space(), "{error:?}");
        assert!(db.is_empty().unwrap());
        db.insert("a", "1").unwrap();
        db.flush().unwrap();
        drop(db);
        let db = options(disk.clone()).open("data/db").unwrap();
        let names = disk.list(std::path::Path::new("data/db")).unwrap();
        let tables = names.iter().filter(|name| name.ends_with(".sst")).count();
        assert_eq!((tables, db.len().unwrap()), (1, 1), "{after}");
    }
}
