//! Change streams of replicas beside refreshes.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use sievedb::{Archive, Db, Replica, fs::Fs};
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

/// Returns a store, its archive, and a replica on a file system whose calls can fail.
fn archived() -> (Db, Archive, Arc<FaultFs>, Replica) {
    let disk = Arc::new(MemoryFs::new());
    let db = retaining(&disk).open(STORE_DIR).unwrap();
    let mut archive = set(&disk).archive(&db).unwrap();
    archive.update().unwrap();
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let local = retaining(&disk).fs(Arc::clone(&faults) as Arc<dyn Fs>);
    let replica = open(&set(&disk), &local).unwrap();
    (db, archive, faults, replica)
}

#[test]
fn a_stream_continues_after_a_failed_refresh() {
    let mut failed = 0;
    for call in 0..80 {
        let (db, mut archive, faults, replica) = archived();
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

/// Counts wake-ups.
#[derive(Debug, Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The files of the visible batches may be gone already.
#[test]
fn a_task_waits_for_the_refresh_after_a_failed_one() {
    let mut waits = 0;
    for call in 0..80 {
        let (db, mut archive, faults, replica) = archived();
        let mut changes = replica.db().changes(replica.db().snapshot().sequence()).unwrap();
        let refresh = |archive: &mut Archive, key: &str| {
            db.insert(key, "value").unwrap();
            archive.update().unwrap();
            replica.refresh()
        };
        refresh(&mut archive, "first").unwrap();
        faults.inject(Fault::new(5, Times::Once).after(call));
        let failed = refresh(&mut archive, "second").is_err();
        faults.heal();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut read = |at_least: usize| {
            let mut batches = 0;
            while let Poll::Ready(next) = changes.poll_next(&mut Context::from_waker(&waker)) {
                next.unwrap().unwrap();
                batches += 1;
            }
            assert!(batches >= at_least, "call {call}: {batches} batches");
            batches
        };
        let before = read(0);
        assert_eq!(wakes.0.load(SeqCst), 0, "call {call}: nothing has changed");
        waits += usize::from(failed && before == 0);
        refresh(&mut archive, "third").unwrap();
        assert!(wakes.0.load(SeqCst) > 0, "call {call}: no notification");
        read(3 - before);
    }
    assert!(waits > 3, "only {waits} tasks waited for a refresh");
}
