//! What the planner answers.

use super::shape::Residence;
use crate::filter_policy::FilterChoice;

/// What should be in memory, what it costs and what it is good for.
#[derive(Debug, Clone, Default)]
pub(crate) struct FilterPlan {
    /// Of all targets together, as far as can be told before the filters are made.
    pub(crate) bytes: u64,
    /// Runs that a lookup of an absent key searches in vain, expected; the mean over the keyspaces
    /// by their lookups.
    pub(crate) false_positives: f64,
    /// Bytes that the bound of the store leaves, 0 if it keeps any filter from what it could have:
    /// with more filters of so many bytes no keyspace takes any from another one.
    pub(crate) bytes_left: u64,
    /// Whether a filter has less than it could use: then the use of the tables decides.
    pub(crate) is_short: bool,
    /// As the shape has them, in the same order.
    pub(crate) keyspaces: Vec<KeyspaceTarget>,
}

/// The part of a plan that is about a keyspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyspaceTarget {
    /// As the shape has them, in the same order.
    pub(crate) runs: Vec<RunTarget>,
}

/// The part of a plan that is about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunTarget {
    /// As the shape has them, in the same order.
    pub(crate) tables: Vec<TableTarget>,
    /// Lookups of an absent key that search this run in vain, expected, from 0 to 1.
    pub(crate) false_positives: f64,
}

/// What should be in memory of a table's filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableTarget {
    pub(crate) id: u64,
    /// The very value of the shape if nothing is to be done.
    pub(crate) residence: Residence,
    pub(crate) bytes: u64,
    /// Expected false-positive rate of the table, from 0 to 1.
    pub(crate) fpr: f64,
}

/// A filter that should be rebuilt: no part of the stored one does what the table should have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rebuild {
    /// Index in the shape.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests tell keyspaces apart by it"))]
    pub(crate) keyspace: usize,
    pub(crate) table_id: u64,
    pub(crate) choice: FilterChoice,
    /// False positives that it saves per lookup of the store; memory that becomes free is counted
    /// as what it saves elsewhere.
    pub(crate) gain: f64,
}

impl KeyspaceTarget {
    /// Runs that a lookup of an absent key searches in vain, expected.
    pub(crate) fn false_positives(&self) -> f64 {
        self.runs.iter().map(|run| run.false_positives).sum()
    }
}
