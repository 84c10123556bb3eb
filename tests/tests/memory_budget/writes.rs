//! Writes that do not fit.

use std::sync::Arc;

use sievedb::{Durability, Error, Options, fs::MemoryFs};

use crate::{MIB, counting::turn};

#[test]
fn a_write_that_never_fits_is_refused() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let before = db.stats().last_sequence;
    let large = vec![1; 2 * MIB];
    match db.insert("key", &large) {
        Err(Error::WriteTooLarge { bytes, bytes_max }) => {
            assert!(bytes > large.len() as u64);
            assert_eq!(bytes_max, 3 << 19, "three quarters of 2 MiB");
        }
        other => panic!("{other:?}"),
    }
    let mut batch = db.batch();
    for key in 0..20_u8 {
        batch.insert(&db, [key], vec![key; 100_000]).unwrap();
    }
    assert!(matches!(batch.commit(Durability::OsBuffer), Err(Error::WriteTooLarge { .. })));
    assert_eq!(db.stats().last_sequence, before);
    assert!(db.iter().next().is_none());
    // One that fits when all else is flushed waits for that.
    for key in 0..10_u8 {
        db.insert([key], vec![key; 100_000]).unwrap();
    }
    db.insert("key", &large[..MIB]).unwrap();
    assert!(db.stats().background.flushes > 0);
    // With a larger budget it fits.
    db.set_memory_budget(64 << 20).unwrap();
    db.insert("key", &large).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), large);
}

/// Empty memtables take a part of their limit, which no flush gives back.
#[test]
fn a_write_that_nearly_fits_does_not_wait_for_ever() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let (mut stored, mut refused) = (0, 0);
    for short_bytes in (0..30_000).step_by(100) {
        let value = vec![1; (3 << 19) - short_bytes];
        match db.insert("key", &value) {
            Ok(()) => stored += 1,
            Err(Error::WriteTooLarge { bytes, bytes_max }) => {
                assert!(bytes > bytes_max, "{bytes} of {bytes_max}");
                assert_eq!(stored, 0, "a longer one was stored");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stored > 0 && refused > 0, "{stored} stored, {refused} refused");
}
