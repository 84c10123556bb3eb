//! Blob files after errors that pass.

use std::sync::Arc;

use sievedb::{Db, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{options, value};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
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
