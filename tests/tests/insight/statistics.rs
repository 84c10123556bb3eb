//! Filter statistics per level and in total, measured against the expectation.

use std::{sync::Arc, time::Duration};

use sievedb::{
    Db, Durability, FilterPolicy, FilterPolicyKind, KeyspaceOptions,
    clock::ManualClock,
    stats::{LevelShape, LevelStats, WriteStats},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, report, small_options};

use super::{KEYS, fill, grown, key};

fn ask_absent(db: &Db, lookups: u64) {
    for number in KEYS * 10..KEYS * 10 + lookups {
        assert_eq!(db.get(key(number)).unwrap(), None);
    }
}

/// False positives are within five standard deviations of the expected rate.
///
/// The rate of small Bloom filters varies too, with the fill of their lines. One line's rate
/// deviates by up to its mean, the rate of all lines by that divided by the square root of their
/// number.
fn assert_as_expected(level: &LevelStats, what: &str) {
    let (found, expected) = (level.filter_false_positives as f64, level.false_positives_expected);
    let lines = (level.filter_bytes as f64 / 64.0).max(1.0);
    let bound = 5.0 * (expected.max(1.0) + expected * expected / lines).sqrt();
    assert!((found - expected).abs() <= bound, "{what}: {found} against {expected}: {level:?}");
}

#[test]
fn measured_rates_match_expected_rates_per_level() {
    let db = grown(&Arc::new(MemoryFs::new()));
    ask_absent(&db, 50_000);
    let stats = db.stats();
    let used: Vec<_> = stats.levels.iter().filter(|level| level.tables > 0).collect();
    assert!(used.len() >= 2, "{stats}");
    for level in &used {
        assert_eq!(level.candidates, level.filter_negatives + level.false_positives, "{stats}");
        assert_eq!(level.filter_probes(), level.candidates, "all filters are in memory");
        assert!(level.filter_bytes <= level.filter_bytes_whole, "{stats}");
        assert_as_expected(level, "a level");
        let (shape, probes) = (level.filter_fpr_expected, level.filter_fpr_expected_of_probes());
        assert!(
            (probes / shape - 1.0).abs() < 0.2,
            "{shape} by shape, {probes} by probes: {stats}"
        );
    }
    let total = stats.total();
    assert_as_expected(&total, "in total");
    assert_eq!(total.tables, stats.keyspaces.iter().map(|keyspace| keyspace.tables).sum::<u64>());
    report(&format!(
        "statistics: {:.5} measured, {:.5} expected",
        total.filter_fpr_measured(),
        total.filter_fpr_expected_of_probes()
    ));
}

/// The expectation is that of the filters at the time of the probe.
#[test]
fn expected_rates_follow_the_budget() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let whole = db.stats().memory.filter_bytes;
    for share in [10, 5, 8, 2, 0, 10] {
        db.set_filter_bytes_max(whole * share / 10).unwrap();
        let before = db.stats();
        ask_absent(&db, 5_000);
        let since = db.stats().since(&before);
        assert_as_expected(&since.total(), &format!("with {share} tenths"));
        if share == 0 {
            let total = since.total();
            assert_eq!((total.filter_probes(), total.filter_fpr_measured()), (0, 0.0));
            assert_eq!(total.filter_not_resident, total.candidates);
        }
    }
    assert_as_expected(&db.stats().total(), "all together");
}

/// Only one of two runs of a level has filters: the rates are those of its filters, and searches of
/// the other run are counted separately.
#[test]
fn run_without_filters_is_excluded_from_rates() {
    let fs = Arc::new(MemoryFs::new());
    let open = |kind| {
        let policy = FilterPolicy::new(kind).bits_per_key(8.0);
        let keyspace = KeyspaceOptions::new().filter_policy(policy);
        // One flush each.
        let options = small_options(fs.clone()).log_segment_bytes(16 << 20).log_bytes_max(64 << 20);
        options.block_cache_bytes(8 << 20).keyspace(keyspace).open(STORE_DIR).unwrap()
    };
    let db = open(FilterPolicyKind::None);
    fill(&db, 0..2_000);
    db.flush().unwrap();
    // Rebuilding filters off the plan would give the first run a filter too.
    let other = db.keyspace_with("filtered", &KeyspaceOptions::new()).unwrap();
    for number in 0..500 {
        other.insert(key(number), "").unwrap();
    }
    other.flush().unwrap();
    let absent = 20_000;
    for number in KEYS..KEYS + absent {
        assert!(
            !db.contains_key(key(number)).unwrap() && !other.contains_key(key(number)).unwrap()
        );
    }
    let keys: Vec<_> = (KEYS + absent..KEYS + 2 * absent).map(key).collect();
    db.contains_many(&keys).unwrap();
    other.contains_many(&keys).unwrap();
    let stats = db.stats();
    let level = stats.levels[0];
    assert_eq!(level.runs, 2, "{stats}");
    assert_as_expected(&level, "the filtered run");
    let unfiltered = level.false_positives - level.filter_false_positives;
    assert!(unfiltered > absent, "the run without filters is searched: {stats}");
    let (measured, expected) = (level.filter_fpr_measured(), level.filter_fpr_expected_of_probes());
    assert!(measured < 0.1 && expected < 0.1, "{measured} and {expected}: {stats}");
    // Each run is probed once: half of the searches are certain.
    assert!((0.5..0.55).contains(&level.filter_fpr_expected), "{stats}");
}

/// Reads saved by filters equal the requests without filters.
#[test]
fn reads_saved_equal_reads_without_filters() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let lookups = 3_000;
    let asked = |db: &Db| {
        let before = db.stats();
        ask_absent(db, lookups);
        for number in 0..KEYS / 10 {
            assert!(db.contains_key(key(number * 10)).unwrap());
        }
        db.stats().since(&before).total()
    };
    let with = asked(&db);
    db.set_filter_bytes_max(0).unwrap();
    let without = asked(&db);
    assert!(with.reads_saved() > lookups, "{with:?}");
    assert_eq!(with.data_block_requests + with.reads_saved(), without.data_block_requests);
    assert_eq!((without.reads_saved(), without.filter_true_positives), (0, 0));
    assert_eq!(with.true_positives, with.filter_true_positives);
    let text = db.stats().to_string();
    for head in ["level", "probes", "measured", "expected", "reads saved", "not resident", "total"]
    {
        assert!(text.contains(head), "{head}: {text}");
    }
}

/// Writes and their delays are counted.
#[test]
fn writes_and_snapshots_are_counted() {
    let clock = Arc::new(ManualClock::new());
    let options = small_options(Arc::new(MemoryFs::new())).clock(clock.clone());
    let db = options.durability(Durability::OsBuffer).open(STORE_DIR).unwrap();
    let before = db.stats().writes;
    db.insert("a", "12345").unwrap();
    db.remove("b").unwrap();
    assert!(!db.insert_if_absent("a", "").unwrap(), "what is not written is not counted");
    assert!(db.insert("k".repeat(70_000), "").is_err());
    let mut batch = db.batch();
    for key in ["c", "d", "e"] {
        batch.insert(&db, key, "12345").unwrap();
    }
    batch.commit(Durability::Disk).unwrap();
    db.batch().commit(Durability::Disk).unwrap();
    let stats = db.stats();
    let WriteStats { batches, entries, bytes, log_syncs, stalls, stalled_us, .. } = stats.writes;
    assert_eq!((batches - before.batches, entries - before.entries), (3, 5));
    assert!((24..200).contains(&(bytes - before.bytes)), "{stats}");
    assert_eq!(log_syncs - before.log_syncs, 1, "{stats}");
    assert_eq!((stalls, stalled_us), (0, 0));
    assert_eq!(stats.since(&stats).writes, WriteStats::default());

    assert_eq!((stats.snapshots, stats.oldest_snapshot_us), (0, 0));
    let snapshots = [(); 2].map(|()| {
        clock.advance(Duration::from_secs(3));
        db.insert("a", "").unwrap();
        db.snapshot()
    });
    clock.advance(Duration::from_millis(500));
    let stats = db.stats();
    assert_eq!((stats.snapshots, stats.oldest_snapshot_us), (2, 3_500_000), "{stats}");
    assert!(stats.to_string().contains("2 snapshots are open, the oldest for 3.5 s"), "{stats}");
    drop(snapshots);
    assert_eq!(db.stats().snapshots, 0);
}

/// Each keyspace reports its levels; together they equal the total.
#[test]
fn levels_are_reported_per_keyspace() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let other = db.keyspace("other").unwrap();
    other.insert("a", "").unwrap();
    other.flush().unwrap();
    let stats = db.stats();
    for (number, level) in stats.levels.iter().enumerate() {
        let shapes = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let shapes: Vec<_> = shapes.filter(|shape| usize::from(shape.level) == number).collect();
        let sum = |of: fn(&LevelShape) -> u64| shapes.iter().map(|shape| of(shape)).sum::<u64>();
        let sums = (sum(|shape| shape.runs), sum(|shape| shape.tables), sum(|shape| shape.bytes));
        assert_eq!(sums, (level.runs, level.tables, level.bytes), "level {number}: {stats}");
        assert_eq!(sum(|shape| shape.entries), level.entries, "level {number}: {stats}");
    }
    assert_eq!(stats.keyspaces[0].levels.len(), 2, "{stats}");
    assert_eq!(stats.keyspaces[1].levels.len(), 1, "{stats}");
}

/// Waits of writers are counted.
#[test]
fn stalls_are_counted() {
    let options = small_options(Arc::new(MemoryFs::new())).memtable_bytes_max(1 << 20);
    let db = options.open(STORE_DIR).unwrap();
    for number in 0..2 {
        // One value leaves no space for another before it is flushed.
        db.insert(key(number), [7; 600 << 10]).unwrap();
    }
    let writes = db.stats().writes;
    assert!(writes.stalls > 0, "{writes:?}");
}
