//! Blob files after errors that pass.

use std::{path::Path, sync::Arc};

use sievedb::{Db, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{blob_files, options, value};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
/// Length of a value, which is moved in one piece.
const BYTES: usize = 1500;

fn open() -> (Arc<MemoryFs>, Arc<FaultFs>, Db) {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = options(&disk).fs(Arc::clone(&faults) as Arc<dyn Fs>).open(STORE_DIR).unwrap();
    (disk, faults, db)
}

fn write(db: &Db, round: u32, keys: impl Iterator<Item = u32>) {
    for number in keys {
        db.insert(number.to_be_bytes(), value(number, round, BYTES)).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn garbage_is_collected_after_reads_that_failed() {
    for (error, times) in [(ENOMEM, Times::Once), (EMFILE, Times::ForGood), (EIO, Times::ForGood)] {
        let (_, faults, db) = open();
        write(&db, 1, 0..20);
        db.compact().unwrap();
        write(&db, 2, (0..20).filter(|number| number % 4 > 0));
        faults.inject(Fault::new(error, times).calls(&[Call::ReadAt]).suffix(".blob"));
        let compacted = db.compact();
        assert!(faults.failures() > 0, "{error}: no read failed");
        assert_eq!(compacted.is_ok(), error == EIO, "{error}: {compacted:?}");
        faults.heal();
        db.compact().unwrap();
        assert_eq!(db.stats().keyspaces[0].blob_garbage_bytes, 0, "{error}");
        for number in 0..20_u32 {
            let round = if number % 4 > 0 { 2 } else { 1 };
            let found = db.get(number.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&*value(number, round, BYTES)));
        }
    }
}

fn check(db: &Db, round: impl Fn(u32) -> u32) {
    for number in 0..20_u32 {
        let found = db.get(number.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, round(number), BYTES)), "{number}");
    }
    assert!(db.verify().unwrap().is_good());
}

/// Returns a store whose last flush or compaction found no room for its edit of the manifest.
fn refused(compacts: bool) -> (Arc<MemoryFs>, Db) {
    let (disk, faults, db) = open();
    write(&db, 1, 0..20);
    let is_newer = |number: &u32| number.is_multiple_of(4);
    match compacts {
        true => write(&db, 2, (0..20).filter(is_newer)),
        false => (0..20).filter(is_newer).for_each(|number| {
            db.insert(number.to_be_bytes(), value(number, 2, BYTES)).unwrap();
        }),
    }
    let names = disk.list(Path::new(STORE_DIR)).unwrap();
    let manifest = names.into_iter().find(|name| name.starts_with("MANIFEST-")).unwrap();
    faults.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(manifest));
    let refused = if compacts { db.compact() } else { db.flush() };
    assert_eq!(faults.failures(), 1);
    assert!(refused.unwrap_err().is_no_space());
    (disk, db)
}

const fn newest(number: u32) -> u32 {
    if number.is_multiple_of(4) { 2 } else { 1 }
}

/// Neither the files of the tables that were not installed stay, nor those that they shared.
#[test]
fn no_blob_file_stays_after_an_install_without_room() {
    for compacts in [false, true] {
        let (disk, db) = refused(compacts);
        check(&db, newest);
        db.compact().unwrap();
        check(&db, newest);
        let before = blob_files(&disk, STORE_DIR);
        assert!(!before.is_empty());
        write(&db, 3, 0..20);
        db.compact().unwrap();
        check(&db, |_| 3);
        let after = blob_files(&disk, STORE_DIR);
        let kept: Vec<_> = before.iter().filter(|name| after.contains(name)).collect();
        assert_eq!(kept, Vec::<&String>::new(), "compacts: {compacts}");
        (0..20_u32).for_each(|number| db.remove(number.to_be_bytes()).unwrap());
        db.compact().unwrap();
        assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new(), "compacts: {compacts}");
    }
}

/// The manifest may name tables that were not installed, until another one replaces it.
#[test]
fn a_store_opens_after_an_install_without_room() {
    for compacts in [false, true] {
        let (disk, db) = refused(compacts);
        let at = disk.operations();
        let alone = (0..disk.unsynced(at)).map(Loss::Alone);
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(alone) {
            let crashed = Arc::new(disk.crash(at, &loss));
            let reopened = options(&crashed).open(STORE_DIR).unwrap();
            assert!(reopened.verify().unwrap().is_good(), "{}", disk.trace(at, &loss));
            if loss == Loss::Nothing {
                check(&reopened, newest);
            }
        }
        drop(db);
        check(&options(&disk).open(STORE_DIR).unwrap(), newest);
    }
}
