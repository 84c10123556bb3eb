//! What reads the log: change streams, followers, archives, repairs.

use std::sync::Arc;

use sievedb::{
    BackupSet, ChangeRetention, Error, RestoreOptions, changes::ChangeKind, clock::ManualClock,
    fs::Fs,
};
use sievedb_doubles::MemoryFs;

use super::{key, of, options};

/// The change stream reports an ingest, also after a reopening.
#[test]
fn the_change_stream_reports_an_ingest() {
    let disk = Arc::new(MemoryFs::new());
    let retained = || options(&disk).retain_changes(ChangeRetention::bytes(1 << 20));
    let db = retained().open("data/db").unwrap();
    let since = db.snapshot().sequence();
    db.insert("a", "1").unwrap();
    let ingested = db.ingest([("b", "2"), ("c", "3")]).unwrap();
    db.insert("d", "4").unwrap();
    drop(db);
    let db = retained().open("data/db").unwrap();
    let changes = db.changes(since).unwrap();
    let mut kinds = Vec::new();
    for batch in changes {
        kinds.extend(batch.unwrap().into_iter().map(|change| (change.sequence, change.kind)));
        if kinds.len() == 3 {
            break;
        }
    }
    assert_eq!(kinds[1], (ingested.sequence, ChangeKind::Ingest));
}

/// A follower sees the entries after a refresh.
#[test]
fn a_follower_sees_an_ingest() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    db.insert("a", "1").unwrap();
    let follower = options(&disk).follow(true).open_files_max(100).open("data/db").unwrap();
    db.ingest((0..500).map(|number| (key(number), [7; 40]))).unwrap();
    db.insert("b", "2").unwrap();
    db.persist(sievedb::Durability::OsBuffer).unwrap();
    follower.refresh().unwrap();
    assert!(follower.iter().map(of).eq(db.iter().map(of)));
    let snapshot = follower.snapshot();
    db.ingest([("a", "3")]).unwrap();
    follower.refresh().unwrap();
    assert_eq!(snapshot.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(follower.get("a").unwrap().as_deref(), Some(&b"3"[..]));
}

/// A restore refuses to go from a backup before an ingest to a point after it.
#[test]
fn an_archived_log_does_not_replace_ingested_tables() {
    let disk = Arc::new(MemoryFs::new());
    let retained = options(&disk).retain_changes(ChangeRetention::bytes(1 << 20));
    let db = retained.open("data/db").unwrap();
    let fs = Arc::clone(&disk) as Arc<dyn Fs>;
    let set = BackupSet::with_fs("data/set", fs, Arc::new(ManualClock::new()));
    let mut archive = set.archive(&db).unwrap();
    db.insert("a", "1").unwrap();
    archive.update().unwrap();
    db.insert("b", "2").unwrap();
    let before = db.snapshot().sequence();
    let ingested = db.ingest([("a", "3")]).unwrap();
    db.insert("c", "4").unwrap();
    archive.update().unwrap();
    let first = set.list().unwrap()[0].number;
    let to = |sequence: u64| RestoreOptions::new().backup(first).to(sequence);
    let refused = set.restore_with(&to(db.snapshot().sequence()), "data/refused").unwrap_err();
    let Error::IngestNotArchived { sequence, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(sequence, ingested.sequence);
    set.restore_with(&to(before), "data/before").unwrap();
    let restored = options(&disk).open("data/before").unwrap();
    assert_eq!(restored.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(restored.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    drop(archive);
    let number = set.create(&db).unwrap().number;
    set.restore(number, "data/after").unwrap();
    let restored = options(&disk).open("data/after").unwrap();
    assert!(restored.iter().map(of).eq(db.iter().map(of)));
}

/// A repair copies ingested tables in the right order.
#[test]
fn a_repair_keeps_ingested_entries() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    (0..20).for_each(|number| db.insert(key(number), "old").unwrap());
    db.flush().unwrap();
    db.ingest((5..15).map(|number| (key(number), "new"))).unwrap();
    db.insert(key(7), "newest").unwrap();
    let want: Vec<_> = db.iter().map(of).collect();
    drop(db);
    options(&disk).repair("data/db", "data/repaired", sievedb::OlderValues::LeaveOut).unwrap();
    let repaired = options(&disk).open("data/repaired").unwrap();
    assert!(repaired.iter().map(of).eq(want));
}
