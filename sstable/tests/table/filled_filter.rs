//! Point filters that are filled key by key.

use sievedb_filter::{FilterKind, key_hash};
use sievedb_sstable::{FilterKeys, TableOptions};

use crate::support::{Entry, IDENTITY, build};

const KEYS: u32 = 5_000;

/// Two versions of each key.
fn entries() -> Vec<Entry> {
    let versions =
        |number: u32| [7, 3].map(|sequence| Entry::put(&number.to_be_bytes(), sequence, b"value"));
    (0..KEYS).flat_map(versions).collect()
}

#[test]
fn a_filled_filter_contains_every_key() {
    let entries = entries();
    let ribbon = TableOptions::new().filter_kind(FilterKind::Ribbon);
    let built = build(&entries, TableOptions::new());
    for (keys_max, bytes) in [(KEYS, 1.0), (2 * KEYS, 2.0), (KEYS / 5, 0.2)] {
        let filled = build(&entries, ribbon.clone().filter_keys_max(keys_max.into()));
        let filter = filled.filter();
        let filter = filter.resident().expect("the filter was written");
        assert_eq!(filter.kind(), FilterKind::BlockedBloom);
        assert_eq!(filter.key_count(), KEYS.into(), "for {keys_max} keys");
        let hash = |number: u32| key_hash(&number.to_be_bytes(), IDENTITY.hash_seed);
        assert!((0..KEYS).all(|number| filter.may_contain_hash(hash(number))));
        let ratio = filter.memory_bytes() as f64 / f64::from(KEYS) * 8.0 / 10.0;
        assert!((ratio - bytes).abs() < 0.05, "for {keys_max} keys: {ratio}");
        if keys_max == KEYS {
            assert_eq!(filled.bytes, built.bytes, "of a table whose filter was built at once");
        }
        let positives =
            (KEYS..3 * KEYS).filter(|&number| filter.may_contain_hash(hash(number))).count();
        let rate = positives as f64 / f64::from(2 * KEYS);
        let expected = filter.expected_fpr();
        assert!((rate - expected).abs() < 0.02 + expected / 5.0, "{rate} and {expected}");
    }
}

#[test]
fn a_table_without_keys_has_no_filled_filter() {
    let options = TableOptions::new().filter_keys_max(1_000);
    assert!(build(&[], options.clone()).summary.filter.is_none());
    assert!(FilterKeys::new(&options, &IDENTITY).build_points(&|| false).is_none());
    let off = options.filter_bits_per_key(0.0);
    assert!(build(&entries(), off).summary.filter.is_none());
}
