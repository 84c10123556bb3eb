//! The contents and the life of a checkpoint.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc, time::Duration};

use sievedb::{Db, Durability, Error, HistoryLength, KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, small_options};

const COPY: &str = "data/copy";

fn options(disk: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(disk) as Arc<dyn Fs>)
}

/// Returns all entries of the default keyspace.
fn entries(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

/// Fills a store so that tables, the log and the log's buffer have entries.
fn fill(db: &Db, round: u8) {
    for number in 0..40_u32 {
        db.insert(number.to_be_bytes(), [round; 200]).unwrap();
    }
    db.flush().unwrap();
    for number in 30..50_u32 {
        db.insert(number.to_be_bytes(), [round + 1; 100]).unwrap();
    }
    db.remove_range(5_u32.to_be_bytes()..9_u32.to_be_bytes()).unwrap();
    let mut batch = db.batch();
    batch.insert(db, "buffered", [round]).unwrap();
    batch.commit(Durability::Memory).unwrap();
}

#[test]
fn checkpoint_has_everything_acknowledged_and_nothing_later() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    fill(&db, 1);
    let (before, sequence) = (entries(&db), db.snapshot().sequence());
    let checkpoint = db.checkpoint(COPY).unwrap();
    assert_eq!(checkpoint.sequence, sequence);
    assert!(checkpoint.files_linked > 0, "{checkpoint:?}");
    fill(&db, 7);
    db.compact().unwrap();
    let copy = options(&disk).create_if_missing(false).open(COPY).unwrap();
    assert_eq!(entries(&copy), before);
    assert!(copy.verify().unwrap().is_good());
    assert_eq!(copy.snapshot().sequence(), sequence);
}

#[test]
fn checkpoint_and_store_live_apart() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    fill(&db, 1);
    db.checkpoint(COPY).unwrap();
    let copy = options(&disk).open(COPY).unwrap();
    fill(&copy, 3);
    fill(&db, 5);
    copy.compact().unwrap();
    db.compact().unwrap();
    let (wanted, wanted_copy) = (entries(&db), entries(&copy));
    drop((db, copy));
    let db = options(&disk).open(STORE_DIR).unwrap();
    assert_eq!(entries(&db), wanted);
    assert!(db.verify().unwrap().is_good());
    drop(db);
    // The store goes, and the checkpoint stays.
    for name in disk.list(Path::new(STORE_DIR)).unwrap() {
        disk.unlink(&Path::new(STORE_DIR).join(name)).unwrap();
    }
    let copy = options(&disk).open(COPY).unwrap();
    assert_eq!(entries(&copy), wanted_copy);
    assert!(copy.verify().unwrap().is_good());
}

#[test]
fn checkpoint_of_a_checkpoint_is_whole() {
    let disk = Arc::new(MemoryFs::new());
    let mut path = STORE_DIR.to_owned();
    for round in 0..4 {
        let db = options(&disk).open(&path).unwrap();
        fill(&db, round);
        let before = entries(&db);
        path = format!("data/copy{round}");
        db.checkpoint(&path).unwrap();
        fill(&db, round + 10);
        drop(db);
        let copy = options(&disk).create_if_missing(false).open(&path).unwrap();
        assert_eq!(entries(&copy), before, "round {round}");
        assert!(copy.verify().unwrap().is_good(), "round {round}");
    }
}

#[test]
fn read_only_store_can_be_checkpointed() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    fill(&db, 1);
    let before = entries(&db);
    db.close().unwrap();
    let files = disk.list(Path::new(STORE_DIR)).unwrap();
    let read = options(&disk).read_only(true).open(STORE_DIR).unwrap();
    read.checkpoint(COPY).unwrap();
    drop(read);
    assert_eq!(disk.list(Path::new(STORE_DIR)).unwrap(), files, "the store is unchanged");
    let copy = options(&disk).create_if_missing(false).open(COPY).unwrap();
    assert_eq!(entries(&copy), before);
    fill(&copy, 3);
}

#[test]
fn checkpoint_keeps_keyspaces_options_and_history() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let kept = KeyspaceOptions::new()
        .keep_history(HistoryLength::Sequences(1000))
        .default_ttl(Duration::from_secs(5000));
    let old = db.keyspace_with("old", &kept).unwrap();
    old.insert("key", "1").unwrap();
    let past = db.snapshot().sequence();
    old.insert("key", "2").unwrap();
    old.flush().unwrap();
    db.rename_keyspace("old", "new").unwrap();
    db.keyspace("dropped").unwrap().insert("key", "3").unwrap();
    db.drop_keyspace("dropped").unwrap();
    db.checkpoint(COPY).unwrap();
    db.rename_keyspace("new", "newer").unwrap();
    let copy = options(&disk).create_if_missing(false).open(COPY).unwrap();
    assert_eq!(copy.keyspaces().unwrap(), ["default", "new"]);
    let new = copy.open_keyspace("new").unwrap();
    assert_eq!(new.options(), old.options());
    assert_eq!(new.snapshot_at(past).unwrap().get("key").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(new.ttl("key").unwrap(), old.ttl("key").unwrap());
}

#[test]
fn unfit_targets_are_refused_and_unchanged() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    fill(&db, 1);
    let file = disk.create(Path::new("data/full/notes.txt"));
    assert!(file.is_err(), "the directory is missing");
    disk.create_dir(Path::new("data/full")).unwrap();
    drop(disk.create(Path::new("data/full/notes.txt")).unwrap());
    drop(disk.create(Path::new("data/file")).unwrap());
    let before = disk.contents();
    for inside in [STORE_DIR, "data/db/copy", "data", "."] {
        let refused = db.checkpoint(inside);
        assert!(matches!(refused, Err(Error::DirectoriesOverlap { .. })), "{inside}: {refused:?}");
    }
    let refused = db.checkpoint("data/full");
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
    let refused = db.checkpoint("data/file");
    assert!(matches!(refused, Err(Error::NotADirectory { .. })), "{refused:?}");
    let locked = {
        disk.create_dir(Path::new(COPY)).unwrap();
        disk.lock(Path::new("data/copy/LOCK")).unwrap()
    };
    let refused = db.checkpoint(COPY);
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
    drop(locked);
    disk.unlink(Path::new("data/copy/LOCK")).unwrap();
    assert_eq!(disk.contents(), before);
    db.checkpoint(COPY).unwrap();
    let refused = db.checkpoint(COPY);
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
}

/// After a failed sync it is unknown what the disk has.
#[test]
fn store_that_became_read_only_is_refused() {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = small_options(Arc::clone(&faults) as Arc<dyn Fs>).open(STORE_DIR).unwrap();
    db.insert("key", "value").unwrap();
    faults.inject(Fault::new(5, Times::Once).suffix(".log"));
    db.persist(Durability::Disk).unwrap_err();
    let refused = db.checkpoint(COPY);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    assert!(!disk.exists(Path::new(COPY)).unwrap());
}

#[test]
fn closed_store_is_refused() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    db.shutdown(Duration::from_secs(60)).unwrap();
    let refused = db.checkpoint(COPY);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}

/// Files that a compaction makes obsolete while a checkpoint links them are unlinked afterwards.
#[test]
fn obsolete_files_are_unlinked_after_the_checkpoint() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    fill(&db, 1);
    db.checkpoint(COPY).unwrap();
    db.compact().unwrap();
    db.remove_range::<&[u8]>(..).unwrap();
    db.compact().unwrap();
    db.insert("last", "").unwrap();
    let tables = |path: &str| {
        let names = disk.list(Path::new(path)).unwrap();
        names.into_iter().filter(|name| name.ends_with(".sst")).count()
    };
    assert!(tables(STORE_DIR) <= 1, "{} tables are left", tables(STORE_DIR));
    assert!(tables(COPY) > 1);
}
