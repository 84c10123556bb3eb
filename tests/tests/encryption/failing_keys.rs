//! A key provider that fails for a while.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use sievedb::{Error, KeyError, KeyProvider, RootKey};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::on;

#[derive(Debug, Default)]
struct Service {
    is_down: AtomicBool,
}

impl KeyProvider for Service {
    fn current_key_id(&self) -> Result<u64, KeyError> {
        Ok(1)
    }

    fn key(&self, _: u64) -> Result<RootKey, KeyError> {
        match self.is_down.load(SeqCst) {
            true => Err(KeyError::Failed(Arc::new(std::fmt::Error))),
            false => Ok(RootKey::new([1; 32])),
        }
    }
}

#[test]
fn a_store_goes_on_when_the_key_provider_does() {
    let disk = Arc::new(MemoryFs::new());
    let keys = Arc::new(Service::default());
    let db = small_options(on(&disk)).encryption(keys.clone()).open(STORE_DIR).unwrap();
    let mut written = 0_u32;
    for round in 0..5_u32 {
        keys.is_down.store(true, SeqCst);
        // Until a new segment or table is needed.
        for _ in 0..2_000 {
            match db.insert(written.to_be_bytes(), [7; 100]) {
                Ok(()) => written += 1,
                Err(Error::NoKey { .. }) => break,
                Err(error) => panic!("{round}: {error:?}"),
            }
        }
        match db.flush() {
            Err(Error::NoKey { .. }) => {}
            flushed => panic!("{round}: {flushed:?}"),
        }
        keys.is_down.store(false, SeqCst);
        db.insert(written.to_be_bytes(), [7; 100]).unwrap();
        written += 1;
        db.flush().unwrap();
    }
    assert_eq!(db.len().unwrap(), u64::from(written));
    drop(db);
    let db = small_options(on(&disk)).encryption(keys).open(STORE_DIR).unwrap();
    assert_eq!(db.len().unwrap(), u64::from(written));
    assert!(db.verify().unwrap().is_good());
}
