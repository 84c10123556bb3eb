//! A lost manifest after a crash or a failed write.

use std::sync::Arc;

use sievedb::Durability;
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};

use super::{
    lost_manifest::{Contents, contents, lose, repaired},
    repair::options,
    sample::{Files, STORE_DIR, disk, files},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn without_manifest(files: &Files) -> Files {
    let mut files = files.clone();
    lose(&mut files, &["MANIFEST", "CURRENT", "CLOSED"]);
    files
}

/// Makes the next edit of the manifest fail, and all unlinks of tables.
fn fail_edit(fs: &FaultFs, disk: &MemoryFs) {
    let files = files(disk);
    let manifest = files.keys().rfind(|name| name.starts_with("MANIFEST")).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(manifest));
    fs.inject(Fault::new(EIO, Times::ForGood).calls(&[Call::Unlink]).suffix(".sst"));
}

/// The table of a failed flush records what is flushed, and a later table names it.
#[test]
fn n15_failed_flush_hides_no_log_entry() {
    let disk = Arc::new(MemoryFs::with_seed(7));
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = options(&disk).fs(fs.clone()).open(STORE_DIR).unwrap();
    let others = db.keyspace("others").unwrap();
    others.insert("first", "1").unwrap();
    others.flush().unwrap();
    db.insert("a", "1").unwrap();
    db.persist(Durability::Disk).unwrap();
    others.insert("second", "2").unwrap();
    fail_edit(&fs, &disk);
    db.flush().unwrap_err();
    fs.heal();
    let whole = contents(&db);
    let before = files(&disk);
    fs.inject(Fault::new(EIO, Times::ForGood).calls(&[Call::Unlink]));
    others.flush().unwrap();
    let mut after = files(&disk);
    let is_new = |name: &&String| name.ends_with(".sst") && !before.contains_key(*name);
    let written: Vec<_> = after.keys().filter(is_new).cloned().collect();
    // The first file is that of the second attempt. Removes it, as if it was not written yet.
    let [again, ..] = &written[..] else { panic!("{written:?}") };
    after.remove(again);
    let (report, found) = repaired(&without_manifest(&after));
    assert!(found == whole, "{found:?}: {report}");
}

/// Creates a log with a dropped keyspace, one of the same name, and one without tables.
fn logged() -> (Files, Contents) {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).log_segment_bytes(4 << 10).open(STORE_DIR).unwrap();
    let gone = db.keyspace("gone").unwrap();
    let again = db.keyspace("again").unwrap();
    let late = db.keyspace("late").unwrap();
    for number in 0..100_u32 {
        let mut batch = db.batch();
        for keyspace in [&gone, &again, &late] {
            batch.insert(keyspace, number.to_be_bytes(), [7; 30]).unwrap();
        }
        batch.insert(&db, number.to_be_bytes(), [8; 30]).unwrap();
        batch.commit(Durability::Disk).unwrap();
    }
    drop((gone, again));
    db.drop_keyspace("gone").unwrap();
    db.drop_keyspace("again").unwrap();
    let again = db.keyspace("again").unwrap();
    again.insert("new", "1").unwrap();
    for number in 0..50_u32 {
        late.remove(number.to_be_bytes()).unwrap();
        db.remove((number + 20).to_be_bytes()).unwrap();
    }
    db.persist(Durability::Disk).unwrap();
    let whole = contents(&db);
    let mut files = files(&fs);
    files.remove("CLOSED");
    (files, whole)
}

#[test]
fn n15_rewritten_log_keeps_names_and_drops_of_keyspaces() {
    let (files_before, whole) = logged();
    let fs = disk(&files_before);
    let db = options(&fs).open(STORE_DIR).unwrap();
    assert!(contents(&db) == whole);
    let after = files(&fs);
    drop(db);
    let (report, found) = repaired(&without_manifest(&after));
    assert!(found == whole, "{:?}: {report}", keyspaces(&found));
    assert!(report.keyspaces_unnamed.is_empty(), "{report}");
}

/// The log and a part of its copy exist, at each interruption of the recovery.
#[test]
fn n15_unfinished_log_copy_adds_nothing() {
    let (before, whole) = logged();
    let fs = disk(&before);
    let db = options(&fs).open(STORE_DIR).unwrap();
    let after = files(&fs);
    drop(db);
    let is_copy = |name: &&String| name.ends_with(".log") && !before.contains_key(*name);
    let copy = after.keys().find(is_copy).unwrap();
    assert!(before.keys().filter(|name| name.ends_with(".log")).count() > 1, "{:?}", before.keys());
    let bytes = &after[copy];
    for part in 0..=24 {
        let mut files = without_manifest(&before);
        files.insert(copy.clone(), bytes.slice(..bytes.len() * part / 24));
        let (report, found) = repaired(&files);
        assert!(found == whole, "{part}: {:?}: {report}", keyspaces(&found));
        assert_eq!(report.lost.len(), 1, "{part}: {report}");
        assert!(report.keyspaces_unnamed.is_empty(), "{part}: {report}");
    }
}

fn keyspaces(contents: &Contents) -> std::collections::BTreeMap<&str, usize> {
    contents.keys().fold(std::collections::BTreeMap::new(), |mut counts, (name, _)| {
        *counts.entry(&**name).or_default() += 1;
        counts
    })
}
