//! Share of the lookups that each table gets.

use super::shape::{KeyspaceShape, RunShape, StoreShape, TableShape};

/// Probes assumed of a table, at the rate of its keys, in addition to measured ones. Few lookups
/// carry little information; the deviation of 64 is a factor of 1.1.
const PROBES_ASSUMED: f64 = 64.0;

/// The same for keyspaces.
const LOOKUPS_ASSUMED: f64 = 1_000.0;

/// Returns each keyspace's share of the store's lookups, from 0 to 1; the sum is 1.
pub(super) fn keyspace_weights(store: &StoreShape) -> Vec<f64> {
    keyspace_shares(store.keyspaces.iter().map(|it| (it.lookups, it.keys() as f64)))
}

/// Returns the same shares for keyspaces with these counted lookups and keys.
pub(crate) fn keyspace_shares(keyspaces: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<f64> {
    let all_keys = keyspaces.clone().map(|(_, keys)| keys).sum::<f64>().max(1.0);
    let counts =
        keyspaces.map(|(lookups, keys)| lookups.max(0.0) + LOOKUPS_ASSUMED * keys / all_keys);
    let counts: Vec<f64> = counts.collect();
    let all = counts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    counts.into_iter().map(|count| count / all).collect()
}

/// Returns the share of the keyspace's lookups with each table of `run` as a candidate, from 0 to
/// 1.
///
/// The share is proportional to keys, corrected by measured use once enough is measured.
pub(super) fn table_weights(run: &RunShape) -> impl Iterator<Item = f64> {
    let run_keys = run.keys().max(1) as f64;
    run.tables.iter().map(move |table| table_weight(table, table.keys as f64 / run_keys))
}

fn table_weight(table: &TableShape, by_keys: f64) -> f64 {
    let expected = table.usage.lookups.max(0.0) * by_keys;
    let factor = (table.usage.probes.max(0.0) + PROBES_ASSUMED) / (expected + PROBES_ASSUMED);
    (by_keys * factor).min(1.0)
}

/// Returns [`table_weights`] of all runs, times the weight of the keyspace.
pub(super) fn weights_of(keyspace: &KeyspaceShape, weight: f64) -> impl Iterator<Item = f64> {
    keyspace.runs.iter().flat_map(table_weights).map(move |of_table| of_table * weight)
}
