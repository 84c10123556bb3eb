//! A read-only open reports the same damage and torn tails as a writable one.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use sievedb::{Db, Result, fs::Fs};
use sievedb_tests::settings::{STORE_DIR, report, seed, small_options};

use super::{killed, reading};

/// Number of damaged places in each file.
const PLACES: usize = 24;

/// Returns the contents of a store, or the error.
fn observe(opened: Result<Db>) -> String {
    let Ok(db) = opened.as_ref() else { return format!("{:?}", opened.err()) };
    let keyspaces = db.keyspaces().unwrap().into_iter().map(|name| {
        let keyspace = db.keyspace(&name)?;
        let entries: Vec<(Bytes, Bytes)> = keyspace.iter().collect::<Result<_>>()?;
        Ok((name, entries))
    });
    format!("{:?}", keyspaces.collect::<Result<Vec<_>>>())
}

#[test]
fn damage_is_reported_as_by_a_writable_open() {
    let image = killed();
    let mut random = sievedb_tests::rng::Rng::new(seed("damage and read-only", 5));
    let (mut damaged, mut readable) = (0, 0);
    for (path, bytes) in image.contents() {
        for round in 0..PLACES {
            let mut bytes = bytes.to_vec();
            if bytes.is_empty() {
                continue;
            }
            let place = random.below(bytes.len());
            let name = format!("{path} at {place} of {}, round {round}", bytes.len());
            if round % 2 == 0 {
                bytes[place] ^= 1 << (round / 2 % 8);
            } else {
                bytes.truncate(place);
            }
            let disk = Arc::new(image.copy());
            disk.replace(&*path, bytes).unwrap();
            let before = disk.contents();
            let seen = observe(reading(disk.clone()).open(STORE_DIR));
            assert_eq!(disk.journal(), [], "{name}");
            assert!(disk.contents() == before, "{name}");
            let wanted = observe(small_options(disk).open(STORE_DIR));
            assert_eq!(seen, wanted, "{name}");
            damaged += usize::from(seen.starts_with("Some("));
            readable += usize::from(seen.starts_with("Ok("));
        }
    }
    report(&format!("damage and read-only: {damaged} openings refused, {readable} stores read"));
    assert!(damaged > PLACES && readable > PLACES, "{damaged} and {readable}");
}

/// A missing file.
#[test]
fn missing_file_is_reported_as_by_a_writable_open() {
    let image = killed();
    for path in image.contents().keys() {
        let disk = Arc::new(image.copy());
        disk.unlink(Path::new(&**path)).unwrap();
        let disk = Arc::new(disk.copy());
        let seen = observe(reading(disk.clone()).open(STORE_DIR));
        assert_eq!(disk.journal(), [], "{path}");
        assert_eq!(seen, observe(small_options(disk).open(STORE_DIR)), "{path}");
    }
}
