//! Scans of uncached data read several blocks at once, and short scans do not.

use std::sync::Arc;

use sievedb::{Db, Range, stats::IoStats};
use sievedb_doubles::MemoryFs;

use super::{key, open};

const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 100;

/// Creates one run without gaps.
fn filled() -> Db {
    let db = open(&Arc::new(MemoryFs::new()));
    for number in 0..KEYS {
        db.insert(key(number), value(number)).unwrap();
    }
    db.compact().unwrap();
    db
}

/// Incompressible, so that the bytes of the table are known.
fn value(number: u64) -> Vec<u8> {
    let mut state = number;
    let step = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..VALUE_BYTES).map(step).collect()
}

/// Returns the table reads of `scan`.
fn reads(db: &Db, scan: impl FnOnce()) -> IoStats {
    let before = db.stats().table_reads;
    scan();
    let after = db.stats().table_reads;
    let mut since = after;
    since.calls -= before.calls;
    since.bytes -= before.bytes;
    since
}

/// Reads all of `range` in one direction, and checks it.
fn walk(mut range: Range, back: bool) {
    let mut met = 0;
    while let Some(entry) = if back { range.next_back_ref() } else { range.next_ref() }.unwrap() {
        let number = if back { KEYS - 1 - met } else { met };
        assert_eq!((entry.key(), entry.value()), (&key(number)[..], &*value(number)));
        met += 1;
    }
    assert_eq!(met, KEYS);
}

#[test]
fn long_scans_read_ahead() {
    let db = filled();
    for back in [false, true] {
        let single = reads(&db, || walk(db.iter().read_ahead_bytes_max(0), back));
        let table = KEYS * VALUE_BYTES as u64;
        assert!(single.calls * 40_000 > table, "a read for each block: {single:?}, back: {back}");
        let ahead = reads(&db, || walk(db.iter(), back));
        assert!(ahead.calls * 10 < single.calls, "{ahead:?} for {single:?}, back: {back}");
        assert!(ahead.bytes < single.bytes * 11 / 10, "{ahead:?} for {single:?}, back: {back}");
        let bounded = reads(&db, || walk(db.iter().read_ahead_bytes_max(64 << 10), back));
        assert!(bounded.calls > ahead.calls, "{bounded:?} and {ahead:?}, back: {back}");
        assert!(bounded.calls * 5 < single.calls, "{bounded:?} for {single:?}, back: {back}");
    }
}

#[test]
fn short_scans_read_one_block() {
    let db = filled();
    let one = reads(&db, || drop(db.range(key(KEYS / 2)..).next().unwrap().unwrap()));
    assert_eq!(one.calls, 1);
    // Ten entries span at most two blocks.
    for start in (0..KEYS - 10).step_by(997) {
        let ten = reads(&db, || {
            let keys =
                db.range(key(start)..key(start + 10)).keys().map(|key| key.unwrap().to_vec());
            assert!(keys.eq((start..start + 10).map(|number| key(number).to_vec())));
        });
        assert!(ten.calls <= 2 && ten.bytes <= 2 * one.bytes + 1000, "{ten:?} of {one:?}");
    }
}

/// Fifty entries, as after most seeks of services: two or three blocks. The first read fetches the
/// usual number of blocks of earlier scans.
#[test]
fn repeated_scans_read_ahead_at_once() {
    let db = filled();
    let starts = || (0..KEYS - 50).step_by(197);
    let scans = starts().count() as u64;
    let fifty = |range: &mut Range, start: u64| {
        for number in start..start + 50 {
            let entry = range.next_ref().unwrap().expect("there are more keys");
            assert_eq!(entry.key(), key(number));
        }
    };
    let single = reads(&db, || {
        starts()
            .for_each(|start| fifty(&mut db.range(key(start)..).read_ahead_bytes_max(0), start));
    });
    assert!(single.calls > 2 * scans, "{single:?} for {scans} scans");
    let anew = reads(&db, || {
        starts().for_each(|start| fifty(&mut db.range(key(start)..), start));
    });
    let mut range = db.iter();
    let sought = reads(&db, || {
        starts().for_each(|start| {
            range.seek(key(start));
            fifty(&mut range, start);
        });
    });
    for (name, found) in [("ranges made anew", anew), ("one range", sought)] {
        assert!(found.calls * 10 < scans * 16, "{name}: {found:?} for {scans} scans");
        assert!(found.bytes * 10 < single.bytes * 12, "{name}: {found:?} for {single:?}");
    }
}

#[test]
fn compactions_read_ahead() {
    let db = filled();
    let single = reads(&db, || walk(db.iter().read_ahead_bytes_max(0), false));
    for number in (0..KEYS).step_by(2) {
        db.insert(key(number), value(number)).unwrap();
    }
    db.flush().unwrap();
    let compaction = reads(&db, || db.compact().unwrap());
    assert!(compaction.calls * 5 < single.calls, "{compaction:?}, single blocks: {single:?}");
    walk(db.iter(), false);
}
