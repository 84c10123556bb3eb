//! Damaged and lost blob files.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc};

use sievedb::{Db, Error, OlderValues, fs::Fs as _};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{State, blob_files, check, fill, options};

/// Returns a closed store with two blob files.
fn store() -> (Arc<MemoryFs>, State) {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (options(&disk).open(STORE_DIR).unwrap(), State::new());
    fill(&db, 0..20, 0, &mut state);
    db.flush().unwrap();
    fill(&db, 20..25, 0, &mut state);
    db.flush().unwrap();
    drop(db);
    disk.settle();
    assert_eq!(blob_files(&disk, STORE_DIR).len(), 2);
    (disk, state)
}

fn path(disk: &MemoryFs) -> String {
    format!("{STORE_DIR}/{}", blob_files(disk, STORE_DIR)[0])
}

fn open(disk: &Arc<MemoryFs>) -> sievedb::Result<Db> {
    options(disk).open(STORE_DIR)
}

/// Damage is an error of the reads of one value, and `verify` finds it.
#[test]
fn damage_of_a_value_costs_that_value() {
    for step in 0..8 {
        let (disk, state) = store();
        let path = path(&disk);
        let good = disk.read(&path).unwrap();
        let at = 64 + step * 4001;
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        disk.replace(&path, bytes).unwrap();
        let db = open(&disk).unwrap();
        let mut failed = 0;
        for (number, value) in &state {
            match db.get(number.to_be_bytes()) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&**value), "{number}"),
                Err(Error::Corrupt { path: found, .. }) => {
                    assert_eq!(found.to_str(), Some(&*path));
                    failed += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
            assert!(db.contains_key(number.to_be_bytes()).unwrap());
        }
        assert_eq!(failed, 1, "flipped at {at}");
        assert!(!db.verify().unwrap().is_good());
        // Compactions keep what they cannot read.
        fill(&db, 10..20, 1, &mut State::new());
        db.compact().unwrap();
        let fails = |number: &u32| db.get(number.to_be_bytes()).is_err();
        assert!(state.keys().filter(|number| fails(number)).count() <= 1);
    }
}

#[test]
fn every_flipped_byte_is_found_by_verify() {
    let (disk, _) = store();
    let path = path(&disk);
    let good = disk.read(&path).unwrap();
    let ends = (0..64).chain(good.len() - 28..good.len());
    for at in ends.chain((64..good.len() - 28).step_by(499)) {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1 << (at % 8);
        disk.replace(&path, bytes).unwrap();
        let report = options(&disk).verify(STORE_DIR, |_| ()).unwrap();
        assert!(!report.is_good(), "flipped at {at}");
    }
    disk.replace(&path, good).unwrap();
    assert!(options(&disk).verify(STORE_DIR, |_| ()).unwrap().is_good());
}

/// A lost file refuses the open. A repair loses exactly its values.
#[test]
fn a_lost_file_costs_its_values() {
    for without_manifest in [false, true] {
        let (disk, mut state) = store();
        disk.unlink(Path::new(&path(&disk))).unwrap();
        match open(&disk) {
            Err(Error::Corrupt { path, .. }) => {
                assert!(path.to_str().unwrap().ends_with(".blob"), "{path:?}");
            }
            other => panic!("{other:?}"),
        }
        if without_manifest {
            disk.unlink(&Path::new(STORE_DIR).join("CURRENT")).unwrap();
        }
        let report = options(&disk).repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
        assert!(!report.lost.is_empty());
        state.retain(|&number, value| number >= 20 || value.len() < 1000);
        let db = options(&disk).open("data/new").unwrap();
        check(&db, &state);
    }
}

#[test]
fn a_repair_without_a_manifest_finds_all_values() {
    let (disk, state) = store();
    disk.unlink(&Path::new(STORE_DIR).join("CURRENT")).unwrap();
    options(&disk).repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
    let db = options(&disk).open("data/new").unwrap();
    check(&db, &state);
    assert!(db.verify().unwrap().is_good());
}
