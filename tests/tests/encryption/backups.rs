//! Backups of encrypted stores.

use std::{path::Path, sync::Arc};

use sievedb::{BackupSet, Db, Error, RootKey, StaticKeys, clock::ManualClock, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::mix,
    settings::{STORE_DIR, small_options},
};

use super::{encrypted, keys, on};

const SET: &str = "data/set";

fn plain_set(disk: &Arc<MemoryFs>) -> BackupSet {
    BackupSet::with_fs(SET, on(disk), Arc::new(ManualClock::new()))
}

#[test]
fn encrypted_sets_restore_encrypted_stores() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for number in 0..300_u32 {
        let value: Vec<_> = (0..100).map(|at| mix(u64::from(number) << 8 | at) as u8).collect();
        db.insert(number.to_be_bytes(), value).unwrap();
    }
    db.compact().unwrap();
    db.insert("logged", "value").unwrap();
    let refused = plain_set(&disk).create(&db);
    assert!(matches!(refused, Err(Error::NotEncrypted { .. })), "{refused:?}");
    assert!(!disk.exists(Path::new(SET)).unwrap());

    let set = plain_set(&disk).encryption(keys(2));
    let first = set.create(&db).unwrap();
    assert!(first.bytes_added > 30_000);
    db.insert("later", "value").unwrap();
    let second = set.create(&db).unwrap();
    assert!(second.bytes_added < first.bytes_added / 4, "{second:?}");
    assert_eq!(set.list().unwrap().len(), 2);
    assert!(set.verify().unwrap().problems.is_empty());
    set.restore(2, "data/new").unwrap();
    let refused = small_options(on(&disk)).open("data/new");
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");
    let copy = small_options(on(&disk)).encryption(keys(2)).open("data/new").unwrap();
    assert_eq!(copy.iter().count(), 302);
    assert!(copy.verify().unwrap().is_good());

    let refused = plain_set(&disk).list();
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");
    let other = Arc::new(StaticKeys::new(2, RootKey::new([9; 32])));
    let refused = plain_set(&disk).encryption(other).list();
    assert!(matches!(refused, Err(Error::WrongKey { key_id: 2, .. })), "{refused:?}");
    let refused = plain_set(&disk).encryption(keys(1)).list();
    assert!(matches!(refused, Err(Error::NoKey { key_id: 2, .. })), "{refused:?}");

    // An object under another name.
    let names = disk.list(Path::new("data/set/objects")).unwrap();
    let object = |number: usize| format!("data/set/objects/{}", names[number]);
    disk.replace(object(0), disk.read(object(1)).unwrap()).unwrap();
    assert!(!set.verify().unwrap().problems.is_empty());
    let records = ["data/set/backups/000001", "data/set/backups/000002"];
    disk.replace(records[1], disk.read(records[0]).unwrap()).unwrap();
    let numbers: Vec<_> = set.list().unwrap().iter().map(|backup| backup.number).collect();
    assert_eq!(numbers, [1], "the other record is damaged");
    assert!(matches!(set.restore(2, "data/none"), Err(Error::Corrupt { .. })));
}

/// Returns a store without encryption, with a table.
fn filled() -> (Arc<MemoryFs>, Db) {
    let disk = Arc::new(MemoryFs::new());
    let db = small_options(on(&disk)).open(STORE_DIR).unwrap();
    db.insert("key", [1; 300]).unwrap();
    db.flush().unwrap();
    (disk, db)
}

/// Returns one set with keys and without. The first has keys if `is_encrypted`.
fn sets(disk: &Arc<MemoryFs>, is_encrypted: bool) -> [BackupSet; 2] {
    let [plain, encrypted] = [plain_set(disk), plain_set(disk).encryption(keys(1))];
    if is_encrypted { [encrypted, plain] } else { [plain, encrypted] }
}

#[test]
fn backups_with_other_keys_are_refused() {
    for is_encrypted in [false, true] {
        let (disk, db) = filled();
        let [set, other] = sets(&disk, is_encrypted);
        set.create(&db).unwrap();
        let refused = other.create(&db);
        let is_named = match is_encrypted {
            true => matches!(refused, Err(Error::Encrypted { .. })),
            false => matches!(refused, Err(Error::NotEncrypted { .. })),
        };
        assert!(is_named, "{refused:?}");
        assert_eq!(disk.list(Path::new("data/set/backups")).unwrap().len(), 1);
        set.create(&db).unwrap();
        assert_eq!(set.list().unwrap().len(), 2);
        // A damaged record does not stop backups.
        disk.replace("data/set/backups/000002", vec![7; 100]).unwrap();
        assert!(other.create(&db).is_err());
        assert_eq!(set.create(&db).unwrap().number, 3);
    }
}

#[test]
fn objects_of_an_interrupted_call_with_other_keys_are_replaced() {
    for is_encrypted in [false, true] {
        let (disk, db) = filled();
        let [set, other] = sets(&disk, is_encrypted);
        other.create(&db).unwrap();
        disk.unlink(Path::new("data/set/backups/000001")).unwrap();
        assert!(set.create(&db).unwrap().bytes_added > 0);
        assert!(set.verify().unwrap().problems.is_empty());
        set.restore(1, "data/new").unwrap();
        disk.unlink(Path::new("data/set/backups/000001")).unwrap();
        assert_eq!(set.create(&db).unwrap().bytes_added, 0, "copied files are skipped");
    }
}
