//! Repairs of encrypted stores whose keys are missing or fail.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use sievedb::{Bytes, Db, Error, KeyError, KeyProvider, OlderValues, RootKey, StaticKeys, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, report, small_options};

use super::{encrypted, keys, on};

const EIO: i32 = 5;
const NEW: &str = "data/new";

fn entries(db: &Db) -> Vec<(Bytes, Bytes)> {
    db.iter().map(Result::unwrap).collect()
}

/// Returns a closed store with two tables, a range tombstone, and a log.
fn written() -> Arc<MemoryFs> {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for number in 0..40_u8 {
        db.insert([number], vec![number; 50]).unwrap();
    }
    db.flush().unwrap();
    db.remove_range([3_u8]..[5_u8]).unwrap();
    db.insert([7_u8], "again").unwrap();
    db.flush().unwrap();
    db.insert("logged", "value").unwrap();
    drop(db);
    disk
}

fn lose_manifest(disk: &MemoryFs) {
    for path in disk.contents().into_keys() {
        if path.contains("MANIFEST") || path.ends_with("CURRENT") {
            disk.unlink(Path::new(&*path)).unwrap();
        }
    }
}

/// A provider whose call `fails` fails, counted from 0.
#[derive(Debug)]
struct Failing {
    keys: StaticKeys,
    calls: AtomicU64,
    fails: u64,
}

impl Failing {
    fn new(fails: u64) -> Arc<Self> {
        let keys = StaticKeys::new(1, RootKey::new([1; 32]));
        Arc::new(Self { keys, calls: AtomicU64::new(0), fails })
    }
}

impl KeyProvider for Failing {
    fn current_key_id(&self) -> Result<u64, KeyError> {
        self.keys.current_key_id()
    }

    fn key(&self, id: u64) -> Result<RootKey, KeyError> {
        if self.calls.fetch_add(1, SeqCst) == self.fails {
            return Err(KeyError::Failed(Arc::new(std::fmt::Error)));
        }
        self.keys.key(id)
    }
}

/// In the middle of a rotation, the tables need the first key.
#[test]
fn a_repair_without_the_key_of_a_table_fails() {
    for is_lost in [false, true] {
        let disk = written();
        let fs = Arc::new(FaultFs::new(disk.clone()));
        let db = small_options(fs.clone()).encryption(keys(2)).open(STORE_DIR).unwrap();
        fs.inject(Fault::new(EIO, Times::ForGood).calls(&[Call::Rename]).suffix(".sst"));
        db.reencrypt().unwrap_err();
        fs.heal();
        let whole = entries(&db);
        drop(db);
        if is_lost {
            lose_manifest(&disk);
        }
        let repair = |keys: Arc<dyn KeyProvider>| {
            let disk = Arc::new(disk.copy());
            let options = small_options(on(&disk)).encryption(keys);
            let report = options.repair(STORE_DIR, NEW, OlderValues::LeaveOut)?;
            Ok((report, entries(&options.open(NEW).unwrap())))
        };
        let second: Arc<dyn KeyProvider> = Arc::new(StaticKeys::new(2, RootKey::new([2; 32])));
        let refused: sievedb::Result<_> = repair(second);
        let Err(Error::NoKey { key_id: 1, path, .. }) = &refused else {
            panic!("{is_lost}: {refused:?}");
        };
        assert!(path.extension().is_some_and(|end| end == "sst"), "{is_lost}: {path:?}");
        let (report, found) = repair(keys(2)).unwrap();
        assert_eq!(found, whole, "{is_lost}: {report}");
    }
}

#[test]
fn a_repair_while_the_key_provider_fails_loses_nothing() {
    for is_lost in [false, true] {
        let disk = written();
        let whole = entries(&encrypted(on(&disk)).open(STORE_DIR).unwrap());
        if is_lost {
            lose_manifest(&disk);
        }
        let mut failed = 0;
        for fails in 0.. {
            let disk = Arc::new(disk.copy());
            let provider = Failing::new(fails);
            let options = small_options(on(&disk)).encryption(provider.clone());
            match options.repair(STORE_DIR, NEW, OlderValues::LeaveOut) {
                Ok(report) => {
                    assert_eq!(report.lost.len(), usize::from(is_lost), "{fails}: {report}");
                    let found = entries(&encrypted(on(&disk)).open(NEW).unwrap());
                    assert_eq!(found, whole, "{fails}: {report}");
                }
                Err(Error::NoKey { .. } | Error::ReadOnly { .. }) => failed += 1,
                Err(error) => panic!("{fails}: {error:?}"),
            }
            if provider.calls.load(SeqCst) <= fails {
                break;
            }
        }
        report(&format!("repairs while the key provider fails: {failed} fail"));
        assert!(failed > 5, "only {failed} repairs failed");
    }
}
