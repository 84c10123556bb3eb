//! False positives that the last plans predict.

use std::collections::BTreeMap;

use super::{
    measured_use::MeasuredUse,
    plan::{FilterPlan, keyspace_shares},
    tables::FilterTables,
};

/// For each keyspace, by id, the prediction of its last plan.
#[derive(Debug, Default)]
pub(super) struct Prediction {
    keyspaces: BTreeMap<u64, OfKeyspace>,
}

#[derive(Debug, Clone, Copy)]
struct OfKeyspace {
    lookups: f64,
    keys: f64,
    /// False positives of a lookup of an absent key.
    false_positives: f64,
}

impl Prediction {
    /// Returns the prediction of `plan` for `tables`.
    pub(super) fn of(tables: &FilterTables, plan: &FilterPlan, measured: &MeasuredUse) -> Self {
        let of_keyspace = tables.keyspaces.iter().zip(&plan.keyspaces).map(|(tables, planned)| {
            let keys = tables.tables().map(|live| live.meta.entries as f64).sum();
            let (lookups, false_positives) =
                (measured.lookups(tables.id()), planned.false_positives());
            (tables.id(), OfKeyspace { lookups, keys, false_positives })
        });
        Self { keyspaces: of_keyspace.collect() }
    }

    /// Replaces the predictions of the keyspaces of `newer`.
    pub(super) fn update(&mut self, newer: Self) {
        self.keyspaces.extend(newer.keyspaces);
    }

    /// Removes dropped keyspaces.
    pub(super) fn retain(&mut self, exists: impl Fn(u64) -> bool) {
        self.keyspaces.retain(|&id, _| exists(id));
    }

    /// Returns the expected false positives of a lookup of an absent key: the mean over keyspaces
    /// by lookups.
    pub(super) fn false_positives(&self) -> f64 {
        let counts = self.keyspaces.values().map(|it| (it.lookups, it.keys));
        let shares = keyspace_shares(counts);
        let each = self.keyspaces.values().zip(shares);
        let sum: f64 = each.map(|(it, share)| share * it.false_positives).sum();
        // An empty sum is -0.
        sum + 0.0
    }
}
