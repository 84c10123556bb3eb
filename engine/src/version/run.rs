//! A sorted run: tables in key order that do not overlap.

use std::sync::Arc;

use sievedb_format::{PackedKeys, SequenceNumber, TableBounds};

use crate::table::LiveTable;

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) level: u8,
    /// The larger of two runs on level 0 is newer.
    pub(crate) id: u64,
    tables: Arc<[Arc<LiveTable>]>,
    bounds: BoundsIndex,
    /// The largest sequence number of a range tombstone; 0 if no table has any.
    newest_range_tombstone: SequenceNumber,
    /// The smallest sequence number of an entry.
    oldest: SequenceNumber,
    /// The largest sequence number of an entry of this run and of those below.
    newest: SequenceNumber,
}

impl Run {
    /// Returns a run of `tables`, in any order.
    ///
    /// # Panics
    ///
    /// If two tables overlap, which the manifest excludes.
    pub(crate) fn new(level: u8, id: u64, mut tables: Vec<Arc<LiveTable>>) -> Self {
        tables.sort_by(|a, b| a.meta.bounds.cmp_starts(&b.meta.bounds));
        for [left, right] in tables.array_windows() {
            let (left, right) = (&left.meta, &right.meta);
            let apart = left.bounds.is_before(&right.bounds);
            assert!(apart, "L{level}: {left:?} overlaps {right:?}");
        }
        let bounds = BoundsIndex::new(tables.iter().map(|table| &table.meta.bounds));
        let of_lists = tables.iter().map(|live| live.table.range_tombstones().newest());
        let newest_range_tombstone = of_lists.max().unwrap_or(0);
        let metas = || tables.iter().map(|live| &live.meta);
        let oldest = metas().map(|meta| meta.smallest_sequence).min().unwrap_or(0);
        let newest = metas().map(|meta| meta.largest_sequence).max().unwrap_or(0);
        Self { level, id, tables: tables.into(), bounds, newest_range_tombstone, oldest, newest }
    }

    /// Returns the tables in key order.
    pub(crate) fn tables(&self) -> &Arc<[Arc<LiveTable>]> {
        &self.tables
    }

    /// Returns the table whose bounds contain `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&LiveTable> {
        self.find_index(key).map(|at| &*self.tables[at])
    }

    /// Returns the index of the table whose bounds contain `key`.
    #[inline]
    pub(crate) fn find_index(&self, key: &[u8]) -> Option<usize> {
        self.bounds.find(key, |at| &self.tables[at].meta.bounds)
    }

    /// Returns `true` if any table has range tombstones.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.newest_range_tombstone > 0
    }

    /// Returns the largest sequence number of a range tombstone; 0 if no table has any.
    #[inline]
    pub(crate) fn newest_range_tombstone(&self) -> SequenceNumber {
        self.newest_range_tombstone
    }

    /// Takes the largest sequence number of the runs below into account. Returns the largest of
    /// these and this run.
    pub(super) fn set_newest_below(&mut self, newest: SequenceNumber) -> SequenceNumber {
        self.newest = self.newest.max(newest);
        self.newest
    }

    /// Returns the smallest sequence number of an entry in this run.
    #[inline]
    pub(crate) fn oldest(&self) -> SequenceNumber {
        self.oldest
    }

    /// Returns the largest sequence number of an entry in this run and in those below.
    #[inline]
    pub(crate) fn newest(&self) -> SequenceNumber {
        self.newest
    }

    /// Returns the tables that overlap `bounds`.
    pub(crate) fn overlapping(&self, bounds: &TableBounds) -> &[Arc<LiveTable>] {
        let first = self.tables.partition_point(|table| table.meta.bounds.is_before(bounds));
        let behind = self.tables.partition_point(|table| !bounds.is_before(&table.meta.bounds));
        &self.tables[first..behind.max(first)]
    }

    /// Returns the index of the first table that does not end before `key`.
    pub(crate) fn first_not_before(&self, key: &[u8]) -> Option<usize> {
        self.bounds.first_not_before(key, |at| &self.tables[at].meta.bounds)
    }
}

/// The packed bounds of the tables of a run.
#[derive(Debug)]
struct BoundsIndex {
    tables: usize,
    /// The smallest and the largest key of each table, ascending, without the end of a table that
    /// has no upper bound. Equal neighbors are an exclusive end and the start of the next table.
    keys: PackedKeys,
    /// Some end is exclusive, so a search must check the found table.
    excludes_ends: bool,
}

impl BoundsIndex {
    fn new<'a>(all: impl Iterator<Item = &'a TableBounds> + Clone) -> Self {
        let keys = all.clone().flat_map(|bounds| {
            let largest = (!bounds.is_unbounded()).then_some(&*bounds.largest);
            [Some(&*bounds.smallest), largest].into_iter().flatten()
        });
        let excludes_ends = all.clone().any(|bounds| bounds.exclusions() > 0);
        Self { tables: all.count(), keys: PackedKeys::new(keys), excludes_ends }
    }

    /// Returns the index of the table whose bounds contain `key`. `table` returns the bounds of a
    /// table.
    ///
    /// Compares packed numbers. Reads a table only for a key that equals one of its bounds, or is
    /// between it and the previous table.
    #[inline]
    fn find<'a>(&self, key: &[u8], table: impl Fn(usize) -> &'a TableBounds) -> Option<usize> {
        let at = self.keys.first_at_or_above(key, |at| bound(&table, at));
        if self.excludes_ends && at / 2 < self.tables && bound(&table, at) == key {
            return self.not_before(at / 2, key, &table).filter(|&at| table(at).holds(key));
        }
        // After the smallest key of a table, the first bound is its largest key.
        let is_within = !at.is_multiple_of(2) || (at / 2 < self.tables && bound(&table, at) == key);
        is_within.then_some(at / 2)
    }

    fn first_not_before<'a>(
        &self,
        key: &[u8],
        table: impl Fn(usize) -> &'a TableBounds,
    ) -> Option<usize> {
        let at = self.keys.first_at_or_above(key, |at| bound(&table, at)) / 2;
        if self.excludes_ends {
            return self.not_before(at, key, &table);
        }
        (at < self.tables).then_some(at)
    }

    /// Returns table `at`, whose largest key is not below `key`, or the next one if that key is
    /// exclusive and equals `key`.
    #[cold]
    fn not_before<'a>(
        &self,
        at: usize,
        key: &[u8],
        table: &impl Fn(usize) -> &'a TableBounds,
    ) -> Option<usize> {
        let ends_before = at < self.tables && table(at).ends_below(key);
        let at = at + usize::from(ends_before);
        (at < self.tables).then_some(at)
    }
}

fn bound<'a>(table: &impl Fn(usize) -> &'a TableBounds, at: usize) -> &'a [u8] {
    let bounds = table(at / 2);
    if at.is_multiple_of(2) { &bounds.smallest } else { &bounds.largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_the_table_of_a_key_is_found_beside_exclusive_ends() {
        // Splits a, b, c … in all ways, with either end of a border excluded.
        for exclusions in 0..4_u64.pow(3) {
            let run: Vec<TableBounds> = (0..3_u8)
                .map(|at| {
                    let mut bounds = TableBounds::inclusive([b'a' + 2 * at], [b'c' + 2 * at]);
                    bounds.set_exclusions("test", exclusions >> (2 * at) & 3).unwrap();
                    bounds
                })
                .collect();
            if run.array_windows().any(|[left, right]| !left.is_before(right)) {
                continue;
            }
            let mut run = run;
            if exclusions >> 4 & 2 != 0 && exclusions & 1 != 0 {
                run[2] = TableBounds::of_range(&run[2].smallest, b"");
            }
            let index = BoundsIndex::new(run.iter());
            for key in (b'`'..=b'j').flat_map(|byte| [vec![byte], vec![byte, b'x']]) {
                let found = index.find(&key, |at| &run[at]);
                assert_eq!(
                    found,
                    run.iter().position(|table| table.holds(&key)),
                    "{run:?} {key:?}"
                );
                let first = index.first_not_before(&key, |at| &run[at]);
                let want = run.iter().position(|table| !table.ends_below(&key));
                assert_eq!(first, want, "{run:?} {key:?}");
            }
        }
    }
}
