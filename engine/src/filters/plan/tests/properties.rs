//! Properties of every plan.

use std::iter::repeat_with;

use sievedb_filter::FilterKind;

use super::stories::stored;
use crate::{
    filter_policy::{FilterPolicy, FilterPolicyKind},
    filters::plan::{
        FilterPlan, KeyspaceShape, Rebuild, Residence, RunShape, StoreShape, StoredFilter,
        TableShape, TableUse, choose,
        curve::Curve,
        division::ideal,
        plan, rebuilds,
        weight::{keyspace_weights, weights_of},
    },
    table::TablePlace,
    tests::{Random, seeds},
};

/// `2^-(bits - H)`: lower bound of the rate of any filter, for runs with these shares of the keys.
fn ideal_rate(keys: &[u64], bits: f64) -> f64 {
    let total = keys.iter().sum::<u64>() as f64;
    let entropy: f64 =
        keys.iter().map(|&keys| keys as f64 / total).map(|share| -share * share.log2()).sum();
    (entropy - bits).exp2()
}

/// Returns a store with runs of this number of keys, in tables of at most 600,000 keys, with
/// filters from `stored`.
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
    move |keys| Some(stored(FilterKind::Ribbon, keys, columns))
}

const SHAPES: [(&str, &[u64]); 5] = [
    ("90, 9 and 1 %", &[100_000, 900_000, 9_000_000]),
    ("three equal runs", &[3_333_333; 3]),
    ("one run", &[1_000_000]),
    ("a leveled tree", &[20_000, 200_000, 2_000_000, 20_000_000]),
    ("many flushes", &[100_000; 12]),
];

/// A fraction of a column costs up to 6 %.
#[test]
fn new_filters_are_near_the_ideal() {
    for (name, keys) in SHAPES {
        for bits in [5.0, 7.3, 10.0] {
            let store = store_of(keys, FilterPolicy::default().bits_per_key(bits), |_| None);
            let found = ideal(&store);
            let rates = found.buyers.iter().zip(&found.choices);
            let rate: f64 = rates
                .map(|(buyer, choice)| buyer.weight * buyer.curve.fpr(choice.bits_per_key))
                .sum();
            let best = ideal_rate(keys, bits);
            assert!(rate >= best * 0.999, "{name}, {bits} bits: {rate} beats {best}");
            assert!(rate <= best * 1.1, "{name}, {bits} bits: {rate}, {best} is ideal");
        }
    }
}

#[test]
fn stored_filters_shrink_to_near_the_ideal() {
    for (name, keys) in SHAPES {
        for bits in [2.5, 5.0, 7.3, 10.0] {
            let policy = FilterPolicy::default().bits_per_key(bits);
            let store = store_of(keys, policy, ribbon(20.0));
            let plan = plan(&store);
            let rate = plan.keyspaces[0].false_positives();
            let spent = plan.bytes as f64 * 8.0 / keys.iter().sum::<u64>() as f64;
            let best = ideal_rate(keys, bits);
            assert!(spent <= bits * 1.01, "{name}, {bits}: {spent}");
            assert!(rate <= best * 1.12, "{name}, {bits} bits: {rate}, {best} is ideal");
        }
    }
}

/// As a tree grows, each run gets its filter when it is written. Older filters drop columns in
/// memory, and are rebuilt if that is not enough.
#[test]
fn a_growing_tree_stays_near_the_ideal() {
    let cases: [(&str, &[u64], usize); 4] = [
        ("90, 9 and 1 %", &[9_000_000, 900_000, 100_000], 0),
        ("equal runs", &[3_333_333; 3], 0),
        ("a third in level 0", &[60_000, 10_000, 10_000, 10_000], 0),
        // The first run, once the only one, has far too few bits in the end.
        ("small to large", &[10_000, 40_000, 160_000, 640_000], 3),
    ];
    for (name, runs, want_rebuilt) in cases {
        for bits in [5.0, 10.0] {
            let policy = FilterPolicy::default().bits_per_key(bits);
            let mut store = store_of(&[], policy, |_| None);
            let mut rebuilt = 0;
            for (&keys, number) in runs.iter().zip(1..) {
                let place = TablePlace { level: 0, run: number };
                let choice = choose(store.clone(), 0, place, keys);
                let stored = Some(stored(choice.kind, keys, choice.bits_per_key));
                let table = TableShape { id: number, keys, stored, ..TableShape::default() };
                store.keyspaces[0].runs.insert(0, RunShape { place, tables: vec![table] });
                apply(&mut store);
            }
            for rebuild in rebuilds(&store, &plan(&store)) {
                let mut tables = store.keyspaces[0].runs.iter_mut().flat_map(|run| &mut run.tables);
                let table = tables.find(|table| table.id == rebuild.table_id).expect("the table");
                let choice = rebuild.choice;
                table.stored = Some(stored(choice.kind, table.keys, choice.bits_per_key));
                rebuilt += 1;
            }
            assert_eq!(rebuilt, want_rebuilt, "{name}, {bits} bits");
            let rate = plan(&store).keyspaces[0].false_positives();
            let best = ideal_rate(runs, bits);
            assert!(rate <= best * 1.15, "{name}, {bits} bits: {rate}, {best} is ideal");
        }
    }
}

fn apply(store: &mut StoreShape) -> FilterPlan {
    let plan = plan(store);
    for (keyspace, target) in store.keyspaces.iter_mut().zip(&plan.keyspaces) {
        for (run, target) in keyspace.runs.iter_mut().zip(&target.runs) {
            for (table, target) in run.tables.iter_mut().zip(&target.tables) {
                table.resident = target.residence;
            }
        }
    }
    plan
}

/// Returns a number from `2^from` to `2^to`, small numbers as often as large ones.
fn power(random: &mut Random, from: f64, to: f64) -> f64 {
    let unit = random.next() as f64 / u64::MAX as f64;
    (from + unit * (to - from)).exp2()
}

/// A store of any shape. With `is_auto` all tables have ribbons, and all policies are `Auto`.
fn any_store(random: &mut Random, is_auto: bool) -> StoreShape {
    use FilterPolicyKind::{Auto, Bloom, Fuse, None as Off, Ribbon};
    let mut id = 0;
    let keyspaces = repeat_with(|| {
        let kind = [Auto, Auto, Auto, Bloom, Ribbon, Fuse, Off][random.below(7) as usize];
        let kind = if is_auto { Auto } else { kind };
        let bits = if is_auto { 30.0 } else { power(random, -1.0, 5.0) };
        let lookups = if random.below(2) == 0 { 0.0 } else { power(random, 0.0, 20.0) };
        let run_count = 1 + random.below(4);
        let runs = (0..run_count).map(|run| {
            let keys = power(random, if is_auto { 11.0 } else { 6.0 }, 20.0);
            let tables = (0..1 + random.below(8)).map(|_| {
                id += 1;
                let keys = (keys * power(random, -1.0, 1.0)) as u64 + 1;
                any_table(random, id, keys, lookups, is_auto)
            });
            RunShape { place: TablePlace { level: run as u8, run }, tables: tables.collect() }
        });
        let runs = runs.collect();
        let policy = FilterPolicy::new(kind).bits_per_key(bits);
        KeyspaceShape { policy, filter_bytes_max: None, lookups, runs }
    });
    let keyspaces = keyspaces.take(2).collect();
    StoreShape { filter_bytes_max: None, keyspaces }
}

fn any_table(random: &mut Random, id: u64, keys: u64, lookups: f64, is_auto: bool) -> TableShape {
    let kinds = [FilterKind::Ribbon, FilterKind::BlockedBloom, FilterKind::BinaryFuse];
    let kind = if is_auto { kinds[0] } else { kinds[random.below(3) as usize] };
    let has_filter = is_auto || random.below(8) > 0;
    let stored = has_filter.then(|| stored(kind, keys, 1.0 + power(random, 0.0, 4.0)));
    let usage = TableUse { probes: lookups * power(random, -8.0, 0.0), lookups };
    let resident = match (random.below(3), stored) {
        (1, Some(_)) => Residence::Whole,
        (2, Some(stored)) if kind == FilterKind::Ribbon => {
            Residence::Columns(stored.columns * 0.5).max_one()
        }
        _ => Residence::Nothing,
    };
    let resident = if is_auto { Residence::Nothing } else { resident };
    TableShape { id, keys, stored, resident, usage }
}

impl Residence {
    fn max_one(self) -> Self {
        match self {
            Self::Columns(columns) if columns < 1.0 => Self::Columns(1.0),
            other => other,
        }
    }
}

fn stored_bytes(store: &StoreShape) -> u64 {
    let tables = store.keyspaces.iter().flat_map(|k| &k.runs).flat_map(|run| &run.tables);
    tables.filter_map(|table| table.stored).map(|stored| stored.whole_bytes).sum()
}

#[test]
fn no_bound_is_exceeded_and_what_is_planned_can_be_done() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let mut store = any_store(&mut random, false);
        let all = stored_bytes(&store);
        let max = (all as f64 * power(&mut random, -8.0, 1.0)) as u64;
        store.filter_bytes_max = Some(max);
        store.keyspaces[0].filter_bytes_max = Some(max / 2);
        let plan = apply(&mut store);
        assert!(plan.bytes <= max, "{} of {max}", plan.bytes);
        let of_first = plan.keyspaces[0].runs.iter().flat_map(|run| &run.tables);
        let of_first: u64 = of_first.map(|table| table.bytes).sum();
        assert!(of_first <= max / 2, "{of_first} of {max} / 2");
        for table in store.keyspaces.iter().flat_map(|k| &k.runs).flat_map(|run| &run.tables) {
            match (table.resident, table.stored) {
                (Residence::Nothing, _) | (Residence::Whole, Some(_)) => (),
                (Residence::Columns(columns), Some(stored)) => {
                    assert_eq!(stored.kind, FilterKind::Ribbon, "{table:?}");
                    assert!((1.0..stored.columns).contains(&columns), "{table:?}");
                }
                (_, None) => panic!("there is no filter: {table:?}"),
            }
        }
        let found: Vec<Rebuild> = rebuilds(&store, &plan);
        for rebuild in found {
            let bits = rebuild.choice.bits_per_key;
            assert!((0.001..=40.0).contains(&bits), "{rebuild:?}");
        }
    }
}

/// Starts with empty memory: parts already in memory are kept if they are nearly as good.
#[test]
fn more_memory_never_does_worse() {
    for seed in seeds(200) {
        let mut store = any_store(&mut Random::new(seed), true);
        let all = stored_bytes(&store) as f64;
        let mut before = f64::INFINITY;
        for percent in 0..=110 {
            store.filter_bytes_max = Some((all * f64::from(percent) / 100.0) as u64);
            let found = plan(&store).false_positives;
            assert!(found <= before * 1.000_001, "{percent} %: {found} after {before}");
            before = found;
        }
    }
}

/// Compares with the same number of columns for every table, as many as fit.
#[test]
fn no_plan_is_worse_than_equal_columns() {
    for seed in seeds(200) {
        let mut store = any_store(&mut Random::new(seed), true);
        for columns in [1.0, 2.0, 4.0, 8.0] {
            let (mut bytes, mut rate) = (0.0, 0.0);
            let weights = keyspace_weights(&store);
            for (keyspace, weight) in store.keyspaces.iter().zip(weights) {
                let tables = keyspace.runs.iter().flat_map(|run| &run.tables);
                for (table, weight) in tables.zip(weights_of(keyspace, weight)) {
                    let curve = Curve::of_stored(table, f64::INFINITY);
                    let columns = curve.size_max.min(columns);
                    bytes += curve.bytes(columns);
                    rate += weight * curve.fpr(columns);
                }
            }
            // The headroom is not available to filters.
            store.filter_bytes_max = Some((bytes * 16.0 / 15.0) as u64 + 64);
            let found = plan(&store).false_positives;
            assert!(found <= rate * 1.02, "{columns} columns: {found}, equal columns {rate}");
        }
    }
}

/// Measured use varies by a tenth, and filters stay as they are.
#[test]
fn noise_changes_nothing() {
    for seed in seeds(50) {
        let mut random = Random::new(seed);
        let mut store = any_store(&mut random, true);
        store.filter_bytes_max = Some(stored_bytes(&store) / 2);
        apply(&mut store);
        apply(&mut store);
        let before = store.clone();
        for table in
            store.keyspaces.iter_mut().flat_map(|k| &mut k.runs).flat_map(|run| &mut run.tables)
        {
            table.usage.probes *= 0.95 + 0.1 * (random.below(1000) as f64 / 1000.0);
        }
        let plan = apply(&mut store);
        let tables = |store: &StoreShape| -> Vec<Residence> {
            let runs = store.keyspaces.iter().flat_map(|k| &k.runs);
            runs.flat_map(|run| &run.tables).map(|table| table.resident).collect()
        };
        let changed = tables(&before).iter().zip(tables(&store)).filter(|(a, b)| **a != *b).count();
        // One filter may have received the remaining fraction of a column.
        assert!(changed <= 1, "{changed} of {plan:?}");
    }
}

/// A hundredth of the memory removes a hundredth of the columns, not of the tables.
#[test]
fn a_small_cut_changes_few_tables() {
    let mut store =
        store_of(&[2_000_000, 20_000_000, 200_000_000], FilterPolicy::default(), ribbon(14.0));
    let max = 250_000_000;
    store.filter_bytes_max = Some(max);
    apply(&mut store);
    store.filter_bytes_max = Some(max / 100 * 99);
    let before = store.clone();
    apply(&mut store);
    let tables = |store: &StoreShape| -> Vec<Residence> {
        store.keyspaces[0].runs.iter().flat_map(|run| &run.tables).map(|t| t.resident).collect()
    };
    let changed = tables(&before).iter().zip(tables(&store)).filter(|(a, b)| **a != *b).count();
    assert!(changed <= 45, "{changed} of {} tables", tables(&store).len());
}
