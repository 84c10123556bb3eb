//! Rotation of root keys.

use std::{
    path::Path,
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::Duration,
};

use sievedb::{Bytes, ChangeRetention, Db, Durability, Error, RootKey, StaticKeys, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    cuts::cut_power,
    hook_fs::HookFs,
    settings::{STORE_DIR, report, seed, small_options},
};

use super::{encrypted, keys, on};

const EIO: i32 = 5;

fn entries(db: &Db) -> Vec<(Bytes, Bytes)> {
    db.iter().map(Result::unwrap).collect()
}

/// Returns a closed store with tables, filters and kept logs of the first key.
fn written() -> Arc<MemoryFs> {
    let disk = Arc::new(MemoryFs::new());
    let options = encrypted(on(&disk)).retain_changes(ChangeRetention::bytes(1 << 20));
    let db = options.open(STORE_DIR).unwrap();
    for round in 0..4_u8 {
        for number in 0..40_u8 {
            db.insert([number, round % 2], vec![number ^ round; 120]).unwrap();
        }
        db.flush().unwrap();
    }
    db.insert("logged", "value").unwrap();
    db.persist(Durability::Disk).unwrap();
    disk
}

#[test]
fn reencryption_leaves_only_the_current_key() {
    let disk = written();
    let db = small_options(on(&disk)).encryption(keys(2)).open(STORE_DIR).unwrap();
    let before = entries(&db);
    let done = db.reencrypt().unwrap();
    assert_eq!(done.key_ids, [2]);
    assert!(done.files_rewritten > 3 && done.bytes_rewritten > 10_000, "{done:?}");
    assert_eq!(entries(&db), before);
    assert!(db.verify().unwrap().is_good());
    let changes = db.changes(0).unwrap();
    assert!(changes.take(100).map(Result::unwrap).count() > 50);
    db.insert("later", "value").unwrap();
    let again = db.reencrypt().unwrap();
    assert_eq!((again.files_rewritten, again.key_ids), (0, vec![2]));
    db.remove("later").unwrap();
    drop(db);
    let only = Arc::new(StaticKeys::new(2, RootKey::new([2; 32])));
    let db = small_options(on(&disk)).encryption(only).open(STORE_DIR).unwrap();
    assert_eq!(entries(&db), before);
    db.compact().unwrap();
    assert!(db.verify().unwrap().is_good());
    drop(db);
    let plain = Arc::new(MemoryFs::new());
    let db = small_options(on(&plain)).open(STORE_DIR).unwrap();
    assert!(matches!(db.reencrypt(), Err(Error::NotEncrypted { .. })));
}

#[test]
fn every_crash_of_a_reencryption_leaves_the_store() {
    let seed = seed("crashes of reencryptions", 1);
    let disk = written();
    let db = small_options(on(&disk)).encryption(keys(2)).open(STORE_DIR).unwrap();
    let want = entries(&db);
    let began = disk.operations();
    db.reencrypt().unwrap();
    let ended = disk.operations();
    drop(db);
    let states = cut_power(&disk, began, seed, |left, at| {
        // After the call the first key is not needed.
        let keys = match at >= ended {
            true => Arc::new(StaticKeys::new(2, RootKey::new([2; 32]))),
            false => keys(2),
        };
        let db = small_options(on(left)).encryption(keys).open(STORE_DIR);
        let db = db.map_err(|error| format!("{error:?}"))?;
        if entries(&db) != want || !db.verify().unwrap().is_good() {
            return Err("other entries".to_owned());
        }
        let names = left.list(Path::new(STORE_DIR)).unwrap();
        if names.iter().any(|name| name.ends_with(".tmp")) {
            return Err(format!("a temporary file is left: {names:?}"));
        }
        if db.reencrypt().unwrap().key_ids != [2] {
            return Err("the first key is left".to_owned());
        }
        Ok(1)
    });
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("crashes of reencryptions: {states} states"));
    assert!(states > 80, "only {states} states");
}

/// The file is reported, and does not keep the others from being rewritten.
#[test]
fn an_unreadable_file_is_no_obstacle_to_a_reencryption() {
    let disk = written();
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = small_options(fs.clone()).encryption(keys(2)).open(STORE_DIR).unwrap();
    let tables = disk.list(Path::new(STORE_DIR)).unwrap();
    let first = tables.into_iter().find(|name| name.ends_with(".sst")).unwrap();
    fs.inject(Fault::new(EIO, Times::ForGood).calls(&[Call::ReadAt]).suffix(&first));
    let failed = db.reencrypt();
    assert!(matches!(&failed, Err(Error::Io { path, .. }) if path.ends_with(&first)), "{failed:?}");
    fs.heal();
    let done = db.reencrypt().unwrap();
    assert_eq!((done.files_rewritten, done.key_ids), (1, vec![2]));
    // The names must be durable before the first key can be destroyed, also those of earlier calls.
    fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::SyncDir]));
    let unsynced = db.reencrypt();
    assert!(matches!(unsynced, Err(Error::Io { .. })), "{unsynced:?}");
}

/// A later rename would replace a file of the next owner of the store.
#[test]
fn shutdown_waits_for_a_reencryption() {
    let (copied, is_copied) = channel();
    let (release, released) = channel();
    let released = Mutex::new(released);
    let fs = Arc::new(HookFs::new(move |path: &Path| {
        if path.to_string_lossy().ends_with(".sst.tmp") {
            copied.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
    }));
    let open = |last| small_options(fs.clone()).encryption(keys(last)).open(STORE_DIR).unwrap();
    let db = open(1);
    db.insert("key", "value").unwrap();
    db.flush().unwrap();
    drop(db);
    let db = open(2);
    let rewriting = thread::spawn({
        let db = db.clone();
        move || db.reencrypt()
    });
    is_copied.recv().unwrap();
    let busy = db.shutdown(Duration::from_millis(20));
    assert!(matches!(busy, Err(Error::StillBusy { .. })), "{busy:?}");
    release.send(()).unwrap();
    db.shutdown(Duration::from_secs(60)).unwrap();
    let names = || fs.list(Path::new(STORE_DIR)).unwrap();
    let before = names();
    assert!(!before.iter().any(|name| name.ends_with(".tmp")), "{before:?}");
    let ended = rewriting.join().unwrap();
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    assert_eq!(names(), before);
    assert_eq!(open(2).get("key").unwrap().unwrap(), "value");
}
