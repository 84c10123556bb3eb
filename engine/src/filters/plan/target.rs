//! Output of the planner.

use super::shape::Residence;
use crate::filter_policy::FilterChoice;

/// Targets of all filters, with their totals.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterPlan {
    /// Bytes of all targets, estimated before the filters are built.
    pub(crate) bytes: u64,
    /// Expected false positives per lookup of an absent key: the mean over the keyspaces, weighted
    /// by their lookups.
    pub(crate) false_positives: f64,
    /// Unspent bytes of the store's bound; 0 if it limits any filter. New filters within these
    /// bytes take none from another keyspace.
    pub(crate) bytes_left: u64,
    /// A filter has less than it could use, so the use of the tables decides.
    pub(crate) is_short: bool,
    /// Targets of the keyspaces, in the order of the shape.
    pub(crate) keyspaces: Vec<KeyspaceTarget>,
}

/// The part of a plan for a keyspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyspaceTarget {
    /// Targets of the runs, in the order of the shape.
    pub(crate) runs: Vec<RunTarget>,
}

/// The part of a plan for a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunTarget {
    /// Targets of the tables, in the order of the shape.
    pub(crate) tables: Vec<TableTarget>,
    /// Expected false positives of this run per lookup of an absent key, from 0 to 1.
    pub(crate) false_positives: f64,
}

/// Target of a table's filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableTarget {
    pub(crate) id: u64,
    /// Target residence. Equals the value in the shape if nothing changes.
    pub(crate) residence: Residence,
    pub(crate) bytes: u64,
    /// Expected false-positive rate of the table, from 0 to 1.
    pub(crate) fpr: f64,
}

/// A filter to rebuild: no part of the stored filter meets the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rebuild {
    /// Index in the shape.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests tell keyspaces apart by it"))]
    pub(crate) keyspace: usize,
    pub(crate) table_id: u64,
    pub(crate) choice: FilterChoice,
    /// False positives saved per lookup of the store, including those that freed memory saves
    /// elsewhere.
    pub(crate) gain: f64,
}

impl KeyspaceTarget {
    /// Returns the expected false positives per lookup of an absent key.
    pub(crate) fn false_positives(&self) -> f64 {
        self.runs.iter().map(|run| run.false_positives).sum()
    }
}
