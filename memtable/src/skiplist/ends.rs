//! The ends of the lowest levels, where ascending keys are inserted without a search.
//!
//! An end may be out of date: inserts of several entries do not note ends, and of two inserts at
//! the end, the first may note its node last. So an end counts only if no node follows it.

use std::sync::atomic::Ordering::{Acquire, Release};

use sievedb_format::InternalKey;

use super::{Neighbors, Node, SkipList};

/// Levels with a known end. The towers of 15 of 16 nodes are as low.
pub(super) const ENDS: usize = 2;

impl SkipList {
    /// Finds the neighbors of `key` on the lowest levels, one for each of `neighbors`, if `key` is
    /// above all keys there. Returns `false` if it is not, or the ends are not known.
    #[inline]
    pub(super) fn find_at_ends<'l>(
        &'l self,
        key: InternalKey<'_>,
        neighbors: &mut [Neighbors<'l>],
    ) -> bool {
        if neighbors.len() > ENDS {
            return false;
        }
        for (level, (end, neighbors)) in self.ends.iter().zip(neighbors).enumerate() {
            // Acquire: another thread may have written the node.
            let Some(end) = Node::new(end.load(Acquire)) else { return false };
            // SAFETY: the end of a level has a link there.
            let next = unsafe { end.tower().link(level) }.load(Acquire);
            if !next.is_null() || end.key() >= key {
                return false;
            }
            *neighbors = Neighbors { before: Some(end), after: None };
        }
        true
    }

    /// Notes that `node` was linked between these neighbors, if no node follows it.
    #[inline]
    pub(super) fn note_ends(&self, node: Node<'_>, neighbors: &[Neighbors<'_>]) {
        for (end, neighbors) in self.ends.iter().zip(neighbors) {
            if neighbors.after.is_none() {
                // Release: other threads compare its key.
                end.store(node.head.as_ptr(), Release);
            }
        }
    }
}
