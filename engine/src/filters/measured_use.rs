//! Use of tables by lookups and of filters by scans: decaying sums of the samples of all threads.

use std::collections::BTreeMap;

use super::plan::TableUse;
use crate::stats::Sampled;

/// Number of sampled lookups, or probes of scans, of a store at which all counts are halved: some
/// millions of lookups.
const LOOKUPS_MAX: f64 = 32_768.0;

/// Use of tables and filters, in sampled lookups and scans.
#[derive(Debug, Default)]
pub(super) struct MeasuredUse {
    keyspaces: BTreeMap<u64, KeyspaceUse>,
    /// Use by scans, by the id of the table.
    scans: BTreeMap<u64, ScanUse>,
}

/// Sampled scans that each filter of a table could serve.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ScanUse {
    pub(super) prefix: f64,
    pub(super) range: f64,
}

#[derive(Debug, Default)]
struct KeyspaceUse {
    lookups: f64,
    /// Tables by id, ascending. A slice, because most of many keyspaces have one table, and a map
    /// has a node of 11.
    tables: Box<[(u64, TableUse)]>,
}

impl KeyspaceUse {
    fn of_table(&self, id: u64) -> Option<TableUse> {
        let at = self.tables.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.tables[at].1)
    }
}

impl MeasuredUse {
    /// Adds a sample. `keyspaces` has all current keyspaces and tables; others are removed. A new
    /// table is counted from the next sample on.
    pub(super) fn add(&mut self, sample: &BTreeMap<Sampled, u64>, keyspaces: &[(u64, Vec<u64>)]) {
        let count = |what| sample.get(&what).copied().unwrap_or(0) as f64;
        let mut before = std::mem::take(&mut self.keyspaces);
        let scans = std::mem::take(&mut self.scans);
        for &id in keyspaces.iter().flat_map(|(_, tables)| tables) {
            let ScanUse { prefix, range } = scans.get(&id).copied().unwrap_or_default();
            let prefix = prefix + count(Sampled::PrefixFilter(id));
            let range = range + count(Sampled::RangeFilter(id));
            if prefix + range > 0.0 {
                self.scans.insert(id, ScanUse { prefix, range });
            }
        }
        for (keyspace, tables) in keyspaces {
            let mut of_keyspace = before.remove(keyspace).unwrap_or_default();
            let lookups = count(Sampled::Keyspace(*keyspace));
            of_keyspace.lookups += lookups;
            let present = tables.iter().map(|&id| {
                let added = of_keyspace.of_table(id).map(|TableUse { probes, lookups: since }| {
                    let probes = probes + count(Sampled::Table(id));
                    TableUse { probes, lookups: since + lookups }
                });
                (id, added.unwrap_or_default())
            });
            let mut present: Box<[_]> = present.collect();
            present.sort_unstable_by_key(|&(id, _)| id);
            of_keyspace.tables = present;
            self.keyspaces.insert(*keyspace, of_keyspace);
        }
        let lookups: f64 = self.keyspaces.values().map(|keyspace| keyspace.lookups).sum();
        let probes: f64 = self.scans.values().map(|scans| scans.prefix + scans.range).sum();
        if lookups.max(probes) >= LOOKUPS_MAX {
            self.halve();
        }
        debug_assert_eq!(self.keyspaces.len(), keyspaces.len(), "dropped keyspaces are gone");
        debug_assert!(self.scans.values().all(|scans| scans.prefix + scans.range > 0.0));
    }

    fn halve(&mut self) {
        for ScanUse { prefix, range } in self.scans.values_mut() {
            (*prefix, *range) = (*prefix / 2.0, *range / 2.0);
        }
        for keyspace in self.keyspaces.values_mut() {
            keyspace.lookups /= 2.0;
            for (_, table) in &mut keyspace.tables {
                *table = TableUse { probes: table.probes / 2.0, lookups: table.lookups / 2.0 };
            }
        }
    }

    /// Returns the lookups in a keyspace.
    pub(super) fn lookups(&self, keyspace: u64) -> f64 {
        self.keyspaces.get(&keyspace).map_or(0.0, |keyspace| keyspace.lookups)
    }

    /// Returns the scans that the filters of a table could serve.
    pub(super) fn scans_of(&self, table: u64) -> ScanUse {
        self.scans.get(&table).copied().unwrap_or_default()
    }

    /// Returns the lookups that had a table of `keyspace` as a candidate.
    pub(super) fn of_table(&self, keyspace: u64, table: u64) -> TableUse {
        let keyspace = self.keyspaces.get(&keyspace);
        keyspace.and_then(|keyspace| keyspace.of_table(table)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_counted_from_when_it_is_known() {
        let mut measured = MeasuredUse::default();
        let sample = |lookups, table, probes| {
            BTreeMap::from([(Sampled::Keyspace(1), lookups), (Sampled::Table(table), probes)])
        };
        let see = |measured: &MeasuredUse, table| {
            let TableUse { probes, lookups } = measured.of_table(1, table);
            (measured.lookups(1), probes, lookups)
        };
        measured.add(&sample(10, 5, 4), &[(1, vec![5])]);
        assert_eq!(see(&measured, 5), (10.0, 0.0, 0.0));
        measured.add(&sample(20, 5, 6), &[(1, vec![5, 7])]);
        assert_eq!(see(&measured, 5), (30.0, 6.0, 20.0));
        assert_eq!(see(&measured, 7), (30.0, 0.0, 0.0));
        measured.add(&sample(LOOKUPS_MAX as u64, 7, 100), &[(1, vec![7])]);
        let halves = (30.0 + LOOKUPS_MAX) / 2.0;
        assert_eq!(see(&measured, 7), (halves, 50.0, LOOKUPS_MAX / 2.0));
        assert_eq!(see(&measured, 5), (halves, 0.0, 0.0), "a removed table has no counts");
        measured.add(&BTreeMap::new(), &[]);
        assert_eq!(measured.lookups(1), 0.0, "so is a keyspace");
    }

    #[test]
    fn scans_are_counted_filter_by_filter() {
        let mut measured = MeasuredUse::default();
        let sample = |prefix, range| {
            BTreeMap::from([(Sampled::PrefixFilter(5), prefix), (Sampled::RangeFilter(5), range)])
        };
        measured.add(&sample(3, 4), &[(1, vec![5, 6])]);
        measured.add(&sample(1, 0), &[(1, vec![5, 6])]);
        assert_eq!(measured.scans_of(5), ScanUse { prefix: 4.0, range: 4.0 });
        assert_eq!(measured.scans_of(6), ScanUse::default());
        measured.add(&sample(LOOKUPS_MAX as u64, 0), &[(1, vec![5])]);
        let prefix = (4.0 + LOOKUPS_MAX) / 2.0;
        assert_eq!(measured.scans_of(5), ScanUse { prefix, range: 2.0 });
        measured.add(&BTreeMap::new(), &[(1, vec![6])]);
        assert_eq!(measured.scans_of(5), ScanUse::default(), "a removed table has no counts");
    }
}
