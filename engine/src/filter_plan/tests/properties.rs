//! What holds of every plan.

use sievedb_filter::FilterKind;

use crate::{
    filter_plan::{
        KeyspaceShape, RunShape, StoreShape, StoredFilter, TableShape, division::ideal, plan,
    },
    filter_policy::FilterPolicy,
    table::store::TablePlace,
};

/// `2^-(bits - H)`: what no filter can be better than, for runs with these shares of the keys.
fn ideal_rate(keys: &[u64], bits: f64) -> f64 {
    let total = keys.iter().sum::<u64>() as f64;
    let entropy: f64 =
        keys.iter().map(|&keys| keys as f64 / total).map(|share| -share * share.log2()).sum();
    (entropy - bits).exp2()
}

/// Runs of so many keys, in tables of at most 600,000, with filters as `stored` says.
fn store_of(
    runs: &[u64],
    policy: FilterPolicy,
    stored: impl Fn(u64) -> Option<StoredFilter>,
) -> StoreShape {
    let mut id = 0;
    let runs = runs.iter().map(|&keys| {
        let mut tables = Vec::new();
        let mut left = keys;
        while left > 0 {
            let keys = left.min(600_000);
            left -= keys;
            id += 1;
            tables.push(TableShape { id, keys, stored: stored(keys), ..TableShape::default() });
        }
        RunShape { place: TablePlace { level: 0, run: id }, tables }
    });
    let runs = runs.collect();
    let keyspace = KeyspaceShape { policy, filter_bytes_max: None, lookups: 0.0, runs };
    StoreShape { filter_bytes_max: None, keyspaces: vec![keyspace] }
}

fn ribbon(columns: f64) -> impl Fn(u64) -> Option<StoredFilter> {
    move |keys| {
        let whole_bytes = (keys as f64 * (columns * 1.001 + 0.07) / 8.0) as u64 + 500;
        Some(StoredFilter { kind: FilterKind::Ribbon, columns, whole_bytes })
    }
}

const SHAPES: [(&str, &[u64], f64); 6] = [
    ("90, 9 and 1 %", &[100_000, 900_000, 9_000_000], 1.2),
    ("three equal runs", &[3_333_333; 3], 1.15),
    ("one run", &[1_000_000], 1.15),
    ("a leveled tree", &[20_000, 200_000, 2_000_000, 20_000_000], 1.2),
    ("many flushes", &[100_000; 12], 1.15),
    ("small runs", &[1_999; 4], 16.0),
];

#[test]
fn new_filters_are_near_the_ideal() {
    for (name, keys, worse) in SHAPES {
        for bits in [5.0, 7.3, 10.0] {
            let store = store_of(keys, FilterPolicy::default().bits_per_key(bits), |_| None);
            let found = ideal(&store);
            let rate: f64 = found
                .buyers
                .iter()
                .zip(&found.choices)
                .map(|(buyer, choice)| buyer.weight * buyer.curve.fpr(choice.bits_per_key))
                .sum();
            let best = ideal_rate(keys, bits);
            assert!(rate >= best * 0.999, "{name}, {bits} bits: {rate} beats {best}");
            assert!(rate <= best * worse, "{name}, {bits} bits: {rate}, {best} is ideal");
        }
    }
}

#[test]
fn stored_filters_shrink_to_near_the_ideal() {
    for (name, keys, worse) in &SHAPES[..5] {
        for bits in [1.0, 2.5, 5.0, 7.3, 10.0] {
            let policy = FilterPolicy::default().bits_per_key(bits);
            let store = store_of(keys, policy, ribbon(20.0));
            let plan = plan(&store);
            let rate = plan.keyspaces[0].false_positives();
            let all: u64 = keys.iter().sum();
            let spent = plan.bytes as f64 * 8.0 / all as f64;
            let best = ideal_rate(keys, bits);
            assert!(spent <= bits * 1.03, "{name}, {bits}: {spent}");
            let worse = if bits < 5.0 { 1.35 } else { *worse };
            assert!(rate <= best * worse, "{name}, {bits} bits: {rate}, {best} is ideal");
        }
    }
}
