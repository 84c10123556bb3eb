//! The budget is lowered and raised while the store is open.

use std::sync::Arc;

use sievedb::FilterPolicy;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::report;

use super::{KEYS, assert_all_readable, expected_reads, filter_bytes, grown, needless_reads, sum};

const LOOKUPS: u64 = 40_000;

#[test]
fn false_positives_follow_the_budget() {
    let db = grown(&Arc::new(MemoryFs::new()));
    let whole = filter_bytes(&db);
    let runs = sum(&db, |level| level.runs) as f64;
    assert!(runs >= 3.0 && whole > KEYS, "{runs} runs, {whole} bytes");
    // Reads all required blocks into the cache.
    db.set_filter_bytes_max(0).unwrap();
    assert_eq!(filter_bytes(&db), 0);
    let without = needless_reads(&db, LOOKUPS);
    assert_all_readable(&db, 0..KEYS);
    db.set_filter_bytes_max(u64::MAX).unwrap();
    let beginning = needless_reads(&db, LOOKUPS);

    let percents = [100, 50, 25, 10, 5, 0];
    let mut before: f64 = 0.0;
    let mut rates = Vec::new();
    for percent in percents {
        let bytes_max = whole * percent / 100 * 16 / 15;
        db.set_filter_bytes_max(bytes_max).unwrap();
        assert!(filter_bytes(&db) <= bytes_max, "{percent} %: {} bytes", filter_bytes(&db));
        assert!(
            percent <= 5 || filter_bytes(&db) >= bytes_max * 8 / 10,
            "{percent} %: {} bytes",
            filter_bytes(&db)
        );
        let reads = db.stats().table_reads;
        let measured = needless_reads(&db, LOOKUPS);
        assert_eq!(db.stats().table_reads, reads, "a lookup has read from a file");
        let expected = expected_reads(&db);
        report(&format!(
            "{percent:>3} % of the filters: {measured:.4} needless reads, {expected:.4} expected"
        ));
        // Five standard deviations.
        let chance = 5.0 * (expected / LOOKUPS as f64).sqrt();
        assert!((measured - expected).abs() <= expected * 0.1 + chance, "{percent} %");
        assert!(measured >= before * 0.9 && measured <= without * 1.01, "{percent} %: no curve");
        before = measured;
        rates.push(measured);
        assert_all_readable(&db, 0..KEYS / 10);
    }
    assert_eq!(filter_bytes(&db), 0);
    for (percent, down) in percents.into_iter().zip(rates).rev() {
        db.set_filter_bytes_max(whole * percent / 100 * 16 / 15).unwrap();
        let up = needless_reads(&db, LOOKUPS);
        let chance = 5.0 * (2.0 * down / LOOKUPS as f64).sqrt();
        assert!((up - down).abs() <= 0.25 * down + chance, "{percent} %: {down} and then {up}");
    }
    db.set_filter_bytes_max(u64::MAX).unwrap();
    // Less than a quarter of a column is not reloaded, and small filters may have been rebuilt.
    let (bytes, end) = (filter_bytes(&db), needless_reads(&db, LOOKUPS));
    assert!((whole * 99 / 100..=whole * 101 / 100).contains(&bytes), "{bytes} of {whole} bytes");
    let chance = 5.0 * (2.0 * beginning / LOOKUPS as f64).sqrt();
    assert!((end - beginning).abs() <= 0.1 * beginning + chance, "{beginning}, then {end}");
    assert_all_readable(&db, 0..KEYS);
}

/// A keyspace may have its own limit, which persists.
#[test]
fn policy_limit_applies_to_one_keyspace() {
    let fs = Arc::new(MemoryFs::new());
    let db = grown(&fs);
    let whole = filter_bytes(&db);
    let other = db.keyspace_with("other", &super::keyspace(FilterPolicy::default())).unwrap();
    for number in 0..20_000 {
        other.insert(super::key(number), [7; 16]).unwrap();
    }
    other.flush().unwrap();
    let both = filter_bytes(&db);
    assert!(both > whole, "{both} and before {whole}");
    let bounded = FilterPolicy::default().memory_bytes_max((both - whole) / 2);
    other.set_filter_policy(bounded).unwrap();
    let cut = filter_bytes(&db);
    assert!(cut <= whole + (both - whole) / 2 && cut > whole, "{cut} of {both}");
    drop((db, other));
    let db = super::options(fs, FilterPolicy::default()).open(super::STORE_DIR).unwrap();
    assert!(filter_bytes(&db) <= whole + (both - whole) / 2, "{}", filter_bytes(&db));
    let other = db.keyspace("other").unwrap();
    other.set_filter_policy(FilterPolicy::default()).unwrap();
    // Less than a quarter of a column is not reloaded.
    let again = filter_bytes(&db);
    assert!((both * 99 / 100..=both * 101 / 100).contains(&again), "{again} of {both} bytes");
    let invalid = other.set_filter_policy(FilterPolicy::default().bits_per_key(41.0));
    assert!(matches!(invalid, Err(sievedb::Error::InvalidOption { .. })), "{invalid:?}");
}
