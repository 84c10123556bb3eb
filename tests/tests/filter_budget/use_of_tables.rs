//! Frequently probed tables keep their filters, for all kinds of lookups.

use std::sync::Arc;

use sievedb::Db;
use sievedb_doubles::MemoryFs;

use super::{KEYS, filter_bytes, grown, key, sum};

/// Returns `count` absent keys of the hot eighth of all keys, or of the others.
fn absent(hot: bool, count: usize) -> impl Iterator<Item = [u8; 8]> {
    (KEYS * 10..).map(key).filter(move |key| (key[0] < 32) == hot).take(count)
}

fn one_by_one(db: &Db, keys: &[[u8; 8]]) {
    keys.iter().for_each(|key| assert!(!db.contains_key(key).unwrap()));
}

fn together(db: &Db, keys: &[[u8; 8]]) {
    assert!(db.contains_many(keys).unwrap().iter().all(|found| !found));
}

#[test]
fn probed_tables_keep_their_filters() {
    type Ask = fn(&Db, &[[u8; 8]]);
    let ways: [(&str, Ask); 2] = [("one by one", one_by_one), ("together", together)];
    for (name, ask) in ways {
        let db = grown(&Arc::new(MemoryFs::new()));
        let whole = filter_bytes(&db);
        let needless = |hot| {
            let before = sum(&db, |level| level.false_positives);
            one_by_one(&db, &absent(hot, 4_000).collect::<Vec<_>>());
            sum(&db, |level| level.false_positives) - before
        };
        ask(&db, &absent(true, 60_000).collect::<Vec<_>>());
        db.set_filter_bytes_max(whole / 4).unwrap();
        let (hot, cold) = (needless(true), needless(false));
        assert!(hot * 3 < cold * 2, "{name}: {hot} needless reads where it is probed, else {cold}");
    }
}

/// Returns the loaded columns of the filter of the last level's table with this key.
fn columns(db: &Db, key: [u8; 8]) -> f64 {
    let explanation = db.explain(key).unwrap();
    let last = explanation.tables.last().expect("the last level covers all keys");
    last.filter.columns.unwrap_or(0.0)
}

/// While the limit is lowered, tables without probes drop columns first.
#[test]
fn cold_tables_drop_columns_first() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let whole = filter_bytes(&db);
    let (hot, cold) = (absent(true, 1).next().unwrap(), absent(false, 1).next().unwrap());
    let (hot_before, cold_before) = (columns(&db, hot), columns(&db, cold));
    assert!(hot_before > 2.0 && cold_before > 2.0, "{hot_before} and {cold_before} columns");
    one_by_one(&db, &absent(true, 120_000).collect::<Vec<_>>());
    db.set_filter_bytes_max(whole * 85 / 100).unwrap();
    let (hot_after, cold_after) = (columns(&db, hot), columns(&db, cold));
    assert!(cold_after < cold_before, "{cold_before}, then {cold_after} columns");
    assert!(hot_after >= hot_before, "{hot_before}, then {hot_after} columns where it is probed");
    db.set_filter_bytes_max(whole * 80 / 100).unwrap();
    let (hot_then, cold_then) = (columns(&db, hot), columns(&db, cold));
    assert!(hot_then > cold_then && cold_then <= cold_after, "{hot_then} and {cold_then} columns");
}

/// `may_contain` needs no read, whatever filters are loaded.
#[test]
fn may_contain_does_no_io() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let whole = filter_bytes(&db);
    for bytes_max in [u64::MAX, whole / 2, 0] {
        db.set_filter_bytes_max(bytes_max).unwrap();
        let before = db.stats();
        let maybe = (0..4 * KEYS).filter(|&number| db.may_contain(key(number))).count() as u64;
        let since = db.stats().since(&before);
        assert!(maybe >= KEYS && (bytes_max > whole || maybe > KEYS), "{maybe} of {bytes_max}");
        // A few keys are outside of all tables' bounds.
        assert!(bytes_max > 0 || maybe > 4 * KEYS - 100, "nothing is ruled out: {maybe}");
        let total = since.total();
        let requests = (total.data_block_requests, total.index_block_requests, total.blocks_read);
        assert_eq!((requests, since.table_reads.calls), ((0, 0, 0), 0), "{bytes_max} bytes");
    }
}
