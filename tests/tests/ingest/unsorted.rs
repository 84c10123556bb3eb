//! Bulk loads of entries in any order.

use std::{path::Path, sync::Arc};

use sievedb::{Error, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    rng::Rng,
    settings::{report, seed, small_options},
};

use super::{Map, key, of, options};

const DIR: &str = "data/runs";

/// Random keys, some of them often: the last value stays. Runs are merged on two levels.
#[test]
fn unsorted_entries_agree_with_a_map() {
    let seed = seed("unsorted ingests", 1);
    let mut rng = Rng::new(seed);
    for (entries, memory_bytes) in [(200, 1 << 20), (3_000, 0), (60_000, 0)] {
        let disk = Arc::new(MemoryFs::new());
        let db = options(&disk).open("data/db").unwrap();
        db.insert(key(7), "old").unwrap();
        let mut map = Map::from([(key(7), b"old".to_vec())]);
        let mut ingestion = db.unsorted_ingestion(DIR, memory_bytes).unwrap();
        for number in 0..entries {
            let key = key(rng.below(entries) as u64);
            let value = format!("{number}-{}", "v".repeat(rng.below(90))).into_bytes();
            ingestion.insert(&key, &value).unwrap();
            map.insert(key, value);
        }
        assert_eq!(ingestion.entries(), entries as u64);
        let runs = ingestion.run_bytes();
        assert_eq!(runs > 0, entries > 2_000, "{runs} bytes of runs for {entries} entries");
        let mut progress = Vec::new();
        let ingested = ingestion.finish_with(|entries| progress.push(entries)).unwrap();
        assert!(progress.is_sorted() && progress.iter().all(|it| *it <= ingested.entries));
        assert!(db.iter().map(of).eq(map), "{entries} entries, seed {seed}");
        assert_eq!(disk.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
        report(&format!("unsorted ingest: {entries} entries by {runs} bytes of runs"));
    }
}

/// A full disk, a drop and a directory in use change nothing and leave no file.
#[test]
fn an_unsorted_ingest_that_fails_leaves_nothing() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = small_options(fs.clone()).open("data/db").unwrap();
    let value = [7; 200];
    let runs = || disk.list(Path::new(DIR)).unwrap_or_default();
    for after in [0, 3, 40] {
        let full = Fault::new(28, Times::Once).calls(&[Call::Append]).suffix(".sst").after(after);
        fs.inject(full);
        let mut ingestion = db.unsorted_ingestion(DIR, 0).unwrap();
        let mut rng = Rng::new(after as u64);
        let mut add = |_| ingestion.insert(key(rng.below(100_000) as u64), value);
        let added = (0..5000).try_for_each(&mut add);
        if added.is_err() {
            // Entries may be lost with a run, so the ingestion never succeeds.
            fs.heal();
            assert!(ingestion.insert("later", value).unwrap_err().is_no_space());
        }
        let error = ingestion.finish().unwrap_err();
        assert!(error.is_no_space(), "{error:?}");
        fs.heal();
        assert_eq!((db.len().unwrap(), runs()), (0, vec![]), "{after}");
    }
    let mut dropped = db.unsorted_ingestion(DIR, 0).unwrap();
    (0..5000).for_each(|number| dropped.insert(key(number), value).unwrap());
    assert!(!runs().is_empty());
    let in_use = db.unsorted_ingestion(DIR, 0).unwrap_err();
    assert!(matches!(in_use, Error::DirectoryNotEmpty { .. }), "{in_use:?}");
    drop(dropped);
    assert_eq!(runs(), Vec::<String>::new());
}
