//! Range tombstones.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::internal_key::{Comparator, SEQUENCE_MAX};

/// A deleted range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// First version that is covered: user key and sequence number.
    start: (Vec<u8>, u64),
    /// First version after the range.
    end: (Vec<u8>, u64),
    /// Versions with smaller sequence numbers are deleted.
    sequence: u64,
}

/// Smallest and largest internal key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) smallest: (Vec<u8>, u64),
    pub(crate) largest: (Vec<u8>, u64),
}

impl Tombstone {
    /// Returns a tombstone of the keys from `start` to before `end`.
    pub(crate) fn new(start: &[u8], end: &[u8], sequence: u64) -> Self {
        Self { start: (start.to_vec(), SEQUENCE_MAX), end: (end.to_vec(), SEQUENCE_MAX), sequence }
    }

    /// Truncates the range to the bounds of the table. The tombstone must not cover keys of other
    /// tables: a compaction may have set their sequence numbers to 0.
    pub(crate) fn truncate(&mut self, bounds: &Bounds, comparator: Comparator) {
        let is_before = |left: &(Vec<u8>, u64), right: &(Vec<u8>, u64)| {
            let order = comparator.compare_versions((&left.0, left.1), (&right.0, right.1));
            order == Ordering::Less
        };
        if is_before(&self.start, &bounds.smallest) {
            self.start = bounds.smallest.clone();
        }
        let (key, sequence) = &bounds.largest;
        // The largest key is in the table, unless it is the end of a tombstone.
        let end = match *sequence {
            SEQUENCE_MAX | 0 => *sequence,
            sequence => sequence - 1,
        };
        let end = (key.clone(), end);
        if is_before(&end, &self.end) {
            self.end = end;
        }
    }
}

/// Range tombstones of a column family in memory, and those that cover the position of a scan.
#[derive(Debug)]
pub(crate) struct Tombstones {
    comparator: Comparator,
    /// Tombstones after the position, ordered by start, the first one last.
    later: Vec<Tombstone>,
    /// Tombstones that have started, the largest sequence number on top. Below the top, some may
    /// have ended.
    started: BinaryHeap<Started>,
}

#[derive(Debug)]
struct Started(Tombstone);

impl Ord for Started {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.sequence.cmp(&other.0.sequence)
    }
}

impl PartialOrd for Started {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Started {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Started {}

impl Tombstones {
    pub(crate) fn new(mut all: Vec<Tombstone>, comparator: Comparator) -> Self {
        all.sort_unstable_by(|left, right| {
            let (left, right) = (&left.start, &right.start);
            comparator.compare_versions((&right.0, right.1), (&left.0, left.1))
        });
        Self { comparator, later: all, started: BinaryHeap::new() }
    }

    /// Returns `true` if a tombstone deletes this version. Requires calls in the order of the
    /// versions.
    pub(crate) fn covers(&mut self, key: &[u8], sequence: u64) -> bool {
        let version = (key, sequence);
        let is_reached = |place: &(Vec<u8>, u64)| {
            self.comparator.compare_versions((&place.0, place.1), version) != Ordering::Greater
        };
        while self.later.last().is_some_and(|next| is_reached(&next.start)) {
            self.started.extend(self.later.pop().map(Started));
        }
        while self.started.peek().is_some_and(|top| is_reached(&top.0.end)) {
            self.started.pop();
        }
        self.started.peek().is_some_and(|top| top.0.sequence > sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstones(all: &[(&str, &str, u64)]) -> Tombstones {
        let all = all.iter().map(|(start, end, sequence)| {
            Tombstone::new(start.as_bytes(), end.as_bytes(), *sequence)
        });
        Tombstones::new(all.collect(), Comparator::Bytewise)
    }

    #[test]
    fn older_versions_within_a_range_are_covered() {
        let mut all = tombstones(&[("b", "d", 10), ("c", "z", 5), ("a", "b", 1)]);
        let versions = [
            ("a", 2, false),
            ("a", 0, true),
            ("b", 11, false),
            ("b", 10, false),
            ("b", 9, true),
            ("d", 5, false),
            ("d", 4, true),
            ("z", 0, false),
        ];
        for (key, sequence, want) in versions {
            assert_eq!(all.covers(key.as_bytes(), sequence), want, "{key}@{sequence}");
        }
    }

    #[test]
    fn a_tombstone_ends_with_its_table() {
        let mut one = Tombstone::new(b"a", b"z", 10);
        let bounds = Bounds { smallest: (b"c".to_vec(), 7), largest: (b"m".to_vec(), 5) };
        one.truncate(&bounds, Comparator::Bytewise);
        let mut all = Tombstones::new(vec![one], Comparator::Bytewise);
        let versions = [
            ("b", 0, false),
            ("c", 8, false),
            ("c", 7, true),
            ("m", 5, true),
            ("m", 4, false),
            ("n", 0, false),
        ];
        for (key, sequence, want) in versions {
            assert_eq!(all.covers(key.as_bytes(), sequence), want, "{key}@{sequence}");
        }
    }
}
