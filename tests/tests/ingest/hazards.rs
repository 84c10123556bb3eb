//! Ingests that fail, of long values, with little memory, and repaired.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use sievedb::{Db, KeyspaceOptions, OlderValues, Options, RepairReport, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    rng::Rng,
    settings::{report, small_keyspace, small_options},
};

use super::{key, of, options};

const ENOSPC: i32 = 28;

fn with_blobs(fs: Arc<dyn Fs>) -> Options {
    small_options(fs).keyspace(small_keyspace().blob_value_bytes(100))
}

/// Returns 300 bytes that cannot be compressed.
fn noise(round: u64, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Rng::new(round << 32 | number).fill(&mut bytes, 300);
    bytes
}

/// Returns the numbers of tables and blob files in the directory of the store.
fn files(disk: &MemoryFs) -> [usize; 2] {
    let names = disk.list(Path::new("data/db")).unwrap();
    [".sst", ".blob"].map(|suffix| names.iter().filter(|name| name.ends_with(suffix)).count())
}

/// Returns the numbers of tables and blob files that the store uses.
fn used(db: &Db) -> [usize; 2] {
    let keyspaces = db.stats().keyspaces;
    let sum = |of: fn(&sievedb::stats::KeyspaceStats) -> u64| keyspaces.iter().map(of).sum::<u64>();
    [sum(|it| it.tables) as usize, sum(|it| it.blob_files) as usize]
}

#[test]
fn the_tables_of_an_ingestion_that_failed_are_removed() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = with_blobs(fs.clone()).open("data/db").unwrap();
    let mut ingestion = db.ingestion().unwrap();
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Create]).suffix(".sst").after(1));
    let failed = (0..2000).find_map(|number| ingestion.insert(key(number), noise(1, number)).err());
    assert!(failed.unwrap().is_no_space());
    drop(ingestion);
    db.insert(key(0), "value").unwrap();
    db.flush().unwrap();
    assert_eq!(files(&disk), used(&db), "files that no table needs");
}

/// An entry that was lost by an error must not be missing among ingested ones.
#[test]
fn an_ingestion_that_failed_cannot_go_on() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk));
    let db = small_options(fs.clone()).open("data/db").unwrap();
    let mut ingestion = db.ingestion().unwrap();
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Create]).suffix(".sst"));
    assert!(ingestion.insert("a", "1").unwrap_err().is_no_space());
    assert!(ingestion.insert("b", "2").unwrap_err().is_no_space());
    assert!(ingestion.finish().unwrap_err().is_no_space());
    assert!(db.is_empty().unwrap());
    db.ingest([("a", "1")]).unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Its long value takes all memory for large tables, for which flushes wait.
#[test]
fn a_failed_ingestion_takes_no_memory() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    // Values that expire stay in tables.
    let keyspace = KeyspaceOptions::new().default_ttl(Duration::from_secs(3600));
    let options = Options::new().memory_budget(8 << 20).worker_threads(0).keyspace(keyspace);
    let db = options.fs(fs.clone()).open("data/db").unwrap();
    let long = |seed: u64, bytes: usize| {
        let mut value = Vec::new();
        Rng::new(seed).fill(&mut value, bytes);
        value
    };
    let mut ingestion = db.ingestion().unwrap();
    ingestion.insert("a", long(1, 200 << 10)).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".sst"));
    assert!(ingestion.insert("b", long(2, 2 << 20)).unwrap_err().is_no_space());
    fs.heal();
    let (done, is_done) = mpsc::channel();
    let flushing = db.clone();
    thread::spawn(move || {
        flushing.insert("x", long(3, 1 << 20)).unwrap();
        flushing.flush().unwrap();
        done.send(()).unwrap();
    });
    let flushed = is_done.recv_timeout(Duration::from_secs(30));
    assert!(flushed.is_ok(), "the flush waits");
    drop(ingestion);
}

/// A full disk changes nothing and leaves no file, whichever call it refuses, and the store goes
/// on.
#[test]
fn a_full_disk_leaves_nothing_of_an_ingest() {
    let mut failed = 0;
    for after in 0.. {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(FaultFs::new(disk.clone()));
        let db = with_blobs(fs.clone()).open("data/db").unwrap();
        (0..20).for_each(|number| db.insert(key(number), [1; 150]).unwrap());
        fs.inject(Fault::new(ENOSPC, Times::Once).calls(&Call::GROWING).after(after));
        let ingested = db.ingest((5..60).map(|number| (key(number), noise(2, number))));
        let is_failed = ingested.as_ref().is_err_and(|error| error.is_no_space());
        assert!(is_failed || ingested.is_ok(), "{after}: {ingested:?}");
        fs.heal();
        let value = if is_failed { vec![1; 150] } else { noise(2, 7) };
        let check = |db: &Db| {
            assert_eq!(db.get(key(7)).unwrap().as_deref(), Some(&*value), "{after}");
            assert_eq!(db.get(key(50)).unwrap().is_some(), !is_failed, "{after}");
            assert_eq!(db.get(key(70)).unwrap().as_deref(), Some(&b"more"[..]), "{after}");
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{after}: {:?}", report.problems);
        };
        db.insert(key(70), "more").unwrap();
        check(&db);
        db.flush().unwrap();
        assert_eq!(files(&disk), used(&db), "{after}: files that no table needs");
        drop(db);
        let db = with_blobs(disk.clone()).open("data/db").unwrap();
        check(&db);
        assert_eq!(files(&disk), used(&db), "{after}: files that no table needs");
        if !is_failed {
            break;
        }
        failed += 1;
    }
    report(&format!("ingests on a full disk: {failed} calls failed"));
    assert!(failed > 10, "only {failed} calls");
}

/// Long values go to blob files at once, and these go with the last table.
#[test]
fn long_values_are_ingested_into_blob_files() {
    let disk = Arc::new(MemoryFs::new());
    let db = with_blobs(disk.clone()).open("data/db").unwrap();
    for round in 1..=2 {
        let ingested =
            db.ingest((0..200).map(|number| (key(number), noise(round, number)))).unwrap();
        let stats = &db.stats().keyspaces[0];
        assert!(stats.blob_files > 2, "{} blob files", stats.blob_files);
        assert!(ingested.bytes >= stats.blob_bytes / 2, "{ingested:?}");
        assert_eq!(db.get(key(9)).unwrap().as_deref(), Some(&*noise(round, 9)));
    }
    db.compact().unwrap();
    db.flush().unwrap();
    let stats = &db.stats().keyspaces[0];
    assert_eq!(stats.blob_garbage_bytes, 0, "those of the first round");
    assert_eq!(files(&disk), used(&db), "they were removed");
    assert!(db.verify().unwrap().is_good());
}

/// A long entry takes more than the share of a worker. A flush that needs as much waits for it, and
/// must not wait for the caller.
#[test]
fn a_long_entry_of_an_open_ingestion_stops_no_flush() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let disk: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let options = Options::new().fs(disk).memory_budget(32 << 20).worker_threads(1);
        let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20);
        let db = options.keyspace(keyspace).open("data/db").unwrap();
        let mut ingestion = db.ingestion().unwrap();
        ingestion.insert("a", vec![1; 3 << 20]).unwrap();
        for number in 0..8 {
            db.insert(key(number), vec![2; 3 << 20]).unwrap();
        }
        db.flush().unwrap();
        ingestion.finish().unwrap();
        done.send(db.len().unwrap()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)).ok(), Some(9), "a deadlock");
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// Repairs a copy of the store without its manifest. Returns the report and the entries.
fn without_manifest(disk: &MemoryFs) -> (RepairReport, Vec<Pair>) {
    let lost = Arc::new(disk.copy());
    for name in lost.list(Path::new("data/db")).unwrap() {
        if name.starts_with("MANIFEST") || name == "CURRENT" || name == "CLOSED" {
            lost.unlink(&Path::new("data/db").join(name)).unwrap();
        }
    }
    let report = options(&lost).repair("data/db", "data/repaired", OlderValues::LeaveOut).unwrap();
    let repaired = options(&lost).open("data/repaired").unwrap();
    (report, repaired.iter().map(of).collect())
}

/// A clean close drops the log with the number of the ingest.
#[test]
fn a_repair_without_manifest_and_log_takes_the_ingested_value() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    db.insert(key(1), "old").unwrap();
    db.ingest([(key(1), "new")]).unwrap();
    db.close().unwrap();
    let (report, found) = without_manifest(&disk);
    assert_eq!(found, [(key(1), b"new".to_vec())], "{report}");
    assert_eq!(report.older, 0, "{report}");
}

/// Tables written after an ingest have its number.
#[test]
fn a_repair_without_manifest_and_log_orders_ingested_entries_by_later_tables() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    // No compaction replaces the ingested tables.
    let paused = db.pause_compactions().unwrap();
    (0..30).for_each(|number| db.insert(key(number), "old").unwrap());
    for (round, from) in [("first", 5), ("second", 10)] {
        let mut ingestion = db.ingestion().unwrap();
        (from..from + 10).for_each(|number| ingestion.insert(key(number), round).unwrap());
        (from..from + 5).for_each(|number| db.insert(key(number), "between").unwrap());
        ingestion.finish().unwrap();
        db.insert(key(from + 2), "behind").unwrap();
        db.flush().unwrap();
    }
    let want: Vec<_> = db.iter().map(of).collect();
    drop(paused);
    let lost = disk.copy();
    for name in lost.list(Path::new("data/db")).unwrap() {
        if name.ends_with(".log") {
            lost.unlink(&Path::new("data/db").join(name)).unwrap();
        }
    }
    let (report, found) = without_manifest(&lost);
    assert_eq!(found, want, "{report}");
    assert_eq!(report.older, 0, "{report}");
    // Flushes around two ingests.
    assert!(report.tables >= 5, "{report}");
}

/// No table was written after the ingest, so keys that were written while it was open are doubtful.
#[test]
fn a_repair_without_manifest_and_log_leaves_out_keys_written_during_an_ingestion() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    (0..20).for_each(|number| db.insert(key(number), "old").unwrap());
    let mut ingestion = db.ingestion().unwrap();
    (5..15).for_each(|number| ingestion.insert(key(number), "new").unwrap());
    (10..20).for_each(|number| db.insert(key(number), "between").unwrap());
    ingestion.finish().unwrap();
    let mut want: Vec<_> = db.iter().map(of).collect();
    db.close().unwrap();
    want.retain(|(found, _)| !(10..15).map(key).any(|doubtful| doubtful == *found));
    let (report, found) = without_manifest(&disk);
    assert_eq!(found, want, "{report}");
    assert_eq!(report.older, 5, "{report}");
}

/// Without a manifest, the log has the number of ingested entries: they are newer than what was
/// written while the ingestion was open.
#[test]
fn a_repair_without_a_manifest_orders_ingested_entries() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).log_segment_bytes(1 << 20).log_bytes_max(4 << 20).open("data/db");
    let db = db.unwrap();
    (0..20).for_each(|number| db.insert(key(number), "old").unwrap());
    let mut ingestion = db.ingestion().unwrap();
    (5..15).for_each(|number| ingestion.insert(key(number), "new").unwrap());
    (0..20).for_each(|number| db.insert(key(number), "between").unwrap());
    ingestion.finish().unwrap();
    db.insert(key(7), "newest").unwrap();
    db.persist(sievedb::Durability::Disk).unwrap();
    let want: Vec<_> = db.iter().map(of).collect();
    let lost = disk.copy();
    drop(db);
    let (_, found) = without_manifest(&lost);
    assert_eq!(found, want);
}
