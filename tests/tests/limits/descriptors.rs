//! File descriptors: open log files, and behaviour without a free descriptor.

use std::sync::Arc;

use sievedb::{Db, Durability, Options, clock::ManualClock};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    handles::HandleFs,
    settings::{STORE_DIR, report, small_options},
};

const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Number of segments that a store must open under a limit of 1,024 descriptors.
const SEGMENTS: u64 = 1_380;

/// Upper bound for open log files, plus manifest and directory.
const OPEN_MAX: usize = 24;

fn open_with_many_segments(fs: Arc<HandleFs>) -> Db {
    let options = Options::new().fs(fs).worker_threads(0).clock(Arc::new(ManualClock::new()));
    let options = options.durability(Durability::OsBuffer).log_segment_bytes(4 << 10);
    options.log_bytes_max(1 << 30).open(STORE_DIR).unwrap()
}

/// The limit is far below 1,024: one open file per segment would exceed it.
#[test]
fn n5_long_chain_of_segments_keeps_few_descriptors() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(HandleFs::new(disk.clone()));
    fs.limit(OPEN_MAX);
    let db = open_with_many_segments(fs.clone());
    for number in 0..SEGMENTS {
        db.insert(number.to_be_bytes(), [7; 4 << 10]).unwrap();
    }
    let segments = db.stats().log_segments;
    assert!(segments >= SEGMENTS, "{segments} segments");
    assert!(db.verify().unwrap().is_good(), "verify reads the log with as few");
    db.close().unwrap();
    let written = fs.most_open_files();

    let fs = Arc::new(HandleFs::new(disk));
    fs.limit(OPEN_MAX);
    let db = open_with_many_segments(fs.clone());
    for number in 0..SEGMENTS {
        assert!(db.contains_key(number.to_be_bytes()).unwrap(), "{number}");
    }
    let opened = fs.most_open_files();
    report(&format!("{segments} log segments: {written} descriptors to write, {opened} to open"));
}

#[test]
fn n4_failed_creation_of_a_log_or_table_is_retried() {
    for error in [EMFILE, ENFILE] {
        for suffix in [".log", ".sst"] {
            let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
            let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
            db.insert("a", "1").unwrap();
            let fault = Fault::new(error, Times::ForGood).calls(&[Call::Create]).suffix(suffix);
            fs.inject(fault);
            let refused = (0..100u32)
                .find_map(|number| db.insert(number.to_be_bytes(), [7; 1 << 10]).err())
                .map_or_else(|| db.flush(), Err);
            assert!(refused.is_err(), "{suffix}: nothing failed");
            assert!(db.stats().read_only.is_none(), "{error}, {suffix}: {refused:?}");
            fs.heal();
            db.insert("b", "1").unwrap();
            db.flush().unwrap();
            assert!(db.contains_key("a").unwrap() && db.contains_key("b").unwrap());
        }
    }
}

#[test]
fn n4_directory_is_synced_without_a_free_descriptor() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(HandleFs::new(disk.clone()));
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    // The only free descriptor is used for the new log segment; none is free for the directory.
    fs.limit(fs.open_files() + 1);
    for number in 0..20u32 {
        let _ = db.insert(number.to_be_bytes(), [7; 1 << 10]);
    }
    assert!(db.stats().read_only.is_none(), "{:?}", db.stats().read_only);
    fs.limit(usize::MAX);
    db.insert("b", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = small_options(disk).open(STORE_DIR).unwrap();
    assert!(db.contains_key("a").unwrap() && db.contains_key("b").unwrap());
}
