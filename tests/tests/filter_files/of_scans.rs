//! The background job rebuilds unusable prefix and range filters.

use std::sync::Arc;

use sievedb::{
    Db, FilterPolicy, FilterPolicyKind,
    FilterRebuildReason::{NoFilter, OffPlan, OtherExtractor, Unusable},
    FilterRole::{self, Prefix, Range},
    KeyspaceOptions, Options, PrefixExtractor,
};
use sievedb_doubles::{Loss, MemoryFs};

use super::{
    fixture::{self, KEYS, Listener, STORE_DIR, change, id, key, paths, read},
    forge::{EXTRACTOR, Forged, forge},
};
use crate::corruption::forge::filter_places;

/// The kinds of the filters in the footer of a table.
const PREFIX_BLOCK: u8 = 4;
const RANGE_BLOCK: u8 = 5;

fn keyspace(extractor: Option<PrefixExtractor>, range_bits: f64) -> KeyspaceOptions {
    let options = KeyspaceOptions::new()
        .memtable_bytes(256 << 10)
        .table_bytes(6 << 10)
        .block_bytes(1 << 10)
        .range_filter_bits_per_key(range_bits);
    match extractor {
        Some(extractor) => options.prefix_extractor(extractor),
        None => options,
    }
}

fn options(fs: &Arc<MemoryFs>, workers: usize) -> Options {
    let options = fixture::options(fs.clone(), FilterPolicy::default(), workers);
    options.keyspace(keyspace(Some(EXTRACTOR), 12.0))
}

/// Creates a store of several tables with all filters, in two keyspaces.
fn filled(options: Options) -> Db {
    let db = options.open(STORE_DIR).unwrap();
    let other = db.keyspace("other").unwrap();
    for (round, rest) in [1, 2, 0].into_iter().enumerate() {
        for number in (0..KEYS).filter(|number| number % 4 != 3 && number % 3 == rest) {
            db.insert(key(number), number.to_be_bytes()).unwrap();
            other.insert(key(number), "other").unwrap();
        }
        if round == 0 { db.compact().unwrap() } else { db.flush().unwrap() }
    }
    db.wait_for_background().unwrap();
    db
}

/// Checks that exactly the present keys are found by prefix and by range.
fn check(db: &Db) {
    let other = db.keyspace("other").unwrap();
    for keyspace in [db.default_keyspace(), &other] {
        for number in 0..KEYS {
            let (key, is_stored) = (key(number), number % 4 != 3);
            let found = keyspace.prefix(&key[..6]).keys().map(Result::unwrap);
            let count = found.filter(|found| **found == key).count();
            assert_eq!(count, usize::from(is_stored), "{number} by its prefix");
            let is_empty = keyspace.range(key..=key).is_empty().unwrap();
            assert_eq!(is_empty, !is_stored, "{number} by a range");
        }
    }
}

/// Returns the numbers of tables that prefix and range filters reject, and of unusable filters.
fn asked(db: &Db) -> [u64; 4] {
    let count = || {
        let total = db.stats().total();
        [total.prefix_negatives, total.range_negatives, total.prefix_unusable, total.range_unusable]
    };
    let before = count();
    check(db);
    let after = count();
    std::array::from_fn(|at| after[at] - before[at])
}

fn copy(fs: &MemoryFs) -> Arc<MemoryFs> {
    Arc::new(fs.crash(fs.operations(), &Loss::Nothing))
}

fn table_ids(fs: &MemoryFs) -> Vec<u64> {
    let mut ids: Vec<_> = paths(fs, ".sst").iter().map(|path| id(path)).collect();
    ids.sort_unstable();
    ids
}

/// Checks that the store on `fs`, with these unusable filters, hides no key, and that the
/// background job rebuilds all of them durably.
fn check_rebuilt(fs: &MemoryFs, damaged: &[(u64, FilterRole)], what: &str) {
    for workers in [0, 2] {
        let fs = copy(fs);
        let listener = Arc::<Listener>::default();
        let open = || options(&fs, workers).listener(listener.clone()).open(STORE_DIR).unwrap();
        let db = open();
        if workers == 0 {
            assert!(db.stats().tables_with_unusable_filters > 0, "{what}");
            let [_, _, prefix, range] = asked(&db);
            assert_eq!(prefix > 0, damaged.iter().any(|it| it.1 == Prefix), "{what}: {prefix}");
            assert_eq!(range > 0, damaged.iter().any(|it| it.1 == Range), "{what}: {range}");
        } else {
            check(&db);
        }
        db.wait_for_background().unwrap();
        let told = listener.take();
        let rebuilt: Vec<_> = damaged.iter().map(|&(id, role)| (id, role, Unusable)).collect();
        assert_eq!(told.rebuilt_for_scans, rebuilt, "{what}, {workers} workers");
        drop(db);
        for round in 0..2 {
            let db = open();
            assert_eq!(db.stats().tables_with_unusable_filters, 0, "{what}, round {round}");
            let [prefix, range, lost @ ..] = asked(&db);
            // Prefix filters are probed first, and few probes remain.
            assert!(prefix > 100 && range > 10, "{what}: {prefix} and {range} ruled out");
            assert_eq!(lost, [0, 0], "{what}");
            db.wait_for_background().unwrap();
            assert_eq!(listener.take(), Default::default(), "{what}, round {round}");
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{what}: {report}");
            assert_eq!(report.filters, 3 * report.tables, "{what}: {report}");
        }
    }
}

#[test]
fn damaged_scan_filters_in_every_table_are_rebuilt() {
    let good = Arc::new(MemoryFs::new());
    drop(filled(options(&good, 0)));
    assert!(table_ids(&good).len() >= 7, "{:?}", table_ids(&good));
    for roles in [&[Prefix][..], &[Range], &[Prefix, Range]] {
        let fs = copy(&good);
        for path in paths(&fs, ".sst") {
            for (kind, place) in filter_places(&read(&fs, &path)).collect::<Vec<_>>() {
                let is_damaged = roles.iter().any(|role| match role {
                    Prefix => kind == PREFIX_BLOCK,
                    _ => kind == RANGE_BLOCK,
                });
                let at = usize::midpoint(place.start, place.end);
                change(&fs, &path, |bytes| bytes[at] ^= u8::from(is_damaged) << 4);
            }
        }
        let damaged =
            table_ids(&fs).into_iter().flat_map(|id| roles.iter().map(move |&it| (id, it)));
        check_rebuilt(&fs, &damaged.collect::<Vec<_>>(), &format!("{roles:?}"));
    }
}

/// Creates filter files by adding the options to a store without filters.
fn with_filter_files() -> Arc<MemoryFs> {
    let fs = Arc::new(MemoryFs::new());
    drop(filled(options(&fs, 0).keyspace(keyspace(None, 0.0))));
    let listener = Arc::<Listener>::default();
    let db = options(&fs, 0).listener(listener.clone()).open(STORE_DIR).unwrap();
    db.wait_for_background().unwrap();
    // The other keyspace keeps its stored options.
    let told = listener.take().rebuilt_for_scans;
    assert!(told.len() >= 8 && told.iter().all(|(_, _, reason)| *reason == NoFilter), "{told:?}");
    assert_eq!(paths(&fs, ".filter").len(), told.len());
    drop(db);
    fs
}

#[test]
fn forged_scan_filter_files_are_rebuilt() {
    let good = with_filter_files();
    for forged in Forged::ALL.into_iter().filter(|forged| *forged != Forged::LacksAKey) {
        let fs = copy(&good);
        let files = paths(&fs, ".filter");
        for path in &files {
            forge(&fs, path, forged);
        }
        let listener = Arc::<Listener>::default();
        let open = || options(&fs, 0).listener(listener.clone()).open(STORE_DIR).unwrap();
        let db = open();
        assert!(db.stats().tables_with_unusable_filters > 0, "{forged:?}");
        check(&db);
        db.wait_for_background().unwrap();
        let told = listener.take().rebuilt_for_scans;
        assert_eq!(told.len(), files.len(), "{forged:?}");
        assert!(told.iter().all(|(_, _, reason)| *reason == Unusable), "{forged:?}: {told:?}");
        drop(db);
        let db = open();
        assert_eq!(db.stats().tables_with_unusable_filters, 0, "{forged:?}");
        check(&db);
        assert!(db.verify().unwrap().is_good(), "{forged:?}");
        assert_eq!(paths(&fs, ".filter").len(), files.len(), "{forged:?}: nothing is left behind");
        db.compact().unwrap();
        db.wait_for_background().unwrap();
        let left = paths(&fs, ".filter").len();
        assert!(left < files.len(), "{forged:?}: files go with their tables, {left} are left");
    }
}

/// In each keyspace, while the store is open, and durably.
#[test]
fn changed_extractor_rebuilds_the_filters() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        drop(filled(options(&fs, 0)));
        let listener = Arc::<Listener>::default();
        let db = options(&fs, workers).listener(listener.clone()).open(STORE_DIR).unwrap();
        let tables = |db: &Db| db.stats().keyspaces.iter().map(|it| it.tables).sum::<u64>();
        let (all, other) = (tables(&db), db.keyspace("other").unwrap());
        let steps = [
            (Some(PrefixExtractor::FixedLength(6)), OtherExtractor),
            (Some(PrefixExtractor::FixedLength(4)), OtherExtractor),
            (None, OffPlan),
            (Some(EXTRACTOR), NoFilter),
        ];
        for (extractor, reason) in steps {
            db.default_keyspace().set_prefix_extractor(extractor.clone()).unwrap();
            other.set_prefix_extractor(extractor.clone()).unwrap();
            check(&db);
            db.wait_for_background().unwrap();
            let told = listener.take().rebuilt_for_scans;
            assert_eq!(told.len() as u64, all, "{extractor:?}: {told:?}");
            assert!(told.iter().all(|it| (it.1, it.2) == (Prefix, reason)), "{told:?}");
            let [prefix, _, unusable, _] = asked(&db);
            assert_eq!(prefix > 100, extractor.is_some(), "{extractor:?}: {prefix}");
            assert_eq!(unusable, 0, "{extractor:?}");
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{report}");
        }
        other.set_prefix_extractor(Some(PrefixExtractor::Separator(b'x'))).unwrap();
        db.wait_for_background().unwrap();
        listener.take();
        drop((db, other));
        let db = options(&fs, workers).listener(listener.clone()).open(STORE_DIR).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(listener.take(), Default::default(), "it is stored with the keyspace");
        check(&db);
        let invalid =
            db.default_keyspace().set_prefix_extractor(Some(PrefixExtractor::FixedLength(0)));
        assert!(matches!(invalid, Err(sievedb::Error::InvalidOption { .. })), "{invalid:?}");
    }
}

/// A policy change in an open store rebuilds filters, and both options are kept.
#[test]
fn policy_and_extractor_may_change_together() {
    let fs = Arc::new(MemoryFs::new());
    let db = filled(options(&fs, 2));
    let other = db.keyspace("other").unwrap();
    let before = db.stats().background.filters_rebuilt;
    let policy = FilterPolicy::new(FilterPolicyKind::Bloom).bits_per_key(6.0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bytes in [3, 4, 6, 3, 6] {
                other.set_prefix_extractor(Some(PrefixExtractor::FixedLength(bytes))).unwrap();
            }
        });
        scope.spawn(|| {
            for bits in [8.0, 12.0, 6.0] {
                other.set_filter_policy(policy.bits_per_key(bits)).unwrap();
            }
        });
        for _ in 0..3 {
            check(&db);
        }
    });
    db.wait_for_background().unwrap();
    assert!(db.stats().background.filters_rebuilt > before);
    check(&db);
    drop((db, other));
    let listener = Arc::<Listener>::default();
    let db = options(&fs, 0).listener(listener.clone()).open(STORE_DIR).unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(listener.take(), Default::default(), "all filters are those of the stored options");
    check(&db);
}

/// Flushes and compactions run while extractors change, and scans find every key by its prefix.
#[test]
fn scans_lose_no_key_while_extractors_change() {
    let fs = Arc::new(MemoryFs::new());
    let db = filled(options(&fs, 2));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..30 {
                let extractor = [4, 5, 6, 5][round % 4];
                db.default_keyspace()
                    .set_prefix_extractor(Some(PrefixExtractor::FixedLength(extractor)))
                    .unwrap();
                if round % 3 == 0 {
                    db.insert(key(KEYS + round as u32), "more").unwrap();
                    db.flush().unwrap();
                }
                if round % 10 == 9 {
                    db.compact().unwrap();
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut number = 0;
        while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
            number = (number + 4) % KEYS;
            let key = key(number);
            for bytes in [4, 5, 6] {
                let mut found = db.prefix(&key[..bytes]).keys();
                assert!(found.any(|it| *it.unwrap() == key), "{number} by {bytes} bytes");
            }
        }
    });
    db.wait_for_background().unwrap();
    assert_eq!(db.stats().tables_with_unusable_filters, 0);
    assert!(db.verify().unwrap().is_good());
}
