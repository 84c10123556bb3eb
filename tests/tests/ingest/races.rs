//! Readers and writers beside ingests, on threads of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{Db, Error, Options, StallReason};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::report;

use super::{key, of, options};

const KEYS: u64 = 40;

fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(*value.first_chunk().unwrap())
}

/// Reads all keys, which have one value.
fn read_all(db: &Db, floor: u64) {
    let values: Vec<_> = db.range(key(0)..key(KEYS)).map(|it| of(it).1).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    let seen = values.first().map_or(0, |value| number_of(value));
    assert!(seen >= floor, "{seen} after {floor}");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let values = db.get_many(&keys).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
}

/// Ingests the same keys `rounds` times beside readers and a writer of other keys. Panics if a
/// reader sees a part of an ingest, or a snapshot changes. Returns the number of refused writes.
pub(crate) fn read_beside_ingests(options: Options, rounds: u64) -> u64 {
    let db = options.open("data/db").unwrap();
    let (is_done, last, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(SeqCst) {
                read_all(&db, last.load(SeqCst));
            }
        });
        scope.spawn(|| {
            let mut before = None;
            while !is_done.load(SeqCst) {
                let snapshot = db.snapshot();
                let value = snapshot.get(key(1)).unwrap();
                if let Some((snapshot, value)) = before.replace((snapshot, value)) {
                    assert_eq!(snapshot.get(key(1)).unwrap(), value, "a snapshot has changed");
                }
            }
        });
        scope.spawn(|| {
            let mut number = 0_u64;
            while !is_done.load(SeqCst) {
                match db.try_insert(key(100 + number % 50), number.to_be_bytes()) {
                    Err(Error::WouldStall { reason: StallReason::Ingest, .. }) => {
                        refused.fetch_add(1, SeqCst);
                        thread::yield_now();
                    }
                    Err(Error::WouldStall { .. }) => thread::yield_now(),
                    written => written.unwrap(),
                }
                number += 1;
            }
        });
        for round in 1..=rounds {
            db.ingest((0..KEYS).map(|it| (key(it), round.to_be_bytes().repeat(30)))).unwrap();
            last.store(round, SeqCst);
        }
        is_done.store(true, SeqCst);
    });
    refused.into_inner()
}

/// Readers see an ingest as a whole, beside writers of the same keyspace, which are refused where
/// they would wait.
#[test]
fn readers_see_all_of_an_ingest_or_nothing() {
    let mut refused = 0;
    for _ in 0..50 {
        let disk = Arc::new(MemoryFs::new());
        refused += read_beside_ingests(options(&disk).worker_threads(2), 30);
        if refused > 0 {
            break;
        }
    }
    report(&format!("ingests beside writers: {refused} writes were refused"));
    assert!(refused > 0, "no write was refused");
}
