//! Damaged and missing segments.

use std::{path::Path, sync::Arc};

use sievedb::{Error, OlderValues, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{open, read};

/// Length of the record that ends a segment.
const SEAL_BYTES: usize = 40;

/// Returns a closed store with retained segments, with the path of the second one.
fn retained() -> (Arc<MemoryFs>, String, usize) {
    let (fs, db) = open();
    for number in 0..40_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    db.flush().unwrap();
    let batches = read(&db, 0).len();
    drop(db);
    let contents = fs.contents();
    let mut logs = contents.keys().filter(|path| path.ends_with(".log"));
    let path = logs.nth(1).expect("there are several").to_string();
    (fs, path, batches)
}

#[test]
fn damage_in_a_retained_segment_is_reported_with_its_place() {
    let (fs, path, batches) = retained();
    let bytes = fs.contents()[&*path].clone();
    for at in (0..bytes.len()).step_by(131) {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0x10;
        fs.replace(&*path, damaged).unwrap();
        // The store itself does not need the segment.
        let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
        let found: Vec<_> = db.changes(0).unwrap().collect();
        let report = db.verify().unwrap();
        match found.last().unwrap() {
            Err(Error::Corrupt { path: bad, .. }) => {
                assert!(bad.ends_with(Path::new(&path).file_name().unwrap()), "{bad:?}");
                assert_eq!(report.problems.len(), 1, "{report}");
            }
            // Padding of the file header, and the seal, which follows the last change.
            other => {
                let is_unread = at < 64 || at + SEAL_BYTES >= bytes.len();
                assert!(other.is_ok() && found.len() == batches && is_unread, "{at}: {other:?}");
            }
        }
        drop(db);
    }
    fs.replace(&*path, bytes).unwrap();
    let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
    assert_eq!(read(&db, 0).len(), batches);
}

#[test]
fn a_short_or_missing_segment_is_damage() {
    let (fs, path, _) = retained();
    let bytes = fs.contents()[&*path].clone();
    for cut in [0, 64, bytes.len() / 2, bytes.len() - 100] {
        fs.replace(&*path, bytes[..cut].to_vec()).unwrap();
        let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
        let last = db.changes(0).unwrap().last().unwrap();
        assert!(matches!(last, Err(Error::Corrupt { .. })), "cut at {cut}: {last:?}");
        assert!(!db.verify().unwrap().is_good());
    }
    fs.unlink(Path::new(&path)).unwrap();
    let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
    let last = db.changes(0).unwrap().last().unwrap();
    assert!(matches!(last, Err(Error::Corrupt { .. })), "{last:?}");
    assert!(!db.verify().unwrap().is_good());
    drop(db);
    let report = small_options(Arc::clone(&fs) as _).verify(STORE_DIR, |_| ()).unwrap();
    assert!(!report.is_good());
}

/// Without a manifest all segments are replayed: the newest versions prevail.
#[test]
fn a_repair_without_a_manifest_brings_no_old_value_back() {
    let (fs, db) = open();
    for round in 0..3_u8 {
        for number in 0..20_u8 {
            db.insert([number], vec![round; 500]).unwrap();
        }
        db.remove([round]).unwrap();
        db.remove_range([10 + round]..[12 + round]).unwrap();
        db.compact().unwrap();
    }
    let want: Vec<_> = db.iter().map(Result::unwrap).collect();
    drop(db);
    let paths: Vec<_> = fs.contents().into_keys().collect();
    for path in paths.iter().filter(|path| path.contains("MANIFEST") || path.contains("CURRENT")) {
        fs.unlink(Path::new(&**path)).unwrap();
    }
    let options = small_options(Arc::clone(&fs) as _);
    options.clone().repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
    let db = options.open("data/new").unwrap();
    assert_eq!(db.iter().map(Result::unwrap).collect::<Vec<_>>(), want);
}
