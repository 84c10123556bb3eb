//! Stores with many tables, opened by several threads.

use std::{path::Path, sync::Arc};

use sievedb::{Db, KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::report;

const KEYS: u32 = 12_000;
const EIO: i32 = 5;

fn open(fs: &Arc<FaultFs>) -> sievedb::Result<Db> {
    options(fs).open("db")
}

fn options(fs: &Arc<FaultFs>) -> Options {
    let keyspace = KeyspaceOptions::new().table_bytes(4 << 10).range_filter_bits_per_key(8.0);
    let fs = Arc::clone(fs) as Arc<dyn Fs>;
    Options::new().fs(fs).open_files_max(8).keyspace(keyspace)
}

/// Creates a store of many small tables on an in-memory disk.
fn many_tables() -> (Arc<FaultFs>, u64) {
    let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let db = open(&faults).unwrap();
    for key in 0..KEYS {
        db.insert(key.to_be_bytes(), key.to_le_bytes()).unwrap();
    }
    db.compact().unwrap();
    let tables = db.stats().total().tables;
    assert!(tables > 15, "only {tables} tables");
    (faults, tables)
}

fn check(db: &Db) {
    for key in 0..KEYS {
        let found = db.get(key.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&key.to_le_bytes()[..]));
    }
    assert_eq!(db.iter().count(), KEYS as usize);
}

#[test]
fn parallel_open_equals_sequential_open() {
    let (faults, tables) = many_tables();
    let alone = options(&faults).worker_threads(0).open("db").unwrap().stats();
    assert_eq!((alone.opening.threads, alone.total().tables), (1, tables));
    let db = open(&faults).unwrap();
    let stats = db.stats();
    assert!(stats.opening.threads > 1, "{:?}", stats.opening);
    assert_eq!(stats.total().tables, tables);
    assert_eq!(stats.filters_not_whole, alone.filters_not_whole);
    assert_eq!(stats.total().filter_bytes, alone.total().filter_bytes);
    // The header, the rest from the top index on, the point filter, the range filter.
    let calls = stats.table_reads.calls;
    assert!(calls <= 4 * tables, "{calls} reads for {tables} tables");
    check(&db);
}

/// A call that fails during a parallel open fails the open or loses a filter until it is reloaded.
/// It never loses a key.
#[test]
fn failed_call_fails_the_open_or_is_harmless() {
    let (faults, tables) = many_tables();
    let (mut refused, mut opened) = (0, 0);
    for call in [Call::Open, Call::Len, Call::ReadAt] {
        for after in (0..4 * tables as usize).step_by(4) {
            let fault = Fault::new(EIO, Times::Once).calls(&[call]).suffix(".sst").after(after);
            faults.inject(fault);
            match open(&faults) {
                Ok(db) => {
                    faults.heal();
                    opened += 1;
                    check(&db);
                }
                Err(error) => {
                    faults.heal();
                    refused += 1;
                    assert!(error.to_string().contains(".sst"), "{error}");
                }
            }
        }
    }
    report(&format!("opening: {refused} refused, {opened} opened all the same"));
    assert!(refused > 10 && opened > 5, "{refused} refused, {opened} opened");
    let db = open(&faults).unwrap();
    check(&db);
    let names = faults.list(Path::new("db")).unwrap();
    let files = names.iter().filter(|name| name.ends_with(".sst")).count();
    assert_eq!(files as u64, db.stats().total().tables);
}
