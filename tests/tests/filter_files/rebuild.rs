//! The background job rebuilds damaged, missing and forged filters.

use std::sync::Arc;

use sievedb::{FilterPolicy, FilterRebuildReason::Unusable};
use sievedb_doubles::MemoryFs;

use super::{
    fixture::{
        KEYS, Listener, STORE_DIR, bloom, change, check, filled, id, options, paths, ruled_out,
    },
    forge::{Forged, forge},
};
use crate::corruption::forge::filter_place;

/// Damages the filter of every table in its middle, in table or filter file.
pub(super) fn damage_all(fs: &MemoryFs) -> Vec<u64> {
    let tables = paths(fs, ".sst");
    for path in &tables {
        change(fs, path, |bytes| {
            let place = filter_place(bytes).expect("every table has a filter");
            bytes[usize::midpoint(place.start, place.end)] ^= 0x10;
        });
    }
    for path in &paths(fs, ".filter") {
        change(fs, path, |bytes| {
            let at = usize::midpoint(64, bytes.len());
            bytes[at] ^= 0x10;
        });
    }
    let mut ids: Vec<_> = tables.iter().map(|path| id(path)).collect();
    ids.sort_unstable();
    ids
}

/// Checks that the store on `fs`, with unusable filters of the tables `damaged`, hides no key, and
/// that the background job rebuilds all of them durably.
fn check_rebuilt(fs: &Arc<MemoryFs>, policy: FilterPolicy, damaged: &[u64], what: &str) {
    for workers in [0, 2] {
        let fs = Arc::new(fs.crash(fs.operations(), &sievedb_doubles::Loss::Nothing));
        let listener = Arc::<Listener>::default();
        let open =
            || options(fs.clone(), policy, workers).listener(listener.clone()).open(STORE_DIR);
        let db = open().unwrap();
        if workers == 0 {
            assert_eq!(db.stats().tables_with_unusable_filters, damaged.len() as u64, "{what}");
            check(&db);
            let levels = db.stats().levels;
            assert!(levels.iter().map(|level| level.filter_unusable).sum::<u64>() > 0, "{what}");
        } else {
            check(&db);
        }
        db.wait_for_background().unwrap();
        let told = listener.take();
        assert_eq!(told.unusable, damaged, "{what}");
        let rebuilt: Vec<_> = damaged.iter().map(|&id| (id, Unusable)).collect();
        assert_eq!(told.rebuilt, rebuilt, "{what}, {workers} workers");
        for reopened in [false, true] {
            let db = if reopened { open().unwrap() } else { db.clone() };
            assert_eq!(db.stats().tables_with_unusable_filters, 0, "{what}, reopened {reopened}");
            assert!(ruled_out(&db) > KEYS as usize / 4 * 8 / 10, "{what}: {}", ruled_out(&db));
            check(&db);
            db.wait_for_background().unwrap();
            assert_eq!(listener.take(), Default::default(), "{what}, reopened {reopened}");
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{report}");
            if !reopened {
                break;
            }
        }
    }
}

#[test]
fn damaged_filters_in_every_table_are_rebuilt() {
    for policy in [FilterPolicy::default(), bloom()] {
        let fs = filled(policy);
        let damaged = damage_all(&fs);
        assert!(damaged.len() >= 7, "{damaged:?}");
        check_rebuilt(&fs, policy, &damaged, &format!("{policy:?}"));
    }
}

/// Creates a store with filter files only.
pub(super) fn with_filter_files() -> Arc<MemoryFs> {
    let fs = filled(bloom());
    damage_all(&fs);
    let db = options(fs.clone(), bloom(), 0).open(STORE_DIR).unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(paths(&fs, ".filter").len(), paths(&fs, ".sst").len());
    drop(db);
    fs
}

#[test]
fn damaged_filter_files_are_rebuilt() {
    let good = with_filter_files();
    for forged in Forged::ALL {
        let fs = Arc::new(good.crash(good.operations(), &sievedb_doubles::Loss::Nothing));
        let files = paths(&fs, ".filter");
        for path in &files {
            forge(&fs, path, forged);
        }
        let mut tables: Vec<_> = paths(&fs, ".sst").iter().map(|path| id(path)).collect();
        tables.sort_unstable();
        if forged == Forged::LacksAKey {
            // Readers cannot detect it; see the tests of `verify`.
            continue;
        }
        check_rebuilt(&fs, bloom(), &tables, &format!("{forged:?}"));
    }
}

#[test]
fn every_byte_of_a_filter_file_is_checked() {
    let good = with_filter_files();
    let path = &paths(&good, ".filter")[0];
    let bytes = super::fixture::read(&good, path).len();
    let step = (bytes / 300).max(1);
    let mut cases = 0;
    // Each byte of header and trailer, and some in between.
    for at in (0..64).chain((64..bytes - 40).step_by(step)).chain(bytes - 40..bytes) {
        let fs = Arc::new(good.crash(good.operations(), &sievedb_doubles::Loss::Nothing));
        change(&fs, path, |bytes| bytes[at] ^= 1 << (at % 8));
        let db = options(fs.clone(), bloom(), 0).open(STORE_DIR).unwrap();
        assert_eq!(db.stats().tables_with_unusable_filters, 1, "byte {at}");
        for cut in [at, bytes + 1] {
            let fs = Arc::new(good.crash(good.operations(), &sievedb_doubles::Loss::Nothing));
            change(&fs, path, |bytes| bytes.resize(cut, 0));
            let db = options(fs.clone(), bloom(), 0).open(STORE_DIR).unwrap();
            // Bytes after the filter are not read.
            assert_eq!(
                db.stats().tables_with_unusable_filters,
                u64::from(cut < bytes),
                "{cut} bytes"
            );
        }
        cases += 1;
    }
    assert!(cases > 300, "{cases}");
}

/// A compaction may finish first: then the filter is not needed, and no file remains.
#[test]
fn concurrent_compactions_leave_no_filter_file() {
    let good = filled(FilterPolicy::default());
    damage_all(&good);
    for round in 0..20 {
        let fs = Arc::new(good.crash(good.operations(), &sievedb_doubles::Loss::Nothing));
        let db = options(fs.clone(), FilterPolicy::default(), 3).open(STORE_DIR).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(300 * round));
        db.compact().unwrap();
        check(&db);
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().tables_with_unusable_filters, 0);
        // Some tables of the last level need no compaction and have their filters.
        let named = db.verify().unwrap();
        assert!(named.is_good(), "{named}");
        let before = paths(&fs, ".filter");
        drop(db);
        let db = options(fs.clone(), FilterPolicy::default(), 0).open(STORE_DIR).unwrap();
        assert_eq!(paths(&fs, ".filter"), before, "no orphan was left");
        assert_eq!(db.stats().tables_with_unusable_filters, 0);
        check(&db);
    }
}

#[test]
fn orphans_are_removed_and_their_ids_not_reused() {
    let fs = with_filter_files();
    let kept = paths(&fs, ".filter");
    let orphan = format!("{STORE_DIR}/000900.filter");
    fs.replace(&orphan, "half a filter").unwrap();
    let db = options(fs.clone(), bloom(), 0).open(STORE_DIR).unwrap();
    assert_eq!(paths(&fs, ".filter"), kept);
    db.insert("more", "").unwrap();
    db.flush().unwrap();
    assert!(paths(&fs, ".sst").iter().any(|path| id(path) > 900));
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    assert!(paths(&fs, ".filter").len() < kept.len(), "files go with their tables");
    check(&db);
}
