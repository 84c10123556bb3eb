//! Prefix and range filters shrink with the budget too, and cuts return despite readers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{Db, FilterPolicy, Options, PrefixExtractor, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{rng::Rng, settings::seed};

use super::{KEYS, STORE_DIR, fill, filter_bytes, key, keyspace, needless_reads};

/// All three kinds of filters; prefix and range filters have many more bits than point filters.
fn options(fs: Arc<dyn Fs>, workers: usize) -> Options {
    let keyspace = keyspace(FilterPolicy::default().bits_per_key(4.0))
        .prefix_extractor(PrefixExtractor::FixedLength(3))
        .range_filter_bits_per_key(16.0);
    super::options(fs, FilterPolicy::default()).worker_threads(workers).keyspace(keyspace)
}

fn grown(workers: usize) -> Db {
    let db = options(Arc::new(MemoryFs::new()), workers).open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS / 2);
    db.wait_for_background().unwrap();
    db
}

/// Checks that every key is found by itself, by its prefix and by a range.
fn check(db: &Db) {
    for number in (0..KEYS / 2).step_by(97) {
        let key = key(number);
        assert!(db.contains_key(key).unwrap(), "{number} is lost");
        let mut found = db.prefix(&key[..3]).keys();
        assert!(found.any(|found| *found.unwrap() == key), "{number} is not among its prefix");
        let next = (u64::from_be_bytes(key) + 1).to_be_bytes();
        assert_eq!(db.range(key..next).count(), 1, "{number} is not in its range");
    }
}

/// Returns the numbers of tables that prefix and range filters reject in a thousand scans without
/// results.
fn ruled_out(db: &Db) -> (u64, u64) {
    let count = || {
        let levels = db.stats().levels;
        let prefix: u64 = levels.iter().map(|level| level.prefix_negatives).sum();
        let range: u64 = levels.iter().map(|level| level.range_negatives).sum();
        (prefix, range)
    };
    let before = count();
    for number in KEYS * 10..KEYS * 10 + 1_000 {
        let key = key(number);
        assert!(db.prefix(&key[..3]).keys().all(|found| *found.unwrap() != key));
        let next = (u64::from_be_bytes(key) + 1).to_be_bytes();
        assert_eq!(db.range(key..next).count(), 0);
    }
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn scan_filters_are_dropped_and_reloaded() {
    let db = grown(0);
    let whole = filter_bytes(&db);
    let ruled_out_by_all = ruled_out(&db);
    assert!(ruled_out_by_all.0 > 1_000 && ruled_out_by_all.1 > 100, "{ruled_out_by_all:?}");
    let iterator_then = db.iter();
    let snapshot = db.snapshot();
    for share in [100, 90, 50, 20, 5, 1, 0, 30, 0, 100] {
        let bytes_max = whole * share / 100;
        // A second iterator pins the current tables.
        let iterator = db.iter();
        db.set_filter_bytes_max(bytes_max).unwrap();
        let found = filter_bytes(&db);
        assert!(found <= bytes_max, "{found} bytes at {share} %");
        assert!(share > 0 || ruled_out(&db) == (0, 0));
        drop(iterator);
        check(&db);
        db.wait_for_background().unwrap();
        let found = filter_bytes(&db);
        assert!(found <= bytes_max, "{found} bytes at {share} %, later");
        // Point filters have their share beside filters that cannot shrink.
        assert!(found >= bytes_max / 4, "{found} bytes only at {share} %");
    }
    db.set_filter_bytes_max(u64::MAX).unwrap();
    db.wait_for_background().unwrap();
    // Less than a quarter of a point filter column is not reloaded.
    let again = filter_bytes(&db);
    assert!((whole * 99 / 100..=whole * 101 / 100).contains(&again), "{again} of {whole} bytes");
    assert_eq!(ruled_out(&db), ruled_out_by_all);
    assert_eq!(iterator_then.count() as u64, KEYS / 2);
    drop(snapshot);
}

#[test]
fn keyspace_limit_includes_scan_filters() {
    let db = grown(0);
    let whole = filter_bytes(&db);
    for bytes_max in [whole / 2, whole / 10, 0, whole] {
        let policy = FilterPolicy::default().bits_per_key(4.0).memory_bytes_max(bytes_max);
        db.default_keyspace().set_filter_policy(policy).unwrap();
        let found = filter_bytes(&db);
        assert!(found <= bytes_max, "{found} bytes, {bytes_max} are allowed");
        db.wait_for_background().unwrap();
        let found = filter_bytes(&db);
        assert!(found <= bytes_max && found >= bytes_max / 4, "{found} bytes of {bytes_max}");
        check(&db);
    }
}

#[test]
fn open_keeps_scan_filters_within_the_budget() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(fs.clone(), 0).open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS / 2);
    let whole = filter_bytes(&db);
    drop(db);
    for share in [0, 10, 60, 100] {
        let bytes_max = whole * share / 100;
        let db = options(fs.clone(), 0).filter_bytes_max(bytes_max).open(STORE_DIR).unwrap();
        let found = filter_bytes(&db);
        assert!(found <= bytes_max && found >= bytes_max / 4, "{found} bytes at {share} %");
        check(&db);
    }
}

#[test]
fn concurrent_budget_cuts_during_compactions_return() {
    let db = grown(2);
    let whole = filter_bytes(&db);
    let is_over = AtomicBool::new(false);
    let seed = seed("scan filter budget", 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = Vec::new();
            for round in (0..).take_while(|_| !is_over.load(Relaxed)) {
                // Removed tables stay readable.
                held.push(db.iter());
                held.drain(..held.len().saturating_sub(3));
                fill(&db, KEYS + round % 7 * 1_000..KEYS + (round % 7 + 1) * 1_000);
                db.remove(key(KEYS)).unwrap();
            }
        });
        let cutters = [1, 2].map(|number| {
            let db = &db;
            scope.spawn(move || {
                let mut rng = Rng::new(seed + number);
                let iterator = db.iter();
                for _ in 0..40 {
                    let bytes_max =
                        if rng.number().is_multiple_of(4) { 0 } else { rng.number() % whole };
                    db.set_filter_bytes_max(bytes_max).unwrap();
                }
                assert!(iterator.count() as u64 >= KEYS / 2);
            })
        });
        for cutter in cutters {
            cutter.join().unwrap();
        }
        db.set_filter_bytes_max(whole / 3).unwrap();
        let found = filter_bytes(&db);
        assert!(found <= whole / 3, "{found} bytes, {} are allowed", whole / 3);
        db.set_filter_bytes_max(0).unwrap();
        assert_eq!(filter_bytes(&db), 0);
        is_over.store(true, Relaxed);
    });
    check(&db);
}

/// With scans, part of the scan filters stays loaded; without scans, they are dropped for point
/// filters.
#[test]
fn probed_filters_are_kept() {
    let [scanned, looked_up] = [true, false].map(|scans| {
        let db = grown(0);
        for key in (0..10).flat_map(|_| (KEYS * 10..KEYS * 10 + 10_000).map(key)) {
            if scans {
                assert!(db.prefix(key).is_empty().unwrap());
            } else {
                assert!(!db.contains_key(key).unwrap());
            }
        }
        db.set_filter_bytes_max(filter_bytes(&db) / 10).unwrap();
        db.wait_for_background().unwrap();
        let needless = needless_reads(&db, 5_000);
        let (prefix, range) = ruled_out(&db);
        check(&db);
        (prefix + range, needless)
    });
    let text = format!("{looked_up:?} after lookups, {scanned:?} after scans");
    assert!(looked_up.0 < scanned.0, "tables that scans pass over: {text}");
    assert!(looked_up.1 < 0.9 * scanned.1, "tables with false positives of lookups: {text}");
}

/// Their data are good: a rebuild would read all keys.
#[test]
fn scan_filters_are_reloaded_after_a_shortage_of_files() {
    const EMFILE: i32 = 24;
    let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let db = options(faults.clone(), 0).open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS / 10);
    db.wait_for_background().unwrap();
    let whole = filter_bytes(&db);
    let ruled_out_by_all = ruled_out(&db);
    db.set_filter_bytes_max(0).unwrap();
    let rebuilt = db.stats().background.filters_rebuilt;
    faults.inject(Fault::new(EMFILE, Times::ForGood).calls(&[Call::ReadAt]).suffix(".sst"));
    db.set_filter_bytes_max(u64::MAX).unwrap();
    assert!(faults.failures() > 0 && filter_bytes(&db) == 0, "none can be read");
    faults.heal();
    db.wait_for_background().unwrap();
    let stats = db.stats();
    assert_eq!(stats.tables_with_unusable_filters, 0);
    assert_eq!(stats.background.filters_rebuilt, rebuilt);
    let bytes = filter_bytes(&db);
    assert!((whole * 99 / 100..=whole * 101 / 100).contains(&bytes), "{bytes} of {whole} bytes");
    assert_eq!(ruled_out(&db), ruled_out_by_all);
}
