//! What is asked often keeps its filters, whatever way it is asked.

use std::sync::Arc;

use sievedb::{Db, fs::MemoryFs};

use super::{KEYS, filter_bytes, grown, key, sum};

/// So many absent keys of one eighth of all, the hot one, or of the others.
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
fn tables_that_are_asked_keep_their_filters() {
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
        assert!(hot * 3 < cold * 2, "{name}: {hot} needless reads where it is asked, else {cold}");
    }
}
