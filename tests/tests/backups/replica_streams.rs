//! Change streams of replicas beside refreshes.

use std::sync::Arc;

use sievedb::fs::Fs;
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{archive::retaining, replicas::open, set};

#[test]
fn a_stream_continues_after_refreshes() {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let mut archive = set(&disk).archive(&db).unwrap();
    archive.update().unwrap();
    let replica = open(&set(&disk), &retaining(&disk)).unwrap();
    let mut position = replica.db().snapshot().sequence();
    let mut changes = replica.db().changes(position).unwrap();
    for round in 0..6_u32 {
        for number in 0..5_u32 {
            db.insert(number.to_be_bytes(), round.to_be_bytes()).unwrap();
        }
        if round == 4 {
            db.flush().unwrap();
        }
        archive.update().unwrap();
        assert!(replica.refresh().unwrap());
        // Some are left for the next round.
        for batch in changes.by_ref().take(4 + round as usize % 2) {
            let batch = batch.unwrap();
            assert_eq!(batch.first_sequence(), position + 1, "round {round}");
            position = batch.last_sequence();
        }
    }
    let left = changes.map(|batch| batch.unwrap().last_sequence());
    assert_eq!(left.last(), Some(db.snapshot().sequence()));
}

#[test]
fn a_stream_continues_after_a_failed_refresh() {
    let mut failed = 0;
    for call in 0..80 {
        let disk = Arc::new(MemoryFs::new());
        let db = retaining(&disk).open(STORE_DIR).unwrap();
        let mut archive = set(&disk).archive(&db).unwrap();
        archive.update().unwrap();
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let local = retaining(&disk).fs(Arc::clone(&faults) as Arc<dyn Fs>);
        let replica = open(&set(&disk), &local).unwrap();
        let mut position = replica.db().snapshot().sequence();
        let mut changes = replica.db().changes(position).unwrap();
        let mut read = |count: usize| {
            for batch in changes.by_ref().take(count) {
                let batch = batch.unwrap_or_else(|error| panic!("call {call}: {error:?}"));
                assert_eq!(batch.first_sequence(), position + 1, "call {call}");
                position = batch.last_sequence();
            }
            position
        };
        for round in 0..3_u32 {
            for number in 0..4_u32 {
                db.insert(number.to_be_bytes(), round.to_be_bytes()).unwrap();
            }
            archive.update().unwrap();
            if round == 1 {
                faults.inject(Fault::new(5, Times::Once).after(call));
                failed += usize::from(replica.refresh().is_err());
                faults.heal();
                read(call % 4);
            }
            replica.refresh().unwrap();
            read(3 + round as usize);
        }
        assert_eq!(read(usize::MAX), db.snapshot().sequence(), "call {call}");
    }
    assert!(failed > 20, "only {failed} refreshes failed");
}
