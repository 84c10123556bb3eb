//! The division of all filter bytes of a store among its tables.

use sievedb_filter::FilterKind;

use super::{
    curve::{Curve, LINE_BYTES, rounded},
    shape::{KeyspaceShape, Residence, RunShape, StoreShape, TableShape},
    spend::{Buyer, Spent, spend},
    target::{FilterPlan, KeyspaceTarget, RunTarget, TableTarget},
    weight::{keyspace_weights, table_weights, weights_of},
};
use crate::filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind};

/// Minimum number of keys of a run with ribbons. A smaller run gets Bloom filters. A ribbon has at
/// least 64 slots, and layers.
const RIBBON_KEYS_MIN: u64 = 2_000;

/// A run with less than this share of the keys gets Bloom filters. Builds and probes take a quarter
/// of the time. The extra memory, some ten bits per key at the rates of small runs, is a small part
/// of all bits.
///
/// Larger runs keep ribbons. Example: four flushes on a level of ten times as many keys and the
/// rest below, at the best division of 10 bits per key. Bloom filters for flushes of 0.1 % of the
/// keys cause 1.05 times the false positives of ribbons. The factor is 1.10 at 0.25 %, and 1.29 at
/// 1 %. It is 1.75 at 2.8 %, a memtable of 32 MiB in a store of ten million keys.
const RIBBON_SHARE_MIN: f64 = 1.0 / 400.0;

/// Divisor of a bound for its headroom, which is reserved for the replacement of a filter. A larger
/// filter is dropped before its successor is built.
const HEADROOM_PART: u64 = 16;

/// Factor by which stored filters may exceed the average of the policy. Without it, rounding would
/// immediately cost a new ribbon a column.
const AVERAGE_SLACK: f64 = 1.005;

/// The same in bytes for each table of few keys, times the share of the keys in such tables. Its
/// Bloom filter cannot shrink when smaller runs, written later, take more than the average: it
/// would be dropped whole. Keys of other tables have ribbons, which drop columns instead.
const SMALL_TABLE_SLACK_BYTES: f64 = 128.0;

/// Granularity of the columns of a ribbon in memory.
const COLUMN_PART: f64 = 1.0 / 8.0;

/// Minimum growth, in columns, for which a ribbon is read again.
const COLUMN_GROWTH_MIN: f64 = 0.25;

/// Maximum number of columns beyond [`best_columns`] with which a new ribbon is planned. The limit
/// only saves time.
const COLUMNS_SPARE: f64 = 2.0;

/// Maximum difference, in columns, between a ribbon and its target: a ribbon shrinks in whole
/// blocks.
const COLUMN_ROUNDING: f64 = 1.0 / 32.0;

/// Plans the part of each stored filter that should be in memory.
///
/// Minimizes the expected false positives per lookup within all bounds. A part in memory is dropped
/// only if its bytes save more than `HELD_FACTOR` times as many in another table.
pub(crate) fn plan(store: &StoreShape) -> FilterPlan {
    let buyers = stored_buyers(store);
    let spent = spend(
        &buyers,
        store_bytes(store),
        &keyspace_bytes(store, AVERAGE_SLACK, SMALL_TABLE_SLACK_BYTES),
    );
    let mut next = buyers.iter().zip(spent.sizes);
    let mut plan = FilterPlan { bytes_left: spent.left as u64, ..FilterPlan::default() };
    for (keyspace, weight) in store.keyspaces.iter().zip(keyspace_weights(store)) {
        let mut target = KeyspaceTarget::default();
        for run in &keyspace.runs {
            let mut run_target = RunTarget::default();
            for (table, weight) in run.tables.iter().zip(table_weights(run)) {
                let (buyer, size) = next.next().expect("a size for each table");
                let found = table_target(table, buyer, size);
                plan.is_short |= size < buyer.curve.size_max;
                plan.bytes += found.bytes;
                run_target.false_positives += weight * found.fpr;
                run_target.tables.push(found);
            }
            target.runs.push(run_target);
        }
        plan.false_positives += weight * target.false_positives();
        plan.keyspaces.push(target);
    }
    plan
}

/// The filter of each table if all were rebuilt, in the order of the shape.
#[derive(Debug, Clone)]
pub(super) struct Ideal {
    pub(super) buyers: Vec<Buyer>,
    pub(super) choices: Vec<FilterChoice>,
    /// As [`Spent::worths`].
    pub(super) worths: Vec<f64>,
}

/// Returns the best division among new filters, regardless of stored filters.
pub(super) fn ideal(store: &StoreShape) -> Ideal {
    let (mut buyers, mut kinds) = (Vec::new(), Vec::new());
    for ((keyspace, weight), index) in store.keyspaces.iter().zip(keyspace_weights(store)).zip(0..)
    {
        let keys = keyspace.keys();
        let weights: Vec<f64> = weights_of(keyspace, weight).collect();
        let is_auto = keyspace.policy.kind == FilterPolicyKind::Auto;
        let columns_of = best_columns(keyspace, &weights);
        let mut weights = weights.into_iter();
        for run in &keyspace.runs {
            let (kind, bits_max) = new_filter(&keyspace.policy, run, keys);
            for table in &run.tables {
                let weight = weights.next().expect("a weight for each table");
                let bits_max = if is_auto && kind == FilterKind::Ribbon {
                    bits_max.min(columns_of(table.keys, weight).max(0.0) + COLUMNS_SPARE)
                } else {
                    bits_max
                };
                let curve = Curve::of_new(kind, table.keys, bits_max);
                buyers.push(Buyer { keyspace: index, curve, weight, held: 0.0 });
                kinds.push(kind);
            }
        }
    }
    let Spent { sizes, worths, .. } =
        spend(&buyers, store_bytes(store), &keyspace_bytes(store, 1.0, 0.0));
    let choices = kinds.into_iter().zip(sizes).map(|(kind, bits)| rounded(kind, bits)).collect();
    Ideal { buyers, choices, worths }
}

/// Returns the function from keys and weight to columns of the best division, if sizes may be any
/// number, even below 0. Rate times weight is then proportional to keys.
fn best_columns(keyspace: &KeyspaceShape, weights: &[f64]) -> impl Fn(u64, f64) -> f64 + use<> {
    let wanted =
        |keys: u64, weight: f64| (weight / keys.max(1) as f64).max(f64::MIN_POSITIVE).log2();
    let tables = keyspace.runs.iter().flat_map(|run| &run.tables).zip(weights);
    let sum: f64 =
        tables.map(|(table, weight)| table.keys as f64 * wanted(table.keys, *weight)).sum();
    let mean = sum / keyspace.keys().max(1) as f64;
    let bits = keyspace.policy.bits_per_key;
    move |keys, weight| bits + wanted(keys, weight) - mean
}

/// Returns the kind of a new filter in `run`, and its maximum bits per key.
fn new_filter(policy: &FilterPolicy, run: &RunShape, keyspace_keys: u64) -> (FilterKind, f64) {
    let bits = policy.bits_per_key;
    match policy.kind {
        FilterPolicyKind::None => (FilterKind::BlockedBloom, 0.0),
        FilterPolicyKind::Bloom => (FilterKind::BlockedBloom, bits),
        FilterPolicyKind::Ribbon => (FilterKind::Ribbon, bits),
        FilterPolicyKind::Fuse => (FilterKind::BinaryFuse, bits),
        FilterPolicyKind::Auto => {
            let keys = run.keys();
            let is_small =
                keys < RIBBON_KEYS_MIN || (keys as f64) < RIBBON_SHARE_MIN * keyspace_keys as f64;
            let kind = if is_small { FilterKind::BlockedBloom } else { FilterKind::Ribbon };
            (kind, if bits > 0.0 { f64::INFINITY } else { 0.0 })
        }
    }
}

/// Returns the stored filters, in the order of the shape.
fn stored_buyers(store: &StoreShape) -> Vec<Buyer> {
    let mut buyers = Vec::new();
    for ((keyspace, weight), index) in store.keyspaces.iter().zip(keyspace_weights(store)).zip(0..)
    {
        let bits_max = match keyspace.policy {
            FilterPolicy { kind: FilterPolicyKind::None, .. } => 0.0,
            FilterPolicy { kind: FilterPolicyKind::Auto, bits_per_key, .. }
                if bits_per_key > 0.0 =>
            {
                f64::INFINITY
            }
            FilterPolicy { bits_per_key, .. } => bits_per_key,
        };
        let tables = keyspace.runs.iter().flat_map(|run| &run.tables);
        for (table, weight) in tables.zip(weights_of(keyspace, weight)) {
            let curve =
                if bits_max > 0.0 { Curve::of_stored(table, bits_max) } else { Curve::NOTHING };
            let held = curve.size_of(table.resident);
            buyers.push(Buyer { keyspace: index, curve, weight, held });
        }
    }
    buyers
}

/// Returns the target of a stored filter of this size.
fn table_target(table: &TableShape, buyer: &Buyer, size: f64) -> TableTarget {
    let Buyer { curve, held, .. } = buyer;
    let stored_size = Curve::of_stored(table, f64::INFINITY).size_max;
    let is_fraction = size < curve.size_max && size.fract() != 0.0;
    let size = if (size - held).abs() <= COLUMN_ROUNDING
        || *held > 1.0 && *held < size && size - held < COLUMN_GROWTH_MIN
    {
        *held
    } else if is_fraction {
        (size / COLUMN_PART).floor() * COLUMN_PART
    } else {
        size
    };
    let residence = match size {
        0.0 => Residence::Nothing,
        size if size >= stored_size => Residence::Whole,
        size => Residence::Columns(size),
    };
    let (bytes, fpr) = (curve.bytes(size).round() as u64, curve.fpr(size));
    TableTarget { id: table.id, residence, bytes, fpr }
}

/// Returns the bytes for the filters of all keyspaces, without the headroom.
fn store_bytes(store: &StoreShape) -> f64 {
    let largest = store.keyspaces.iter().map(KeyspaceShape::largest_bytes).max().unwrap_or(0);
    without_headroom(store.filter_bytes_max, largest)
}

/// Returns the bytes for the filters of each keyspace: its bound, and with `Auto` at most the
/// average of its policy times `slack`. Each table of few keys adds `small_slack_bytes`, times the
/// share of the keys in such tables.
fn keyspace_bytes(store: &StoreShape, slack: f64, small_slack_bytes: f64) -> Vec<f64> {
    let bytes = store.keyspaces.iter().map(|keyspace| {
        let bound = without_headroom(keyspace.filter_bytes_max, keyspace.largest_bytes());
        match keyspace.policy.kind {
            FilterPolicyKind::Auto => {
                let average = |table: &TableShape| {
                    // Rounded to whole lines: a table of few keys has one too.
                    let bytes = table.keys as f64 * keyspace.policy.bits_per_key / 8.0;
                    (bytes / LINE_BYTES).ceil() * LINE_BYTES * slack
                };
                let tables = keyspace.runs.iter().flat_map(|run| &run.tables);
                let small = tables.clone().filter(|table| table.keys < RIBBON_KEYS_MIN);
                let (count, keys) = small
                    .fold((0.0, 0.0), |(count, keys), it| (count + 1.0, keys + it.keys as f64));
                let small_share = keys / keyspace.keys().max(1) as f64;
                let average_bytes: f64 = tables.map(average).sum();
                bound.min(average_bytes + count * small_slack_bytes * small_share)
            }
            _ => bound,
        }
    });
    bytes.collect()
}

fn without_headroom(bytes_max: Option<u64>, largest: u64) -> f64 {
    bytes_max.map_or(f64::INFINITY, |max| (max - largest.min(max / HEADROOM_PART)) as f64)
}
