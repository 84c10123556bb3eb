//! A small budget from the start: at open, and while tables change.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::thread;

use sievedb::FilterPolicy;
use sievedb_doubles::MemoryFs;

use super::{KEYS, STORE_DIR, assert_all_readable, fill, filter_bytes, grown, options};

/// Filters that do not fit are not read.
#[test]
fn open_loads_filters_that_fit() {
    let fs = Arc::new(MemoryFs::new());
    let whole = filter_bytes(&grown(&fs));
    let open = |bytes_max| {
        let options = options(fs.clone(), FilterPolicy::default());
        options.filter_bytes_max(bytes_max).open(STORE_DIR).unwrap()
    };
    let all = open(whole * 2);
    let read_whole = all.stats().table_reads.bytes;
    assert_eq!(filter_bytes(&all), whole);
    drop(all);
    for percent in [50, 10, 0] {
        let bytes_max = whole * percent / 100;
        let db = open(bytes_max);
        let (bytes, read) = (filter_bytes(&db), db.stats().table_reads.bytes);
        assert!(bytes <= bytes_max && bytes >= bytes_max * 8 / 10, "{bytes} of {bytes_max}");
        let saved = read_whole - read;
        // A group of eight columns is read as a whole.
        assert!(percent > 0 || saved >= whole * 9 / 10, "{percent} %: {saved} bytes were not read");
        assert_all_readable(&db, 0..KEYS / 10);
        db.set_filter_bytes_max(whole * 2).unwrap();
        assert_eq!(filter_bytes(&db), whole, "{percent} %");
    }
}

/// Flushes and compactions always stay within the limit, also beside an iterator that pins all
/// tables.
#[test]
fn filter_memory_stays_bounded_while_tables_change() {
    for workers in [0, 2] {
        for bytes_max in [0, 1_000, 20_000] {
            let options = options(Arc::new(MemoryFs::new()), FilterPolicy::default());
            let options = options.filter_bytes_max(bytes_max).worker_threads(workers);
            let db = options.open(STORE_DIR).unwrap();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let found = filter_bytes(&db);
                        assert!(found <= bytes_max, "{found} bytes, {bytes_max} are allowed");
                        thread::yield_now();
                    }
                });
                fill(&db, 0..KEYS / 2);
                let held = db.iter();
                fill(&db, KEYS / 2..KEYS);
                db.compact().unwrap();
                assert_all_readable(&db, 0..KEYS / 4);
                is_over.store(true, Relaxed);
                drop(held);
            });
            db.wait_for_background().unwrap();
            // The smallest part of a filter exceeds the smallest limit.
            let least = if bytes_max > 1_000 { bytes_max * 7 / 10 } else { 0 };
            assert!(filter_bytes(&db) >= least, "{} bytes of {bytes_max}", filter_bytes(&db));
        }
    }
}

/// Stored filters have the size of the policy: no table is reread to rebuild its filter because the
/// limit is small or is raised.
#[test]
fn small_budget_does_not_rebuild_filters() {
    let rebuilt = [u64::MAX, 40_000, 5_000, 0].map(|bytes_max| {
        let options = options(Arc::new(MemoryFs::new()), FilterPolicy::default());
        let db = options.filter_bytes_max(bytes_max).open(STORE_DIR).unwrap();
        for part in 0..6 {
            fill(&db, part * KEYS / 6..(part + 1) * KEYS / 6);
        }
        db.wait_for_background().unwrap();
        db.set_filter_bytes_max(u64::MAX).unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(stats.memory.filter_bytes > KEYS, "{bytes_max}: {:?}", stats.memory);
        stats.background.filters_rebuilt
    });
    // Some filters, written when the store was small, are off the plan in the end, whatever the
    // limit.
    let [without, bounded @ ..] = rebuilt;
    assert!(bounded.iter().all(|&count| count <= without + 3), "{rebuilt:?}");
}
