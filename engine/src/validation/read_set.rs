//! Keys and ranges that a writer has read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::{iter::bounds::KeyBounds, read::tree::Tree};

/// Memory of a key or a range besides its bytes: its part of a map node that is half full.
const ENTRY_BYTES: usize = 96;

/// Keys and ranges of several keyspaces.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    keyspaces: Vec<KeyspaceReads>,
}

/// Keys and ranges of a keyspace.
#[derive(Debug)]
pub(super) struct KeyspaceReads {
    pub(super) tree: Arc<Tree>,
    /// Keys with their hashes.
    pub(super) keys: BTreeMap<Bytes, u64>,
    ranges: Vec<[Option<KeyBounds>; 2]>,
}

impl KeyspaceReads {
    pub(super) fn ranges(&self) -> impl Iterator<Item = &KeyBounds> {
        self.ranges.iter().flatten().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges().next().is_none()
    }

    /// Returns a key that was read, or the bound of a range that was read.
    pub(super) fn first_key(&self) -> Option<&Bytes> {
        self.keys.keys().next().or_else(|| self.ranges().find_map(KeyBounds::any_key))
    }
}

/// Identifies a range of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeId {
    keyspace: usize,
    range: usize,
}

impl ReadSet {
    pub(super) fn into_keyspaces(self) -> impl Iterator<Item = KeyspaceReads> {
        self.keyspaces.into_iter()
    }

    fn keyspace(&mut self, tree: &Arc<Tree>) -> usize {
        let known = self.keyspaces.iter().position(|reads| Arc::ptr_eq(&reads.tree, tree));
        known.unwrap_or_else(|| {
            let (tree, keys, ranges) = (Arc::clone(tree), BTreeMap::new(), Vec::new());
            self.keyspaces.push(KeyspaceReads { tree, keys, ranges });
            self.keyspaces.len() - 1
        })
    }

    /// Returns the memory of a key in a set, in bytes.
    pub(crate) fn key_bytes(key: &[u8]) -> usize {
        ENTRY_BYTES + key.len()
    }

    pub(crate) fn has_key(&self, tree: &Arc<Tree>, key: &[u8]) -> bool {
        let known = self.keyspaces.iter().find(|reads| Arc::ptr_eq(&reads.tree, tree));
        known.is_some_and(|reads| reads.keys.contains_key(key))
    }

    /// Adds a key with its hash.
    pub(crate) fn add_key(&mut self, tree: &Arc<Tree>, key: Bytes, hash: u64) {
        let index = self.keyspace(tree);
        self.keyspaces[index].keys.insert(key, hash);
    }

    /// Adds a whole range. [`set_range`](Self::set_range) replaces it by the parts that were read.
    pub(crate) fn add_range(&mut self, tree: &Arc<Tree>, bounds: KeyBounds) -> RangeId {
        let keyspace = self.keyspace(tree);
        let ranges = &mut self.keyspaces[keyspace].ranges;
        ranges.push([Some(bounds), None]);
        RangeId { keyspace, range: ranges.len() - 1 }
    }

    /// Replaces a range by the parts of it that were read. Returns the memory of the keys that it
    /// frees, and of those that it adds, in bytes.
    pub(crate) fn set_range(
        &mut self,
        id: RangeId,
        parts: [Option<KeyBounds>; 2],
    ) -> (usize, usize) {
        let bytes = |parts: &[Option<KeyBounds>; 2]| {
            parts.iter().flatten().map(KeyBounds::bytes).sum::<usize>()
        };
        let range = &mut self.keyspaces[id.keyspace].ranges[id.range];
        let changed = (bytes(range), bytes(&parts));
        *range = parts;
        changed
    }

    /// Returns the memory of a range, besides its keys, in bytes.
    pub(crate) const fn range_bytes() -> usize {
        ENTRY_BYTES + size_of::<[Option<KeyBounds>; 2]>()
    }
}
