//! Estimated and real memory of filters.

use sievedb_filter::{FilterKind, Ribbon, TableFilter};

use crate::filters::plan::{
    curve::Curve,
    shape::{StoredFilter, TableShape},
};

fn hashes(count: u64) -> Vec<u64> {
    // SplitMix64.
    let mixed = (1..=count).map(|number| {
        let mut hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    });
    mixed.collect()
}

/// The estimate is never too small, and only slightly too large.
#[test]
fn shrunk_ribbons_take_what_was_said() {
    for keys in [100, 2_000, 10_000, 100_000, 400_000] {
        for columns in [6.0, 10.0, 17.5] {
            let ribbon = Ribbon::build(&hashes(keys), columns);
            let whole_bytes = ribbon.memory_bytes() as u64;
            let columns = ribbon.columns();
            let stored = StoredFilter { kind: FilterKind::Ribbon, columns, whole_bytes };
            let table = TableShape { keys, stored: Some(stored), ..TableShape::default() };
            let curve = Curve::of_stored(&table, f64::INFINITY);
            for size in [1.0, 2.0, 4.5, 6.0, 8.0, 9.25, 17.0] {
                if size > columns {
                    continue;
                }
                let (said, found) = (curve.bytes(size), ribbon.memory_bytes_at(size) as f64);
                let name = format!("{keys} keys, {size} of {columns} columns: {said}, {found}");
                assert!(said >= found - 128.0, "{name}");
                assert!(said <= found * 1.01 + 640.0, "{name}");
            }
        }
    }
}

#[test]
fn new_filters_take_what_was_said() {
    use FilterKind::{BinaryFuse, BlockedBloom, Ribbon};
    for keys in [1_000, 10_000, 400_000] {
        let cases = [
            (Ribbon, 7.0),
            (Ribbon, 10.5),
            (BlockedBloom, 9.7),
            (BinaryFuse, 9.0),
            (BinaryFuse, 18.0),
        ];
        for (kind, bits) in cases {
            let filter = TableFilter::build(kind, &hashes(keys), bits).expect("tables have it");
            let found = filter.memory_bytes() as f64;
            let curve = Curve::of_new(kind, keys, 40.0);
            let said = curve.bytes(bits);
            let name = format!("{kind:?}, {keys} keys, {bits} bits: {said}, {found}");
            let tenth = if kind == BinaryFuse { 0.1 } else { 0.005 };
            assert!((said - found).abs() <= tenth * found + 512.0, "{name}");
            let (said, found) = (curve.fpr(bits), filter.expected_fpr());
            assert!((said / found - 1.0).abs() < 0.1, "{name}: {said}, {found}");
        }
    }
}
