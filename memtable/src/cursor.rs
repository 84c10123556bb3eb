//! Walking over the entries of a memtable in both directions.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sievedb_format::InternalKey;

use crate::memtable::Memtable;
use crate::skiplist::{KeptNode, Node};

/// A position among the entries of a memtable, which it keeps alive.
///
/// Sees every entry that was inserted before its last move. Entries that came later may be missed
/// or met; see [what a reader may rely on](crate::memtable#what-a-reader-may-rely-on).
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    /// Of the list of `memtable`.
    node: Option<KeptNode>,
    repeats: bool,
}

impl MemtableCursor {
    pub(crate) fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, node: None, repeats: false }
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.go_to(self.memtable.list().first().map(Node::keep));
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.go_to(self.memtable.list().last().map(Node::keep));
    }

    /// Moves to the first entry at or behind `target`.
    pub fn seek(&mut self, target: InternalKey<'_>) {
        self.go_to(self.memtable.list().at_or_behind(target).map(Node::keep));
    }

    /// Moves to the last entry before `target`.
    pub fn seek_before(&mut self, target: InternalKey<'_>) {
        self.go_to(self.memtable.list().before(target).map(Node::keep));
    }

    /// Moves to the entry that follows; behind the last one the cursor is not positioned any more.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[inline]
    pub fn next(&mut self) {
        let left = self.positioned();
        let next = left.next();
        let repeats = next.is_some_and(|next| next.key().user_key == left.key().user_key);
        // Nodes lie anywhere: while somebody looks at one, the next is on its way.
        if let Some(next) = next {
            next.prefetch_next();
        }
        (self.node, self.repeats) = (next.map(Node::keep), repeats);
    }

    /// Moves to the entry before; before the first one the cursor is not positioned any more.
    ///
    /// A search of the skiplist, whose nodes know only their successors: several times the cost of
    /// [`next`](Self::next).
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    pub fn prev(&mut self) {
        let key = self.positioned().key();
        self.go_to(self.memtable.list().before(key).map(Node::keep));
    }

    /// The key of the current entry; `None` if the cursor is not positioned.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.node().map(Node::key)
    }

    /// Whether the last move was [`next`](Self::next), and went to another version of the user key
    /// that it left.
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

    /// The value of the current entry where it lies.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[must_use]
    pub fn value_ref(&self) -> &[u8] {
        self.positioned().value()
    }

    fn go_to(&mut self, node: Option<KeptNode>) {
        (self.node, self.repeats) = (node, false);
    }

    #[inline]
    fn positioned(&self) -> Node<'_> {
        self.node().expect("the cursor is positioned")
    }

    #[inline]
    fn node(&self) -> Option<Node<'_>> {
        // SAFETY: the node is one of `memtable`, which lives as long as the cursor.
        self.node.map(|node| unsafe { node.node() })
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("key", &self.key()).finish_non_exhaustive()
    }
}
