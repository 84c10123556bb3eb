//! Tables and disks that prevent building a filter: the store continues without it.

use std::sync::Arc;

use sievedb_doubles::{Call, Fault, FaultFs, Times};

use super::{
    fixture::{Listener, STORE_DIR, bloom, change, check, filled, id, options, paths},
    rebuild::damage_all,
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn table_with_damaged_data_gets_no_new_filter() {
    let fs = filled(bloom());
    let damaged = damage_all(&fs);
    let tables = paths(&fs, ".sst");
    let broken = &tables[1];
    // The first data block is after the file header.
    change(&fs, broken, |bytes| bytes[70] ^= 1);
    for workers in [0, 2] {
        let fs = Arc::new(fs.crash(fs.operations(), &sievedb_doubles::Loss::Nothing));
        let listener = Arc::<Listener>::default();
        let options = options(fs.clone(), bloom(), workers);
        let db = options.listener(listener.clone()).open(STORE_DIR).unwrap();
        for _ in 0..3 {
            db.wait_for_background().unwrap();
        }
        let told = listener.take();
        assert_eq!(told.not_rebuilt, [id(broken)], "once, with {workers} workers");
        assert_eq!(told.rebuilt.len(), damaged.len() - 1);
        assert_eq!(db.stats().tables_with_unusable_filters, 1);
        assert!(db.stats().read_only.is_none());
        assert_eq!(paths(&fs, ".filter").len(), damaged.len() - 1, "nothing is left behind");
        db.insert("more", "").unwrap();
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(listener.take().not_rebuilt, [0; 0], "it is not tried again");
    }
}

#[test]
fn full_disk_delays_filter_rebuilds_only() {
    for workers in [0, 2] {
        let disk = filled(bloom());
        let damaged = damage_all(&disk);
        let fs = Arc::new(FaultFs::new(disk.clone()));
        fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING).suffix(".filter"));
        let db = options(fs.clone(), bloom(), workers).open(STORE_DIR).unwrap();
        assert!(db.wait_for_background().unwrap_err().is_no_space());
        assert_eq!(db.stats().tables_with_unusable_filters, damaged.len() as u64);
        check(&db);
        db.insert("more", "").unwrap();
        db.flush().unwrap();
        assert_eq!(db.stats().tables_with_unusable_filters, damaged.len() as u64);
        fs.heal();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().tables_with_unusable_filters, 0);
        assert_eq!(paths(&disk, ".filter").len(), damaged.len(), "nothing is left behind");
        assert!(db.stats().read_only.is_none());
        check(&db);
    }
}

/// Workers retry by themselves.
#[test]
fn filters_are_rebuilt_when_space_is_free() {
    let disk = filled(bloom());
    damage_all(&disk);
    let fs = Arc::new(FaultFs::new(disk));
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING).suffix(".filter"));
    let db = options(fs.clone(), bloom(), 2).open(STORE_DIR).unwrap();
    assert!(db.wait_for_background().is_err());
    fs.heal();
    let whole = (0..6_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        db.stats().tables_with_unusable_filters == 0
    });
    assert!(whole, "{}", db.stats());
}

#[test]
fn failed_filter_file_write_loses_only_the_filter() {
    // Call, its number, and whether the store is read-only afterwards.
    let cases = [
        (Call::Create, 0, false),
        (Call::Append, 0, false),
        (Call::Append, 1, false),
        (Call::Open, 0, false),
        (Call::ReadAt, 0, false),
        (Call::ReadAt, 1, false),
        (Call::SyncData, 0, true),
    ];
    for (call, after, read_only) in cases {
        let disk = filled(bloom());
        let damaged = damage_all(&disk);
        let fs = Arc::new(FaultFs::new(disk.clone()));
        let listener = Arc::<Listener>::default();
        let options = options(fs.clone(), bloom(), 0).listener(listener.clone());
        let db = options.clone().open(STORE_DIR).unwrap();
        fs.inject(Fault::new(EIO, Times::Once).calls(&[call]).suffix(".filter").after(after));
        let waited = db.wait_for_background();
        let name = format!("{call:?} {after}");
        assert_eq!(fs.failures(), 1, "{name}");
        assert_eq!(db.stats().read_only.is_some(), read_only, "{name}");
        assert_eq!(waited.is_err(), read_only, "{name}: {waited:?}");
        check(&db);
        let told = listener.take();
        assert_eq!(told.not_rebuilt.len(), 1, "{name}: {told:?}");
        if !read_only {
            assert_eq!(db.stats().tables_with_unusable_filters, 1, "{name}");
            assert_eq!(paths(&disk, ".filter").len(), damaged.len() - 1, "{name}");
        }
        drop(db);
        let db = options.open(STORE_DIR).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(
            db.stats().tables_with_unusable_filters,
            0,
            "{name}: tried again by the next one"
        );
        assert_eq!(paths(&disk, ".filter").len(), damaged.len(), "{name}");
        check(&db);
    }
}
