//! Archived logs, and restores to a point in time.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{
    ChangeRetention, Db, Error, Options, PointInTime, RestoreOptions, Retention,
    clock::ManualClock, fs::Fs,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{SET, entries, options, set};

pub(super) fn retaining(disk: &Arc<MemoryFs>) -> Options {
    options(disk).retain_changes(ChangeRetention::bytes(1 << 20))
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Restores `point` and returns the entries and the sequence number of the new store.
fn restored(disk: &Arc<MemoryFs>, options: &RestoreOptions, to: &str) -> (Entries, u64) {
    let backup = set(disk).restore_with(options, to).unwrap();
    let copy = retaining(disk).create_if_missing(false).open(to).unwrap();
    assert!(copy.verify().unwrap().is_good(), "{to}");
    assert_eq!(copy.snapshot().sequence(), backup.sequence);
    let found = entries(&copy);
    // The new store goes on.
    copy.insert("later", "").unwrap();
    copy.compact().unwrap();
    (found, backup.sequence)
}

fn parts(disk: &MemoryFs) -> Vec<String> {
    disk.list(&Path::new(SET).join("log")).unwrap()
}

fn write(db: &Db, round: u32) {
    for number in 0..7 {
        db.insert(format!("{number}"), round.to_be_bytes().repeat(40)).unwrap();
    }
    let mut batch = db.batch();
    batch.insert(db, "both", round.to_be_bytes()).unwrap();
    batch.remove(db, format!("{}", round % 7)).unwrap();
    batch.commit(sievedb::Durability::Memory).unwrap();
}

#[test]
fn every_sequence_number_is_restored() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let mut archive = set(&disk).archive(&db).unwrap().backup_after_log_bytes(6000);
    write(&db, 0);
    let first = archive.update().unwrap();
    assert_eq!(first.backup.map(|backup| backup.number), Some(1));
    assert_eq!(first.sequence, db.snapshot().sequence());
    let mut wanted = vec![(first.sequence, entries(&db))];
    for round in 1..12 {
        for number in 0..3 {
            db.insert(format!("{number}"), round.to_string()).unwrap();
            wanted.push((db.snapshot().sequence(), entries(&db)));
        }
        write(&db, round);
        wanted.push((db.snapshot().sequence(), entries(&db)));
        match round % 4 {
            1 => db.flush().unwrap(),
            2 => db.compact().unwrap(),
            _ => {}
        }
        let update = archive.update().unwrap();
        assert_eq!(update.sequence, db.snapshot().sequence());
        assert!(update.log_bytes_added > 0);
    }
    drop(db);
    let listed = set(&disk).list().unwrap();
    assert!(listed.len() > 2, "{listed:?}");
    let end = wanted.last().unwrap().0;
    assert_eq!(listed.last().unwrap().archived_to, end);
    // Logs overlap: the old one goes on beyond the next backup.
    assert!(listed.windows(2).all(|pair| pair[0].archived_to >= pair[1].sequence), "{listed:?}");
    assert!(set(&disk).verify().unwrap().problems.is_empty());
    for (number, (sequence, content)) in wanted.iter().enumerate() {
        let to = RestoreOptions::new().to(*sequence);
        let (found, restored_to) = restored(&disk, &to, &format!("data/restored{number}"));
        assert_eq!((&found, restored_to), (content, *sequence));
    }
    // Within the last batch: it is left out as a whole.
    let within = RestoreOptions::new().to(end - 1);
    let (found, restored_to) = restored(&disk, &within, "data/within");
    assert_eq!(restored_to, end - 2);
    assert_ne!(found, wanted.last().unwrap().1);
    // By default all of it.
    let (found, _) = restored(&disk, &RestoreOptions::new(), "data/all");
    assert_eq!(found, wanted.last().unwrap().1);
    // From a backup on that is not the newest.
    let older = RestoreOptions::new().backup(1).to(wanted[3].0);
    assert_eq!(restored(&disk, &older, "data/older").0, wanted[3].1);
    for at in [0, end + 1] {
        let refused = set(&disk).restore_with(&RestoreOptions::new().to(at), "data/refused");
        assert!(matches!(refused, Err(Error::NotArchived { .. })), "{at}: {refused:?}");
    }
    assert_eq!(disk.list(Path::new("data/refused")).unwrap_or_default(), [""; 0]);
}

#[test]
fn times_are_restored() {
    let disk = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    clock.set_unix_time(Duration::from_secs(1_000_000));
    let db = retaining(&disk).clock(Arc::clone(&clock) as _).open(STORE_DIR).unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    let time = |after: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + after);
    // A write every 2 seconds, an update every 10, and 60 idle ones.
    for second in 1..=60_u64 {
        clock.advance(Duration::from_secs(1));
        if second % 2 == 0 {
            db.insert("second", second.to_string()).unwrap();
        }
        if second % 10 == 5 {
            archive.update().unwrap();
        }
    }
    for _ in 0..6 {
        clock.advance(Duration::from_secs(10));
        archive.update().unwrap();
    }
    drop(db);
    for (number, at) in [4_u64, 25, 37, 55, 100].into_iter().enumerate() {
        let path = format!("data/restored{number}");
        set.restore_with(&RestoreOptions::new().to(time(at)), &path).unwrap();
        let copy = retaining(&disk).create_if_missing(false).open(&path).unwrap();
        let found = copy.get("second").unwrap();
        let found = found.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap());
        let newest = at.min(60) / 2 * 2;
        assert!((newest.saturating_sub(2)..=newest).contains(&found), "{at}: {found}");
    }
    for at in [time(121), SystemTime::UNIX_EPOCH] {
        let refused = set.restore_with(&RestoreOptions::new().to(at), "data/refused");
        let is_refused = matches!(
            refused,
            Err(Error::NotArchived { at: PointInTime::Time(found), .. }) if found == at
        );
        assert!(is_refused, "{refused:?}");
    }
}

#[test]
fn a_missing_or_damaged_part_is_named() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    let mut points = Vec::new();
    for round in 0..4 {
        write(&db, round);
        points.push(archive.update().unwrap().sequence);
    }
    let names = parts(&disk);
    assert_eq!(names.len(), 3, "{names:?}");
    let path = Path::new(SET).join("log").join(&names[1]);
    let good = disk.contents()[path.to_str().unwrap()].clone();
    let mut flipped = good.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for bad in [Some(flipped), Some(good[..good.len() - 1].to_vec()), None] {
        match bad {
            Some(bad) => disk.replace(&path, bad).unwrap(),
            None => disk.unlink(&path).unwrap(),
        }
        let report = set.verify().unwrap();
        assert_eq!(report.problems.len(), 1, "{report}");
        for at in &points[2..] {
            let refused = set.restore_with(&RestoreOptions::new().to(*at), "data/refused");
            let is_named = matches!(&refused, Err(Error::Corrupt { path: found, .. })
                if *found == path);
            assert!(is_named, "{refused:?}");
            assert_eq!(disk.list(Path::new("data/refused")).unwrap_or_default(), [""; 0]);
        }
    }
    // A wrong directory fails before the log is read.
    let refused = set.restore_with(&RestoreOptions::new(), STORE_DIR);
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
    // What comes before is not affected.
    set.restore_with(&RestoreOptions::new().to(points[1]), "data/before").unwrap();
    set.restore(1, "data/backup").unwrap();
}

#[test]
fn prune_removes_logs_with_their_backups_and_the_archive_begins_another() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    for round in 0..3 {
        write(&db, round);
        archive.update().unwrap();
    }
    let kept = set.create(&db).unwrap();
    assert!(!parts(&disk).is_empty());
    set.prune(&Retention::new().last(1)).unwrap();
    assert_eq!(parts(&disk), [""; 0]);
    write(&db, 3);
    let update = archive.update().unwrap();
    assert_eq!(update.backup.map(|backup| backup.number), Some(kept.number + 1));
    assert!(set.verify().unwrap().problems.is_empty());
    let lock = disk.lock(Path::new("data/set/LOCK")).unwrap();
    assert!(matches!(archive.update(), Err(Error::Locked { .. })));
    drop(lock);
    write(&db, 4);
    archive.update().unwrap();
    let wanted = entries(&db);
    drop(db);
    assert!(matches!(archive.update(), Err(Error::Closed)));
    assert_eq!(restored(&disk, &RestoreOptions::new(), "data/all").0, wanted);
}

#[test]
fn changes_that_are_lost_begin_another_log() {
    let disk = Arc::new(MemoryFs::new());
    let without = options(&disk).open(STORE_DIR).unwrap();
    let refused = set(&disk).archive(&without);
    assert!(matches!(refused, Err(Error::ChangesNotRetained { .. })), "{refused:?}");
    drop(without);
    let db = options(&disk).retain_changes(ChangeRetention::bytes(1)).open(STORE_DIR).unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    write(&db, 0);
    let between = db.snapshot().sequence();
    for round in 1..20 {
        write(&db, round);
        db.flush().unwrap();
    }
    let update = archive.update().unwrap();
    assert_eq!(update.backup.map(|backup| backup.number), Some(2));
    let wanted = entries(&db);
    drop(db);
    assert_eq!(restored(&disk, &RestoreOptions::new(), "data/all").0, wanted);
    // No log leads there.
    let refused = set.restore_with(&RestoreOptions::new().to(between), "data/refused");
    assert!(matches!(refused, Err(Error::NotArchived { .. })), "{refused:?}");
}

#[test]
fn keyspaces_are_restored_as_of_the_point() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("key", "old").unwrap();
    db.insert("key", "default").unwrap();
    let good = db.snapshot().sequence();
    users.insert("key", "new").unwrap();
    db.rename_keyspace("users", "people").unwrap();
    archive.update().unwrap();
    drop((db, users));
    let wanted = RestoreOptions::new().to(good).keyspaces(["users"]);
    set.restore_with(&wanted, "data/users").unwrap();
    let copy = retaining(&disk).create_if_missing(false).open("data/users").unwrap();
    let found = copy.open_keyspace("users").unwrap().get("key").unwrap();
    assert_eq!(found.as_deref(), Some(&b"old"[..]));
    assert_eq!(copy.get("key").unwrap(), None);
    let wanted = RestoreOptions::new().keyspaces(["people"]);
    set.restore_with(&wanted, "data/people").unwrap();
    let copy = retaining(&disk).create_if_missing(false).open("data/people").unwrap();
    assert_eq!(copy.keyspaces().unwrap().len(), 2);
    let found = copy.open_keyspace("people").unwrap().get("key").unwrap();
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
    // Changes before are not of this store.
    assert!(matches!(copy.changes(good), Err(Error::ChangesLost { .. })));
}

#[test]
fn the_newest_backup_leads_to_the_end_of_the_log() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let other = retaining(&disk).open("data/other").unwrap();
    let set = set(&disk);
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    let mut check = |number: u32, backup: Option<u64>| {
        db.insert("number", number.to_be_bytes()).unwrap();
        let update = archive.update().unwrap();
        assert_eq!(update.backup.map(|backup| backup.number), backup, "{number}");
        let newest = set.list().unwrap().into_iter().rfind(|it| ![4, 6].contains(&it.number));
        let newest = newest.unwrap();
        let options = RestoreOptions::new().backup(newest.number).to(update.sequence);
        let (found, sequence) = restored(&disk, &options, &format!("data/restored{number}"));
        assert_eq!((found, sequence), (entries(&db), update.sequence), "{number}");
    };
    check(0, None);
    db.ingest([("ingested", "value")]).unwrap();
    check(1, Some(2));
    check(2, None);
    assert_eq!(set.create(&db).unwrap().number, 3);
    set.create(&other).unwrap();
    check(3, Some(5));
    check(4, None);
    set.create(&other).unwrap();
    check(5, None);
}
