//! Filters of a growing tree: the average bits per key hold, and are spent where they save most
//! reads.

use std::sync::Arc;

use sievedb::{Db, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Result, stats::LevelStats};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, report, small_options};

const KEYS: u64 = 120_000;

/// Writes keys in random order, with flushes and compactions in between, and calls `look` at
/// intervals. Returns the flushed store.
fn grow(policy: FilterPolicy, mut look: impl FnMut(&Db)) -> Result<Db> {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(512 << 10)
        .table_bytes(512 << 10)
        .base_level_bytes(1 << 20)
        .filter_policy(policy);
    let options = small_options(Arc::new(MemoryFs::new())).keyspace(keyspace);
    let db = options.open(STORE_DIR)?;
    for number in 0..KEYS {
        db.insert(key(number), [7; 16])?;
        if number % 10_000 == 0 {
            look(&db);
        }
    }
    db.flush()?;
    look(&db);
    Ok(db)
}

/// Maps different numbers to different keys, in random order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn sum(db: &Db, field: fn(&LevelStats) -> u64) -> u64 {
    db.stats().levels.iter().map(field).sum()
}

fn bits_per_key(db: &Db) -> f64 {
    let entries = sum(db, |level| level.entries);
    sum(db, |level| level.filter_bytes) as f64 * 8.0 / entries.max(1) as f64
}

/// A filter rounds up to whole lines, and a ribbon needs a few percent more columns.
#[test]
fn average_bits_per_key_hold_while_a_tree_grows() {
    for bits in [4.0, 10.0] {
        let mut most = 0.0_f64;
        let look = |db: &Db| most = most.max(bits_per_key(db));
        grow(FilterPolicy::default().bits_per_key(bits), look).unwrap();
        report(&format!("filters of {bits} bits a key: {most:.3} at most"));
        assert!(most > bits * 0.8, "{most} bits are too few for {bits}");
        assert!(most < bits * 1.05, "{most} bits are too many for {bits}");
    }
}

/// Equal memory, fewer measured false positives.
#[test]
fn planned_filters_have_fewer_false_positives_than_uniform_bloom() {
    let needless = [FilterPolicyKind::Bloom, FilterPolicyKind::Auto].map(|kind| {
        let db = grow(FilterPolicy::new(kind), |_| ()).unwrap();
        let asked = 100_000;
        let before = sum(&db, |level| level.false_positives);
        for number in KEYS..KEYS + asked {
            assert_eq!(db.get(key(number)).unwrap(), None);
        }
        let found = sum(&db, |level| level.false_positives) - before;
        let (needless, bits) = (found as f64 / asked as f64, bits_per_key(&db));
        report(&format!("{kind:?}: {needless:.5} needless reads a lookup, {bits:.2} bits a key"));
        needless
    });
    let [bloom, planned] = needless;
    assert!(planned * 5.0 < bloom, "{planned} against {bloom}");
}

/// A store keeps its policy, and a new one applies to tables written later.
#[test]
fn policy_may_change() {
    use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
    let fs = Arc::new(MemoryFs::new());
    let open = |kind| {
        let keyspace = KeyspaceOptions::new().filter_policy(FilterPolicy::new(kind));
        small_options(fs.clone()).keyspace(keyspace).open(STORE_DIR).unwrap()
    };
    for (round, kind) in (0..).zip([Auto, Bloom, Ribbon, Fuse, None, Auto]) {
        let db = open(kind);
        let numbers = |round: u64| round * 3_000..(round + 1) * 3_000;
        for number in numbers(round) {
            db.insert(key(number), b"value").unwrap();
        }
        db.flush().unwrap();
        if round % 2 == 1 {
            db.compact().unwrap();
        }
        for number in (0..=round).flat_map(numbers) {
            assert!(db.contains_key(key(number)).unwrap(), "{kind:?} denies {number}");
        }
        let has_filter = sum(&db, |level| level.filter_bytes) > 0;
        assert!(has_filter || kind == None, "{kind:?}");
    }
}
