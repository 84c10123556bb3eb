//! Keys and ranges that a condition depends on.

use std::ops::Bound;

use bytes::Bytes;
use sievedb_format::range_tombstone::ends_above;

use super::{
    key_ranges::KeyRanges,
    read_set::{KeyspaceReads, ReadSet},
};
use crate::commit::{WatchedKeys, Write, WrittenKey};

/// The read keys and the disjoint read ranges of each keyspace.
#[derive(Debug)]
pub(super) struct Reads(pub(super) Vec<ReadsOf>);

/// Read keys and ranges of a keyspace.
#[derive(Debug)]
pub(super) struct ReadsOf {
    pub(super) of: KeyspaceReads,
    pub(super) ranges: KeyRanges,
}

impl Reads {
    /// Merges the ranges of `set`, or leaves them out.
    pub(super) fn new(set: ReadSet, has_ranges: bool) -> Self {
        // An iterator that was never advanced has read nothing.
        let reads = set.into_keyspaces().filter(|of| !of.is_empty()).map(|of| {
            let ranges = of.ranges().filter(|_| has_ranges).cloned();
            ReadsOf { ranges: KeyRanges::new(ranges), of }
        });
        Self(reads.collect())
    }
}

impl WatchedKeys for Reads {
    fn first_written(&self, write: &Write) -> Option<WrittenKey> {
        self.0.iter().enumerate().find_map(|(keyspace, reads)| {
            let key = reads.first_written(write)?;
            Some(WrittenKey { keyspace, key })
        })
    }
}

impl ReadsOf {
    /// Returns the first read key that `write` writes. `Some(None)` if it writes a range of them.
    fn first_written(&self, write: &Write) -> Option<Option<(Bytes, u64)>> {
        let id = self.of.tree.id;
        if write.ingests.as_ref().is_some_and(|tree| tree.id == id) {
            return Some(None);
        }
        let target = write.targets.iter().position(|target| target.tree.id == id)?;
        write.entries.iter().filter(|entry| entry.target == target).find_map(|entry| {
            let key = &write.payload[entry.key.clone()];
            if entry.is_range() {
                let end = &write.payload[entry.value.clone()];
                return self.has_read_within(key, end).then_some(None);
            }
            let is_read = self.of.keys.contains_key(key) || self.ranges.contain(key);
            is_read.then(|| Some((Bytes::copy_from_slice(key), entry.hash)))
        })
    }

    /// Returns `true` if a key from `start` to before `end` may have been read.
    fn has_read_within(&self, start: &[u8], end: &[u8]) -> bool {
        let from = (Bound::Included(start), Bound::Unbounded);
        let next = self.of.keys.range::<[u8], _>(from).next();
        next.is_some_and(|(key, _)| ends_above(end, key)) || self.ranges.overlap(start, end)
    }
}
