//! Replicas of encrypted backup sets.

use std::{sync::Arc, time::Duration};

use sievedb::{BackupSet, Error, RestoreOptions, clock::ManualClock, fs::Fs as _};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{encrypted, keys, on};

#[test]
fn a_replica_of_an_encrypted_set_is_encrypted() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for number in 0..300_u32 {
        db.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    db.insert("logged", "value").unwrap();
    let plain = BackupSet::with_fs("data/set", on(&disk), Arc::new(ManualClock::new()));
    let set = plain.clone().encryption(keys(2));
    set.create(&db).unwrap();
    let select = RestoreOptions::new();
    let refused = plain.open_replica(&select, &small_options(on(&disk)), "data/replica");
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");

    let replica = set.open_replica(&select, &small_options(on(&disk)), "data/replica").unwrap();
    assert!(replica.stats().files_pending > 1);
    assert!(replica.fetch_next().unwrap());
    drop(replica);
    let replica = set.open_replica(&select, &small_options(on(&disk)), "data/replica").unwrap();
    let stats = replica.stats();
    for number in 0..300_u32 {
        assert_eq!(replica.db().get(number.to_be_bytes()).unwrap().unwrap(), [7; 100][..]);
    }
    assert!(replica.stats().range_reads > stats.range_reads);
    while replica.fetch_next().unwrap() {}
    assert_eq!(replica.db().iter().count(), 301);
    drop(replica);
    let refused = small_options(on(&disk)).open("data/replica");
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");
    let copy = encrypted(on(&disk)).encryption(keys(2)).open("data/replica").unwrap();
    assert_eq!(copy.iter().count(), 301);
    assert!(copy.verify().unwrap().is_good());
}

#[test]
fn an_encrypted_replica_is_refreshed() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    let set = BackupSet::with_fs("data/set", on(&disk), Arc::new(ManualClock::new()));
    let set = set.encryption(keys(2));
    let select = RestoreOptions::new();
    db.insert("key", "value").unwrap();
    set.create(&db).unwrap();
    let replica = set.open_replica(&select, &small_options(on(&disk)), "data/replica").unwrap();
    for round in 0..3_u8 {
        for number in 0..200_u32 {
            db.insert(number.to_be_bytes(), [round; 100]).unwrap();
        }
        db.compact().unwrap();
        db.insert("logged", [round; 10]).unwrap();
        set.create(&db).unwrap();
        assert!(replica.refresh().unwrap());
        while replica.fetch_next().unwrap() {}
        assert_eq!(replica.db().iter().count(), 202);
        assert_eq!(replica.db().get(7_u32.to_be_bytes()).unwrap().unwrap(), [round; 100][..]);
    }
    drop(replica);
    let replica = set.open_replica(&select, &small_options(on(&disk)), "data/replica").unwrap();
    assert!(!replica.refresh().unwrap());
    assert_eq!(replica.db().get("logged").unwrap().unwrap(), [2; 10][..]);
}

#[test]
fn a_damaged_head_is_reported() {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for number in 0..300_u32 {
        db.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    let set = BackupSet::with_fs("data/set", on(&disk), Arc::new(ManualClock::new()));
    let set = set.encryption(keys(2));
    set.create(&db).unwrap();
    let options = small_options(on(&disk));
    let replica = set.open_replica(&RestoreOptions::new(), &options, "data/replica").unwrap();
    let pending = replica.stats().files_pending;
    for object in disk.list("data/set/objects".as_ref()).unwrap() {
        let path = format!("data/set/objects/{object}");
        let mut bytes = disk.read(&path).unwrap().to_vec();
        bytes[10] ^= 4;
        disk.replace(&path, bytes).unwrap();
    }
    for _ in 0..pending {
        let failed = replica.fetch_next();
        assert!(matches!(failed, Err(Error::Corrupt { .. })), "{failed:?}");
    }
    let waited = replica.wait(Duration::from_secs(60));
    assert!(matches!(waited, Err(Error::Corrupt { .. })), "{waited:?}");
}
