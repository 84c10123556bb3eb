//! Entries of the logs, in memory.

use crate::{
    internal_key::{Comparator, ValueType},
    tombstone::Tombstone,
};

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) key: Box<[u8]>,
    pub(crate) sequence: u64,
    pub(crate) value_type: ValueType,
    pub(crate) value: Box<[u8]>,
}

/// Entries of a column family that are only in logs.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) tombstones: Vec<Tombstone>,
}

impl Memtable {
    /// Sorts the entries by key, the newest version first.
    pub(crate) fn sort(&mut self, comparator: Comparator) {
        self.entries.sort_unstable_by(|left, right| {
            comparator.compare_versions((&left.key, left.sequence), (&right.key, right.sequence))
        });
    }
}
