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
    /// The smallest and the largest key of each table in turn, which ascend.
    bounds: PackedKeys,
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
        let bounds = tables.iter().flat_map(|table| [&*table.meta.smallest, &*table.meta.largest]);
        let bounds = PackedKeys::new(bounds);
        Self { level, id, tables: tables.into(), bounds }
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
    ///
    /// Compares packed numbers; looks at a table only for a key that equals one of its bounds, or lies
    /// before it and behind the table before.
    #[inline]
    pub(crate) fn find_index(&self, key: &[u8]) -> Option<usize> {
        let at = self.bounds.first_at_or_above(key, |at| self.bound(at));
        // Behind the smallest key of a table, the first bound is its largest.
        let is_within = at % 2 == 1 || (at / 2 < self.tables.len() && self.bound(at) == key);
        is_within.then_some(at / 2)
    }

    /// Index of the first table that does not end before `key`.
    pub(crate) fn first_not_before(&self, key: &[u8]) -> Option<usize> {
        let at = self.bounds.first_at_or_above(key, |at| self.bound(at)) / 2;
        (at < self.tables.len()).then_some(at)
    }

    fn bound(&self, at: usize) -> &[u8] {
        let meta = &self.tables[at / 2].meta;
        if at % 2 == 0 { &meta.smallest } else { &meta.largest }
    }
}
