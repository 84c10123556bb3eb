//! Forward and backward iteration over the entries of a memtable.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sievedb_format::InternalKey;

use crate::memtable::Memtable;
use crate::skiplist::{Node, RawNode};

/// A position among the entries of a memtable. Keeps the memtable alive.
///
/// Finds every entry that was inserted before its last move. Entries inserted later may be skipped
/// or visited; see [visibility](crate::memtable#visibility).
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    /// A node of `memtable`'s list.
    node: Option<RawNode>,
    repeats: bool,
}

impl MemtableCursor {
    pub(crate) fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, node: None, repeats: false }
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.set_position(self.memtable.list().first().map(Node::to_raw));
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.set_position(self.memtable.list().last().map(Node::to_raw));
    }

    /// Moves to the first entry whose key is `target` or greater.
    pub fn seek(&mut self, target: InternalKey<'_>) {
        self.set_position(self.memtable.list().lower_bound(target).map(Node::to_raw));
    }

    /// Moves to the last entry whose key is less than `target`.
    pub fn seek_before(&mut self, target: InternalKey<'_>) {
        self.set_position(self.memtable.list().last_before(target).map(Node::to_raw));
    }

    /// Moves to the next entry. Past the last entry, the cursor is unpositioned.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[inline]
    pub fn next(&mut self) {
        let current = self.positioned();
        let next = current.next();
        let repeats = next.is_some_and(|next| next.key().user_key == current.key().user_key);
        // Nodes are scattered in memory. The prefetch overlaps with the caller's work on this
        // entry.
        if let Some(next) = next {
            next.prefetch_next();
        }
        (self.node, self.repeats) = (next.map(Node::to_raw), repeats);
    }

    /// Moves to the previous entry. Before the first entry, the cursor is unpositioned.
    ///
    /// Searches the skiplist, because nodes link only to their successors. Costs several times as
    /// much as [`next`](Self::next).
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    pub fn prev(&mut self) {
        let key = self.positioned().key();
        self.set_position(self.memtable.list().last_before(key).map(Node::to_raw));
    }

    /// Returns the key of the current entry; `None` if the cursor is not positioned.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.node().map(Node::key)
    }

    /// Returns `true` if the last move was [`next`](Self::next) and did not change the user key.
    #[inline]
    #[must_use]
    pub fn is_older_version(&self) -> bool {
        self.repeats
    }

    /// Returns a copy of the value of the current entry.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[must_use]
    pub fn value(&self) -> Bytes {
        Bytes::copy_from_slice(self.value_ref())
    }

    /// Returns a reference to the value of the current entry, without a copy.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[must_use]
    pub fn value_ref(&self) -> &[u8] {
        self.positioned().value()
    }

    fn set_position(&mut self, node: Option<RawNode>) {
        (self.node, self.repeats) = (node, false);
    }

    #[inline]
    fn positioned(&self) -> Node<'_> {
        self.node().expect("the cursor is positioned")
    }

    #[inline]
    fn node(&self) -> Option<Node<'_>> {
        // SAFETY: the node belongs to `memtable`'s list, which lives as long as the cursor.
        self.node.map(|node| unsafe { node.node() })
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("key", &self.key()).finish_non_exhaustive()
    }
}
