//! Long sequences of tombstones are scanned in linear time, and are removed after scans.

use std::sync::Arc;

use sievedb::{Db, Durability};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{from_env, report};

use super::{key, open};

/// Tombstones before the live key; a million with `SIEVE_LONG=1`. Two scans over them trigger a
/// flush.
fn tombstones() -> u64 {
    if from_env("SIEVE_LONG", 0) == 1 { 1_000_000 } else { 70_000 }
}

/// Creates one live key after many that were written, moved to the last level, and removed.
fn buried(tombstones: u64) -> Db {
    let db = open(&Arc::new(MemoryFs::new()));
    write(&db, 0..tombstones + 1, |batch, number| batch.insert(&db, key(number), b"v"));
    db.compact().unwrap();
    write(&db, 0..tombstones, |batch, number| batch.remove(&db, key(number)));
    db
}

fn write(
    db: &Db,
    mut numbers: std::ops::Range<u64>,
    change: impl Fn(&mut sievedb::Batch, u64) -> sievedb::Result<()>,
) {
    while !numbers.is_empty() {
        let mut batch = db.batch();
        for number in numbers.by_ref().take(1000) {
            change(&mut batch, number).unwrap();
        }
        batch.commit(Durability::Memory).unwrap();
    }
}

/// Scans in both directions. Returns their times.
fn scan(db: &Db, live: u64) -> [std::time::Duration; 2] {
    [false, true].map(|back| {
        #[expect(clippy::disallowed_methods, reason = "the time is reported, and not judged")]
        let start = std::time::Instant::now();
        let mut range = db.iter();
        let entry = if back { range.next_back_ref() } else { range.next_ref() };
        assert_eq!(entry.unwrap().map(|entry| entry.key().to_vec()), Some(key(live).to_vec()));
        let more = if back { range.next_back_ref() } else { range.next_ref() };
        assert!(more.unwrap().is_none());
        start.elapsed()
    })
}

#[test]
fn scanned_tombstones_of_level_0_are_compacted() {
    let count = tombstones();
    let db = buried(count);
    db.flush().unwrap();
    assert_eq!(db.stats().total().tombstones, count, "one run of level 0 is not due by itself");
    let [up, down] = scan(&db, count);
    report(&format!("scan over {count} tombstones in a table: {up:?} up, {down:?} down"));
    let skipped = db.stats().total().tombstones_skipped;
    assert!(skipped >= 2 * count, "{skipped} of {count} tombstones counted");
    db.wait_for_background().unwrap();
    let total = db.stats().total();
    assert_eq!((total.tombstones, total.entries), (0, 1));
    scan(&db, count);
    assert_eq!(db.stats().total().tombstones_skipped, skipped);
}

#[test]
fn scanned_tombstones_of_memtables_are_flushed() {
    let count = tombstones();
    let db = buried(count);
    let [up, down] = scan(&db, count);
    report(&format!("scan over {count} tombstones in a memtable: {up:?} up, {down:?} down"));
    db.wait_for_background().unwrap();
    // Scans must step over tombstones of a table several times before a compaction pays.
    scan(&db, count);
    db.wait_for_background().unwrap();
    let total = db.stats().total();
    assert_eq!((total.tombstones, total.entries), (0, 1));
}

#[test]
fn few_scanned_tombstones_trigger_nothing() {
    let db = buried(100);
    write(&db, 1000..20_000, |batch, number| batch.insert(&db, key(number), b"v"));
    db.flush().unwrap();
    let before = db.stats().background;
    for _ in 0..3 {
        assert_eq!(db.iter().count(), 19_001);
    }
    db.wait_for_background().unwrap();
    let after = db.stats().background;
    assert_eq!((before.compactions, before.flushes), (after.compactions, after.flushes));
}
