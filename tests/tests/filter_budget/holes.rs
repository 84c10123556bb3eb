//! Large filters in chunks: free memory between them counts too.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use std::{thread, time::Duration};

use sievedb::{Db, Durability, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::report;

use super::{STORE_DIR, key};

/// Filters of about 5 MB, in pieces of up to 0.7 MB: three fill a chunk with a hole.
const KEYS: u64 = 1_200_000;

/// Number of overwritten keys.
const OVERWRITTEN: u64 = 300_000;

fn open(workers: usize, bytes_max: u64) -> Db {
    let policy = FilterPolicy::new(FilterPolicyKind::Ribbon).bits_per_key(32.0);
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(8 << 20)
        .table_bytes(2 << 20)
        .base_level_bytes(16 << 20)
        .filter_policy(policy);
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(workers);
    options.filter_bytes_max(bytes_max).keyspace(keyspace).open(STORE_DIR).unwrap()
}

fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    let mut batch = db.batch();
    for number in numbers {
        batch.insert(db, key(number), [7; 4]).unwrap();
        if number % 100 == 99 {
            batch.commit(Durability::Memory).unwrap();
        }
    }
    batch.commit(Durability::Memory).unwrap();
    db.flush().unwrap();
}

/// While tables change and the limit is lowered and raised, filters never exceed the current limit,
/// and they use it.
#[test]
fn fragmentation_of_filter_memory_is_bounded() {
    for workers in [0, 2] {
        let db = open(workers, 5 << 20);
        let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
        let look = || {
            let memory = db.stats().memory;
            let (bytes, bytes_max) = (memory.filter_bytes, memory.filter_bytes_max);
            assert!(bytes <= bytes_max, "{bytes} bytes, {bytes_max} are allowed");
            most.fetch_max(bytes, Relaxed);
        };
        let used = |bytes_max: u64| {
            look();
            let bytes = db.stats().memory.filter_bytes;
            report(&format!("{workers} workers: {bytes} of {bytes_max} bytes"));
            assert!(bytes >= bytes_max * 3 / 4, "{bytes} bytes, {bytes_max} are allowed");
        };
        thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    look();
                    thread::sleep(Duration::from_micros(20));
                }
            });
            fill(&db, 0..KEYS);
            db.wait_for_background().unwrap();
            used(5 << 20);
            for bytes_max in [4 << 20, 3 << 20, 5 << 20, 2_500_000, 4_500_000] {
                db.set_filter_bytes_max(bytes_max).unwrap();
                db.wait_for_background().unwrap();
                used(bytes_max);
                for number in (0..KEYS).step_by(97) {
                    assert!(db.contains_key(key(number)).unwrap(), "{number} is lost");
                    assert!(!db.contains_key(key(number + 10 * KEYS)).unwrap());
                }
            }
            fill(&db, 0..OVERWRITTEN);
            db.compact().unwrap();
            db.wait_for_background().unwrap();
            used(4_500_000);
            is_over.store(true, Relaxed);
            sampler.join().unwrap();
        });
        report(&format!("{workers} workers: {} bytes at the most", most.load(Relaxed)));
    }
}
