//! Stored filters that are far off the plan.

use sievedb_filter::FilterKind;

use super::{
    division::{Ideal, ideal},
    shape::{StoreShape, TableShape},
    spend::Buyer,
    target::{FilterPlan, Rebuild},
};
use crate::filter_policy::{FilterChoice, FilterPolicyKind};

/// Minimum gain of a rebuild, as a multiple of the false positives of the best filter for the
/// table. A ribbon that lacks two columns gains 1.6 times as many, one that lacks a column 0.3
/// times.
const GAIN_MIN: f64 = 1.0;

/// Returns the filters to rebuild, largest gain first.
///
/// `plan` is that of `store`. Reading a table to build its filter costs far more than a filter
/// slightly off the plan. A filter is rebuilt if it is missing, of another kind than the policy, or
/// off by about two bits per key. A ribbon with too many columns only drops them.
pub(crate) fn rebuilds(store: &StoreShape, plan: &FilterPlan) -> Vec<Rebuild> {
    let Ideal { buyers, choices, worths } = ideal(store);
    let mut each = buyers.iter().zip(choices);
    let mut found = Vec::new();
    for ((keyspace, targets), index) in store.keyspaces.iter().zip(&plan.keyspaces).zip(0..) {
        let kind_counts = keyspace.policy.kind != FilterPolicyKind::Auto;
        for (run, targets) in keyspace.runs.iter().zip(&targets.runs) {
            for (table, target) in run.tables.iter().zip(&targets.tables) {
                let (buyer, choice) = each.next().expect("a choice for each table");
                if choice.bits_per_key == 0.0 {
                    continue;
                }
                let (bytes, fpr) = (target.bytes as f64, target.fpr);
                let Buyer { curve, weight, .. } = buyer;
                let best = curve.fpr(choice.bits_per_key);
                let saved_bytes = bytes - curve.bytes(choice.bits_per_key);
                let gain = weight * (fpr - best) + worths[index] * saved_bytes;
                let is_other_kind =
                    kind_counts && table.stored.is_some_and(|stored| stored.kind != choice.kind);
                let is_far = gain >= GAIN_MIN * weight * best && is_far(table, choice);
                if is_other_kind || is_far {
                    let gain = gain.max(0.0);
                    found.push(Rebuild { keyspace: index, table_id: table.id, choice, gain });
                }
            }
        }
    }
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.table_id.cmp(&b.table_id)));
    found
}

/// Returns `true` if dropping columns cannot turn the stored filter into `choice`.
fn is_far(table: &TableShape, choice: FilterChoice) -> bool {
    table.stored.is_none_or(|stored| {
        stored.kind != choice.kind
            || stored.kind != FilterKind::Ribbon
            || stored.columns + 1.0 <= choice.bits_per_key
    })
}
