//! A sorted run: tables in key order that do not overlap.

use std::sync::Arc;

use super::packed_keys::PackedKeys;
use crate::table::LiveTable;

/// Tables in key order that do not overlap.
#[derive(Debug)]
pub(crate) struct Run {
    /// Level of the run.
    pub(crate) level: u8,
    /// Of two runs of level 0 the larger number is the newer.
    pub(crate) id: u64,
    tables: Arc<[Arc<LiveTable>]>,
    largest: PackedKeys,
}

impl Run {
    /// A run of `tables`, in any order.
    ///
    /// # Panics
    ///
    /// If two tables overlap. The manifest was checked for that when it was read.
    pub(crate) fn new(level: u8, id: u64, mut tables: Vec<Arc<LiveTable>>) -> Self {
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        for [left, right] in tables.array_windows() {
            let (left, right) = (&left.meta, &right.meta);
            assert!(left.largest < right.smallest, "L{level}: {left:?} overlaps {right:?}");
        }
        let largest = PackedKeys::new(tables.iter().map(|table| &*table.meta.largest));
        Self { level, id, tables: tables.into(), largest }
    }

    /// The tables in key order.
    pub(crate) fn tables(&self) -> &Arc<[Arc<LiveTable>]> {
        &self.tables
    }

    /// The one table whose bounds hold `key`, if there is one.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&LiveTable> {
        self.find_index(key).map(|at| &*self.tables[at])
    }

    /// Index of the one table whose bounds hold `key`, if there is one.
    pub(crate) fn find_index(&self, key: &[u8]) -> Option<usize> {
        let at = self.largest.first_at_or_above(key, |at| &self.tables[at].meta.largest);
        let table = self.tables.get(at)?;
        (*table.meta.smallest <= *key).then_some(at)
    }
}
