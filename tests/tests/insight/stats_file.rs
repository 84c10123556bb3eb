//! The file `STATS` for other processes.

use std::{path::Path, sync::Arc, thread, time::Duration};

use sievedb::{Db, Durability, Stats, fs::Fs as _, stats::read_stats_file};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{KEYS, fill, grown, key, options};

/// Longer than any test: the file is written at open and close only.
const NEVER: Duration = Duration::from_secs(86_400);

fn read(fs: &MemoryFs) -> Option<Stats> {
    read_stats_file(fs, Path::new(STORE_DIR)).unwrap()
}

fn open(fs: &Arc<MemoryFs>, interval: Duration) -> Db {
    options(fs.clone()).stats_file_interval(interval).open(STORE_DIR).unwrap()
}

fn names(fs: &MemoryFs) -> Vec<String> {
    let names = fs.list(Path::new(STORE_DIR)).unwrap();
    names.into_iter().filter(|name| name.contains("STATS")).collect()
}

#[test]
fn stats_file_of_a_closed_store_has_its_last_statistics() {
    let fs = Arc::new(MemoryFs::new());
    drop(grown(&fs));
    assert!(read(&fs).is_none(), "no option requests the file");
    let db = open(&fs, NEVER);
    assert_eq!(read(&fs).unwrap().lookups.lookups, 0);
    for number in 0..KEYS / 10 {
        assert!(db.contains_key(key(number)).unwrap());
        assert!(!db.contains_key(key(KEYS + number)).unwrap());
    }
    let mut stats = db.stats();
    drop(db);
    let written = read(&fs).unwrap();
    assert_eq!(written.lookups, stats.lookups);
    assert_eq!(written.levels, stats.levels);
    stats.keyspaces.clear();
    let (by_file, by_store) = (written.to_string(), stats.to_string());
    let levels = |text: &str| text.split_once("level").unwrap().1.to_owned();
    assert_eq!(levels(&by_file), levels(&by_store));

    // Another process must not take old statistics for current ones.
    fs.create(&Path::new(STORE_DIR).join("STATS.tmp")).unwrap().append(b"x").unwrap();
    drop(options(fs.clone()).open(STORE_DIR).unwrap());
    assert_eq!(names(&fs), [""; 0]);
}

#[test]
fn stats_file_is_updated_while_the_store_is_open() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Duration::from_millis(10));
    fill(&db, 0..2_000);
    for round in 1..=3 {
        assert_eq!(db.get(key(KEYS)).unwrap(), None);
        // Slow machines need several writes.
        while read(&fs).unwrap().lookups.lookups < round {
            thread::sleep(Duration::from_millis(5));
        }
    }
    // No temporary file of a write in flight.
    drop(db);
    assert_eq!(names(&fs), ["STATS"]);
}

/// While the store is open, and after it is closed.
#[test]
fn stats_file_reports_that_the_store_became_read_only() {
    for interval in [NEVER, Duration::from_millis(10)] {
        let fs = Arc::new(MemoryFs::new());
        let faults = Arc::new(FaultFs::new(fs.clone()));
        let options = options(faults.clone()).stats_file_interval(interval);
        let db = options.open(STORE_DIR).unwrap();
        assert_eq!(read(&fs).unwrap().read_only, None);
        faults.inject(Fault::new(5, Times::ForGood).calls(&[Call::SyncData]));
        db.insert(key(1), "1").unwrap();
        db.persist(Durability::Disk).unwrap_err();
        let cause = db.stats().read_only;
        assert!(cause.is_some());
        // Slow machines need several writes.
        while interval != NEVER && read(&fs).unwrap().read_only.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        drop(db);
        assert_eq!(read(&fs).unwrap().read_only, cause);
    }
}

/// After any crash the store opens. The file is whole, truncated or missing before, and missing or
/// new afterwards.
#[test]
fn stats_file_after_a_crash_is_harmless() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, NEVER);
    fill(&db, 0..50);
    drop(db);
    let operations = fs.operations();
    for at in 0..=operations {
        for loss in [Loss::Nothing, Loss::Everything] {
            let fs = Arc::new(fs.crash(at, &loss));
            if fs.exists(Path::new(STORE_DIR)).unwrap() {
                // A truncated file is an error, not a panic.
                let _ = read_stats_file(&*fs, Path::new(STORE_DIR));
            }
            let db = options(fs.clone()).open(STORE_DIR).unwrap();
            assert_eq!(names(&fs), [""; 0], "after {at} operations");
            drop(db);
            drop(open(&fs, NEVER));
            assert_eq!(names(&fs), ["STATS"], "after {at} operations");
            assert!(read(&fs).is_some(), "after {at} operations");
        }
    }
}
