//! Table files that were changed together with their checksums, and are ingested.

use std::{path::Path, sync::Arc};

use sievedb::{Db, Error, KeyspaceOptions, TableWriter, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::forge::{footer_part, with_block};

/// Kind of the block of properties.
const PROPERTIES: u8 = 2;
/// A field says that the upper bound is exclusive: its number with the required flag, length,
/// value.
const UPPER_BOUND_EXCLUDED: [u8; 3] = [23 << 1 | 1, 1, 2];

/// Writes a table with a short value of each key. Changes its properties.
fn write(disk: &Arc<MemoryFs>, keys: &[&str], forge: impl Fn(&mut Vec<u8>)) -> String {
    let path = format!("{}.table", keys[0]);
    let fs = Arc::clone(disk) as Arc<dyn Fs>;
    let mut writer = TableWriter::with_fs(&path, fs, &KeyspaceOptions::new()).unwrap();
    keys.iter().for_each(|key| writer.insert(key, "value").unwrap());
    writer.finish().unwrap();
    let good = disk.contents()[&*path].clone();
    let place = footer_part(&good, PROPERTIES).expect("a table has them").place();
    let mut properties = good[place.start..place.end - 5].to_vec();
    forge(&mut properties);
    let forged = with_block(&good, PROPERTIES, &properties);
    disk.unlink(Path::new(&path)).unwrap();
    disk.create(Path::new(&path)).unwrap().append(&forged).unwrap();
    path
}

fn store() -> (Arc<MemoryFs>, Db) {
    let disk = Arc::new(MemoryFs::new());
    let db = small_options(disk.clone()).open(STORE_DIR).unwrap();
    (disk, db)
}

fn corrupt_path(error: Error) -> String {
    let Error::Corrupt { path, .. } = error else { panic!("{error:?}") };
    path.file_name().expect("a file").to_string_lossy().into_owned()
}

#[test]
fn a_forged_block_keeps_a_table_readable() {
    let (disk, db) = store();
    let path = write(&disk, &["a", "b"], |_| {});
    assert_eq!(db.ingest_files([path]).unwrap().entries, 2);
}

/// The bounds of both files are apart, but not their keys.
#[test]
fn a_key_at_an_exclusive_bound_is_refused() {
    let (disk, db) = store();
    let low = write(&disk, &["a", "m"], |properties| properties.extend(UPPER_BOUND_EXCLUDED));
    let high = write(&disk, &["m", "z"], |_| {});
    assert_eq!(corrupt_path(db.ingest_files([&low, &high]).unwrap_err()), low);
    assert!(db.is_empty().unwrap());
}

/// A file with entries that its properties do not count is not an empty one.
#[test]
fn entries_that_are_not_counted_are_found() {
    let (disk, db) = store();
    // The field of counts: its number, length, kind and count.
    let counts = [4 << 1, 2, 1, 3];
    let path = write(&disk, &["a", "b", "c"], |properties| {
        let at = properties.windows(4).position(|field| field == counts).expect("3 entries");
        properties[at + 3] = 0;
        let user_keys = [5 << 1, 1, 3];
        assert_eq!(properties[at + 4..at + 7], user_keys);
        properties[at + 6] = 0;
    });
    assert_eq!(corrupt_path(db.ingest_files([&path]).unwrap_err()), path);
    assert!(db.is_empty().unwrap());
}
