//! Writes that fail, and power cuts.

use std::sync::Arc;

use sievedb::{Durability, changes::ChangesOptions, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{keeping, read};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn a_write_whose_sync_failed_is_not_in_the_stream() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = keeping(&disk).fs(Arc::clone(&faults) as _).open(STORE_DIR).unwrap();
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(db.snapshot().sequence(), options).unwrap();
    db.insert("acknowledged", "1").unwrap();
    faults.inject(Fault::new(EIO, Times::ForGood).calls(&[Call::SyncData]));
    let mut batch = db.batch();
    batch.insert(&db, "refused", "1").unwrap();
    batch.commit(Durability::Disk).unwrap_err();
    assert_eq!(db.get("refused").unwrap(), None);
    let first = changes.next().unwrap().unwrap();
    assert_eq!(first.changes()[0].kind.key().unwrap(), "acknowledged");
    assert!(changes.next().is_none());
    assert!(!changes.is_ended());
}

#[test]
fn a_full_disk_leaves_no_change_of_a_failed_write() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = keeping(&disk).fs(Arc::clone(&faults) as _).open(STORE_DIR).unwrap();
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(db.snapshot().sequence(), options).unwrap();
    let mut want = Vec::new();
    for number in 0..40_u8 {
        if number % 7 == 3 {
            let fault = Fault::new(ENOSPC, Times::Once).written_bytes(usize::from(number) * 10);
            faults.inject(fault.calls(&[Call::Append]));
        }
        let written = match number % 3 {
            0 => {
                let mut batch = db.batch();
                batch.insert(&db, [number], vec![number; 300]).unwrap();
                batch.commit(Durability::Memory).map(drop)
            }
            _ => db.insert([number], vec![number; 300]),
        };
        want.extend(written.ok().map(|()| number));
        if number % 5 == 0 {
            faults.heal();
        }
    }
    faults.heal();
    db.flush().unwrap();
    let found: Vec<_> = changes.by_ref().map(|batch| batch.unwrap()).collect();
    let keys = found.iter().map(|batch| batch.changes()[0].kind.key().unwrap()[0]);
    assert_eq!(keys.collect::<Vec<_>>(), want);
    assert!(want.len() < 40, "no write failed");
    drop((db, changes));
    let db = small_options(disk as _).open(STORE_DIR).unwrap();
    assert_eq!(read(&db, 0)[1..], found);
}

/// The newest write of a group failed, and an older one of the group is logged later.
#[test]
fn a_segment_that_ends_before_a_failed_write_can_be_read() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = keeping(&disk).fs(Arc::clone(&faults) as _).open(STORE_DIR).unwrap();
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(db.snapshot().sequence(), options).unwrap();
    let fail = |key: &str| {
        faults.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log"));
        assert!(db.insert(key, "1").unwrap_err().is_no_space());
        faults.heal();
    };
    let mut batch = db.batch();
    batch.insert(&db, "a", "1").unwrap();
    batch.commit(Durability::Memory).unwrap();
    fail("b");
    let mut next = || changes.next().map(|it| it.unwrap().changes()[0].kind.key().unwrap().clone());
    assert_eq!(next().as_deref(), Some(&b"a"[..]));
    assert_eq!(next(), None);
    // The segment gets no more records.
    fail("c");
    db.insert("d", "1").unwrap();
    assert_eq!(next().as_deref(), Some(&b"d"[..]));
    assert_eq!(next(), None);
    assert!(!changes.is_ended());
    db.flush().unwrap();
    assert!(db.stats().retained_log_bytes > 0);
    let report = db.verify().unwrap();
    assert!(report.is_good(), "{report:?}");
    assert_eq!(read(&db, 0).len(), 3);
}

#[test]
fn a_segment_without_a_record_is_retained() {
    let mut failed = 0;
    for after in 0..40 {
        let disk = Arc::new(MemoryFs::with_seed(1));
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let db = keeping(&disk).fs(Arc::clone(&faults) as _).open(STORE_DIR).unwrap();
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log");
        faults.inject(fault.after(after));
        let mut want = 1;
        for number in 0..20_u8 {
            match db.insert([number], [7; 700]) {
                Ok(()) => want += 1,
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    failed += 1;
                }
            }
        }
        faults.heal();
        db.flush().unwrap();
        assert!(db.stats().read_only.is_none(), "{after}");
        assert!(db.verify().unwrap().is_good(), "{after}");
        assert_eq!(read(&db, 0).len(), want, "{after}");
    }
    assert!(failed >= 20, "{failed} writes failed");
}

/// The log of a reopened store begins with a segment without a record.
#[test]
fn a_segment_without_a_record_is_retained_after_a_reopen() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = keeping(&disk).fs(Arc::clone(&faults) as _).open(STORE_DIR).unwrap();
    let fail_append = |after| {
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log");
        faults.inject(fault.after(after));
        assert!(db.insert("b", "1").unwrap_err().is_no_space());
        faults.heal();
    };
    db.insert("a", "1").unwrap();
    // Ends the segment.
    fail_append(0);
    // Ends the next segment after its start record.
    fail_append(1);
    db.flush().unwrap();
    db.insert("d", "1").unwrap();
    drop(db);
    let db = small_options(disk as _).open(STORE_DIR).unwrap();
    assert_eq!(db.stats().log_segments, 2);
    db.flush().unwrap();
    assert!(db.stats().read_only.is_none());
    assert_eq!(read(&db, 0).len(), 3);
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn what_a_stream_returned_survives_a_power_cut() {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let db = keeping(&disk).open(STORE_DIR).unwrap();
    for number in 0..10_u8 {
        db.insert([number], "1").unwrap();
    }
    let returned = read(&db, 0);
    assert_eq!(returned.len(), 11);
    let left = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    let db = small_options(left as _).open(STORE_DIR).unwrap();
    assert_eq!(read(&db, 0), returned);
}
