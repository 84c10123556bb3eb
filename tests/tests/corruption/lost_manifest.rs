//! A store whose manifest is lost is rebuilt from its tables and its log.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sievedb::{Db, Durability, Error, KeyspaceOptions, OlderValues, Options};
use sievedb_doubles::MemoryFs;

use super::{
    repair::{NEW, options, tables},
    sample::{Files, STORE_DIR, disk, files},
};

pub(super) type Contents = BTreeMap<(String, Vec<u8>), Bytes>;

pub(super) fn contents(db: &Db) -> Contents {
    let mut contents = Contents::new();
    for name in db.keyspaces().unwrap() {
        for entry in db.keyspace(&name).unwrap().iter() {
            let (key, value) = entry.unwrap();
            contents.insert((name.clone(), key.to_vec()), value);
        }
    }
    contents
}

fn small_tables() -> KeyspaceOptions {
    KeyspaceOptions::new().table_bytes(64 << 10).block_bytes(1 << 10)
}

fn open(fs: &Arc<MemoryFs>) -> Db {
    options(fs).keyspace(small_tables()).open(STORE_DIR).unwrap()
}

fn value(number: u32, round: u32) -> Vec<u8> {
    (number.wrapping_mul(0x9e37_79b9) ^ round).to_le_bytes().repeat(25)
}

/// Creates three keyspaces with different histories: flushes, compactions, deletions, and a log.
fn store(fs: &Arc<MemoryFs>) -> Contents {
    let db = open(fs);
    let users = db.keyspace_with("users", &small_tables()).unwrap();
    let logs = db.keyspace_with("logs", &KeyspaceOptions::new().block_bytes(2 << 10)).unwrap();
    let late = db.keyspace("late").unwrap();
    logs.insert("in a table", "1").unwrap();
    for round in 0..4 {
        for number in 0..2_000_u32 {
            let key = number.to_be_bytes();
            db.insert(key, value(number, round)).unwrap();
            match (number + round) % 3 {
                0 => users.remove(key).unwrap(),
                _ => users.insert(key, value(number, round)).unwrap(),
            }
        }
        db.flush().unwrap();
        users.flush().unwrap();
        logs.flush().unwrap();
        if round == 2 {
            db.compact().unwrap();
            users.compact().unwrap();
        }
    }
    for number in 0..50_u32 {
        let mut batch = db.batch();
        batch.insert(&logs, number.to_be_bytes(), "in the log").unwrap();
        batch.insert(&late, number.to_be_bytes(), "in the log").unwrap();
        batch.remove(&users, (number * 7).to_be_bytes()).unwrap();
        batch.commit(Durability::Disk).unwrap();
    }
    contents(&db)
}

pub(super) fn lose(files: &mut Files, names: &[&str]) {
    files.retain(|name, _| !names.iter().any(|lost| name.starts_with(lost)));
}

#[test]
fn n15_repair_without_manifest_or_current_loses_nothing() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let whole = store(&fs);
    let good = files(&fs);
    assert!(tables(&good).len() >= 4, "{:?}", good.keys());
    for (lost, is_rebuilt) in [
        (&["MANIFEST"][..], true),
        (&["CURRENT"], false),
        (&["MANIFEST", "CURRENT"], true),
        (&["MANIFEST", "CURRENT", "CLOSED"], true),
    ] {
        let mut files = good.clone();
        lose(&mut files, lost);
        let fs = disk(&files);
        assert!(options(&fs).open(STORE_DIR).is_err());
        let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert_eq!(report.is_rebuilt, is_rebuilt, "{lost:?}: {report}");
        assert_eq!(report.lost.len(), usize::from(is_rebuilt), "{lost:?}: {report}");
        assert_eq!(report.replaced.len(), usize::from(!is_rebuilt), "{lost:?}: {report}");
        assert_eq!(report.older, 0, "{lost:?}: {report}");
        for (name, bytes) in &files {
            let path = format!("{STORE_DIR}/{name}");
            assert_eq!(fs.contents().get(&*path), Some(bytes), "{name} has changed");
        }
        let db = options(&fs).open(NEW).unwrap();
        let mut found = contents(&db);
        if is_rebuilt {
            // Its name was in a deleted segment of the log.
            let [name] = &report.keyspaces_unnamed[..] else { panic!("{lost:?}: {report}") };
            found = found
                .into_iter()
                .map(|((of, key), value)| {
                    ((if of == *name { "late".to_owned() } else { of }, key), value)
                })
                .collect();
        }
        assert!(found == whole, "{lost:?}: {report}");
        assert_eq!(db.keyspace("users").unwrap().options(), small_tables());
        let logs = db.keyspace("logs").unwrap().options();
        assert_eq!(logs, KeyspaceOptions::new().block_bytes(2 << 10));
        assert_eq!(db.default_keyspace().options(), small_tables());
    }
}

/// Returns the files of `after` with those of `before`, whose unlinks were lost.
fn with_unlinked(before: &Files, after: &Files) -> Files {
    let mut files = after.clone();
    for (name, bytes) in before.iter().filter(|(name, _)| name.ends_with(".sst")) {
        files.entry(name.clone()).or_insert_with(|| bytes.clone());
    }
    lose(&mut files, &["MANIFEST", "CURRENT", "CLOSED"]);
    files
}

pub(super) fn repaired(files: &Files) -> (sievedb::RepairReport, Contents) {
    let fs = disk(files);
    let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
    let db = options(&fs).open(NEW).unwrap();
    (report, contents(&db))
}

#[test]
fn n15_obsolete_inputs_do_not_restore_deleted_keys() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    let others = db.keyspace("others").unwrap();
    for number in 0..1_000_u32 {
        db.insert(number.to_be_bytes(), value(number, 0)).unwrap();
        others.insert(number.to_be_bytes(), "kept").unwrap();
    }
    db.flush().unwrap();
    others.flush().unwrap();
    db.compact().unwrap();
    let before_removal = files(&fs);
    // Pins the current tables, so that their files remain.
    let pinned = db.iter();
    for number in 0..900_u32 {
        db.remove(number.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    // Drops the tombstones: their table is replaced at once, and an older one remains.
    db.compact().unwrap();
    let whole = contents(&db);
    assert_eq!(whole.len(), 1_100);
    let late = with_unlinked(&before_removal, &files(&fs));
    let (report, found) = repaired(&late);
    assert!(found == whole, "{} keys: {report}", found.len());
    assert!(report.tables_left_out > 0, "{report}");

    // The table that names the first ones as its inputs is replaced and deleted in turn.
    for number in 900..1_000_u32 {
        db.insert(number.to_be_bytes(), value(number, 1)).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let late = with_unlinked(&before_removal, &files(&fs));
    let (report, found) = repaired(&late);
    assert!(found == contents(&db), "{} keys: {report}", found.len());

    // The keyspace has no file left, so the next table of another one records it.
    for number in 900..1_000_u32 {
        db.remove(number.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    others.insert("more", "of others").unwrap();
    others.flush().unwrap();
    let late = with_unlinked(&before_removal, &files(&fs));
    let (report, found) = repaired(&late);
    assert!(found == contents(&db), "{} keys: {report}", found.len());
    drop(pinned);
}

#[test]
fn n15_tables_of_a_dropped_keyspace_are_not_restored() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    let old = db.keyspace("users").unwrap();
    old.insert("old", "1").unwrap();
    old.flush().unwrap();
    let gone = db.keyspace("gone").unwrap();
    gone.insert("old", "1").unwrap();
    gone.flush().unwrap();
    let before_drop = files(&fs);
    let pinned = gone.iter();
    drop((old, gone));
    db.drop_keyspace("users").unwrap();
    db.drop_keyspace("gone").unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("new", "2").unwrap();
    users.flush().unwrap();
    let late = with_unlinked(&before_drop, &files(&fs));
    let (report, found) = repaired(&late);
    assert_eq!(found.keys().map(|(name, _)| &**name).collect::<Vec<_>>(), ["users"], "{report}");
    assert!(found == contents(&db), "{report}");
    drop(pinned);
}

/// A damaged block may hide newer entries, in any order of the tables.
#[test]
fn n15_damage_beside_a_lost_manifest_is_reported() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    for round in 0..2 {
        for number in 0..1_000_u32 {
            db.insert(number.to_be_bytes(), value(number, round)).unwrap();
        }
        db.flush().unwrap();
    }
    let whole = contents(&db);
    drop(db);
    let mut files = files(&fs);
    let newest = tables(&files).pop().unwrap();
    lose(&mut files, &["MANIFEST"]);
    super::repair::change(&mut files, &newest, |end| end / 2);
    let (report, found) = repaired(&files);
    assert_eq!(report.lost.len(), 2, "{report}");
    assert!(report.older > 0, "{report}");
    assert!(found.iter().all(|(key, value)| whole.get(key) == Some(value)), "{report}");
    assert!(found.len() > 900 && found.len() < 1_000, "{}", found.len());
}

#[test]
fn n15_store_of_a_later_release_is_not_repaired() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    drop(store(&fs));
    let mut files = files(&fs);
    let current = &files["CURRENT"];
    let mut header = current.to_vec();
    header[8] = 2;
    let checksum = sievedb_format::checksum::crc32(&[&header[..60]]);
    header[60..64].copy_from_slice(&checksum.to_le_bytes());
    let checksum = sievedb_format::checksum::crc32(&[&header[..72]]);
    header[72..76].copy_from_slice(&checksum.to_le_bytes());
    files.insert("CURRENT".to_owned(), header.into());
    let fs = disk(&files);
    let error = Options::repair(&options(&fs), STORE_DIR, NEW, OlderValues::Keep).unwrap_err();
    assert!(
        matches!(&error, Error::NewerRelease { path, .. } if path.ends_with("CURRENT")),
        "{error}"
    );
}
