//! What the last plans expect of lookups of absent keys.

use std::collections::BTreeMap;

use super::{filter_tables::FilterTables, measured_use::MeasuredUse};
use crate::filters::plan::{FilterPlan, keyspace_shares};

/// For each keyspace, by id, what the last plan that it was part of expects.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    keyspaces: BTreeMap<u64, OfKeyspace>,
}

#[derive(Debug, Clone, Copy)]
struct OfKeyspace {
    lookups: f64,
    keys: f64,
    /// Runs that a lookup of an absent key searches in vain.
    false_positives: f64,
}

impl Prediction {
    /// What `plan` for `tables` expects.
    pub(super) fn of(tables: &FilterTables, plan: &FilterPlan, measured: &MeasuredUse) -> Self {
        let of_keyspace = tables.keyspaces.iter().zip(&plan.keyspaces).map(|(tables, planned)| {
            let keys = tables.tables().map(|live| live.meta.entries as f64).sum();
            let (lookups, false_positives) =
                (measured.lookups(tables.id()), planned.false_positives());
            (tables.id(), OfKeyspace { lookups, keys, false_positives })
        });
        Self { keyspaces: of_keyspace.collect() }
    }

    /// Takes over what `newer` expects of its keyspaces.
    pub(super) fn update(&mut self, newer: Self) {
        self.keyspaces.extend(newer.keyspaces);
    }

    /// Forgets keyspaces that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.keyspaces.retain(|&id, _| is_there(id));
    }

    /// Runs that a lookup of an absent key searches in vain, expected; the mean over the keyspaces
    /// by their lookups.
    pub(super) fn false_positives(&self) -> f64 {
        let counts = self.keyspaces.values().map(|it| (it.lookups, it.keys));
        let shares = keyspace_shares(counts);
        let each = self.keyspaces.values().zip(shares);
        let sum: f64 = each.map(|(it, share)| share * it.false_positives).sum();
        // Of nothing it is -0.
        sum + 0.0
    }
}
