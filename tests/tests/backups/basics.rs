//! Create, list, verify, prune and restore.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc, time::Duration};

use sievedb::{BackupSet, Durability, Error, Retention, clock::ManualClock, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{SET, entries, options, set};

/// Returns the names of the objects of the set.
fn objects(disk: &MemoryFs) -> Vec<String> {
    disk.list(Path::new("data/set/objects")).unwrap()
}

#[test]
fn each_backup_restores_its_point_and_adds_only_what_is_new() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    assert_eq!(set.list().unwrap(), []);
    for number in 0..500_u32 {
        db.insert(number.to_be_bytes(), [1; 200]).unwrap();
    }
    db.compact().unwrap();
    let mut wanted = Vec::new();
    for round in 0..3_u32 {
        db.insert(round.to_be_bytes(), [7; 200]).unwrap();
        let mut batch = db.batch();
        batch.insert(&db, "buffered", [round as u8]).unwrap();
        batch.commit(Durability::Memory).unwrap();
        let backup = set.create(&db).unwrap();
        assert_eq!(backup.sequence, db.snapshot().sequence());
        assert_eq!(backup.number, u64::from(round) + 1);
        if round > 0 {
            assert!(backup.bytes_added * 20 < backup.bytes, "{backup:?}");
        }
        wanted.push(entries(&db));
    }
    assert_eq!(set.create(&db).unwrap().bytes_added, 0, "nothing has changed");
    let listed = set.list().unwrap();
    assert_eq!(listed.iter().map(|backup| backup.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let report = set.verify().unwrap();
    assert!(report.problems.is_empty() && report.backups == 4, "{report}");
    drop(db);
    for (wanted, number) in wanted.iter().zip(1..) {
        let path = format!("data/restored{number}");
        let restored = set.restore(number, &path).unwrap();
        let copy = options(&disk).create_if_missing(false).open(&path).unwrap();
        assert_eq!(entries(&copy), *wanted, "backup {number}");
        assert_eq!(copy.snapshot().sequence(), restored.sequence);
        assert!(copy.verify().unwrap().is_good());
        copy.insert("later", "").unwrap();
        copy.compact().unwrap();
        // The restored store can be backed up into the same set.
        set.create(&copy).unwrap();
    }
    assert!(matches!(set.restore(9, "data/none"), Err(Error::NoBackup { number: 9, .. })));
    let refused = set.restore(1, "data/restored1");
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
}

#[test]
fn prune_removes_backups_and_only_their_own_files() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let clock = Arc::new(ManualClock::new());
    let set = BackupSet::with_fs(SET, Arc::clone(&disk) as Arc<dyn Fs>, Arc::clone(&clock) as _);
    let mut wanted = Vec::new();
    for round in 0..6_u8 {
        for number in 0..30_u32 {
            db.insert(number.to_be_bytes(), [round; 300]).unwrap();
        }
        db.compact().unwrap();
        set.create(&db).unwrap();
        wanted.push(entries(&db));
        clock.advance(Duration::from_secs(12 * 3600));
        clock.set_unix_time(Duration::from_secs(12 * 3600 * (u64::from(round) + 1)));
    }
    let before = objects(&disk).len();
    let kept = Retention::new().last(2).daily(2);
    let removed = set.prune(&kept).unwrap().removed;
    let left: Vec<_> = set.list().unwrap().iter().map(|backup| backup.number).collect();
    assert_eq!(left, [4, 5, 6]);
    assert_eq!(removed, [1, 2, 3]);
    assert!(objects(&disk).len() < before);
    assert!(set.verify().unwrap().problems.is_empty());
    for number in left {
        let path = format!("data/restored{number}");
        set.restore(number, &path).unwrap();
        let copy = options(&disk).create_if_missing(false).open(&path).unwrap();
        assert_eq!(entries(&copy), wanted[number as usize - 1], "backup {number}");
    }
    for no_rule in [Retention::new(), Retention::new().last(0).monthly(0)] {
        let refused = set.prune(&no_rule);
        let is_named = matches!(refused, Err(Error::InvalidOption { name: "retention", .. }));
        assert!(is_named && set.list().unwrap().len() == 3, "{refused:?}");
    }
    assert_eq!(set.prune(&Retention::new().last(1)).unwrap().removed, [4, 5]);
    assert_eq!(set.list().unwrap().len(), 1, "the newest is always kept");
}

#[test]
fn prune_keeps_backups_of_each_store() {
    let disk = Arc::new(MemoryFs::new());
    let stores = ["data/a", "data/b"].map(|path| options(&disk).open(path).unwrap());
    let clock = Arc::new(ManualClock::new());
    let set = BackupSet::with_fs(SET, Arc::clone(&disk) as Arc<dyn Fs>, Arc::clone(&clock) as _);
    for day in 0..4_u8 {
        clock.advance(Duration::from_secs(24 * 3600));
        for db in &stores {
            db.insert("day", [day]).unwrap();
            set.create(db).unwrap();
        }
    }
    let ids: Vec<_> = set.list().unwrap().iter().map(|backup| backup.store).collect();
    assert!(ids[0] != ids[1] && ids[..2] == ids[2..4], "{ids:?}");
    assert_eq!(set.prune(&Retention::new().daily(2)).unwrap().removed, [1, 2, 3, 4]);
    assert_eq!(set.prune(&Retention::new().last(1)).unwrap().removed, [5, 6]);
    for number in [7, 8] {
        let path = format!("data/restored{number}");
        set.restore(number, &path).unwrap();
        let copy = options(&disk).create_if_missing(false).open(path).unwrap();
        assert_eq!(copy.get("day").unwrap().as_deref(), Some(&[3][..]));
    }
}

#[test]
fn damage_is_found_and_never_restored() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    for number in 0..50_u32 {
        db.insert(number.to_be_bytes(), [1; 200]).unwrap();
    }
    db.flush().unwrap();
    db.insert("logged", "").unwrap();
    let set = set(&disk);
    set.create(&db).unwrap();
    let directory = Path::new("data/set");
    let files = objects(&disk).into_iter().map(|name| directory.join("objects").join(name));
    for path in files.chain([directory.join("backups/000001")]) {
        let good = disk.contents()[path.to_str().unwrap()].clone();
        let mut flipped = good.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        let cut = good[..good.len() - 1].to_vec();
        for bad in [flipped, cut] {
            disk.replace(&path, bad).unwrap();
            let report = set.verify().unwrap();
            assert_eq!(report.problems.len(), 1, "{}: {report}", path.display());
            let restored = set.restore(1, "data/restored");
            assert!(matches!(restored, Err(Error::Corrupt { .. })), "{restored:?}");
            let left = disk.list(Path::new("data/restored")).unwrap_or_default();
            assert_eq!(left, [""; 0]);
        }
        disk.replace(&path, good).unwrap();
    }
    set.restore(1, "data/restored").unwrap();
    // A later release may write another version.
    let path = directory.join("backups/000001");
    let mut newer = disk.contents()[path.to_str().unwrap()].to_vec();
    newer[8] = 2;
    disk.replace(&path, newer).unwrap();
    assert!(matches!(set.list(), Err(Error::NewerRelease { .. })));
    assert!(matches!(set.prune(&Retention::new().last(1)), Err(Error::NewerRelease { .. })));
}

#[test]
fn a_damaged_record_does_not_block_prunes() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    for round in 0..4_u8 {
        db.insert("key", [round; 300]).unwrap();
        db.compact().unwrap();
        set.create(&db).unwrap();
    }
    let record = "data/set/backups/000001";
    let good = disk.read(record).unwrap();
    disk.replace(record, vec![7; 100]).unwrap();
    assert_eq!(set.list().unwrap().len(), 3);
    let before = objects(&disk);
    let pruned = set.prune(&Retention::new().last(1)).unwrap();
    assert_eq!((&pruned.removed[..], &pruned.damaged[..]), (&[2, 3][..], &[1][..]));
    assert_eq!(objects(&disk), before, "the files of the damaged backup are unknown");
    disk.replace(record, good).unwrap();
    set.restore(1, "data/restored").unwrap();
    assert_eq!(set.prune(&Retention::new().last(2)).unwrap().removed, []);
    assert!(objects(&disk).len() < before.len());
    disk.replace(record, vec![7; 100]).unwrap();
    disk.unlink(Path::new("data/set/backups/000004")).unwrap();
    assert!(matches!(set.list(), Err(Error::Corrupt { .. })), "none is left");
}

#[test]
fn damaged_table_is_not_backed_up() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    db.insert("key", [1; 3000]).unwrap();
    db.flush().unwrap();
    let table = disk.contents().into_keys().find(|path| path.ends_with(".sst")).unwrap();
    let mut bytes = disk.contents()[&table].to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.replace(&*table, bytes).unwrap();
    let set = set(&disk);
    let failed = set.create(&db);
    assert!(matches!(failed, Err(Error::Corrupt { .. })), "{failed:?}");
    assert_eq!(set.list().unwrap(), []);
    assert_eq!(objects(&disk), [""; 0]);
}

#[test]
fn one_writer_at_a_time_changes_a_set() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    set.create(&db).unwrap();
    let lock = disk.lock(Path::new("data/set/LOCK")).unwrap();
    assert!(matches!(set.create(&db), Err(Error::Locked { .. })));
    assert!(matches!(set.prune(&Retention::new().last(1)), Err(Error::Locked { .. })));
    set.verify().unwrap();
    drop(lock);
    set.create(&db).unwrap();
    let inside = BackupSet::with_fs("data/db/set", disk, Arc::new(ManualClock::new()));
    assert!(matches!(inside.create(&db), Err(Error::DirectoriesOverlap { .. })));
}
