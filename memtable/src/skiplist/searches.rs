//! Inserts of several entries, whose searches take turns.
//!
//! Most of the time of an insert is spent on cache misses: each step of its search reads a node
//! that the step before has found. The steps of several searches alternate, and each prefetches the
//! node that it compares at its next turn.
//!
//! Source: Chen, Ailamaki, Gibbons and Mowry, "Improving Hash Join Performance through
//! Prefetching", ICDE 2004.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use sievedb_format::{InternalKey, prefetch::prefetch};

use super::{HEIGHT_MAX, Head, Neighbors, Node, SkipList, as_ptr};

/// Number of searches that take turns. More would evict each other's nodes from the cache.
const SEARCHES_MAX: usize = 12;

/// A search for the position of an unpublished node.
struct Search<'l> {
    node: Node<'l>,
    height: usize,
    /// The level that is searched.
    level: usize,
    /// `before` on this level, `after` on the level above.
    at: Neighbors<'l>,
    /// The next node to compare, prefetched.
    next: Option<Node<'l>>,
    /// On the levels above.
    found: [Neighbors<'l>; HEIGHT_MAX],
}

impl SkipList {
    /// Inserts entries. Faster than as many calls of [`insert`](Self::insert) if the list is larger
    /// than the processor's cache.
    pub(crate) fn insert_all<'k>(
        &self,
        entries: impl IntoIterator<Item = (InternalKey<'k>, &'k [u8])>,
    ) {
        let entries = entries.into_iter();
        self.insert_with_heights(entries.map(|(key, value)| (self.random_height(), key, value)));
    }

    /// Inserts entries, each with a tower of this many links.
    pub(super) fn insert_with_heights<'k>(
        &self,
        mut entries: impl Iterator<Item = (usize, InternalKey<'k>, &'k [u8])>,
    ) {
        let mut searches = Vec::with_capacity(SEARCHES_MAX);
        searches.extend(entries.by_ref().take(SEARCHES_MAX).map(|entry| Search::new(self, entry)));
        while !searches.is_empty() {
            searches.retain_mut(|search| {
                if search.step(self) {
                    return true;
                }
                self.link(search.node, &mut search.found[..search.height]);
                let next = entries.next().map(|entry| Search::new(self, entry));
                next.map(|next| *search = next).is_some()
            });
        }
    }
}

impl<'l> Search<'l> {
    /// Allocates the node, and begins its search.
    fn new(list: &'l SkipList, (height, key, value): (usize, InternalKey<'_>, &[u8])) -> Self {
        let node = list.allocate_node(height, key, value);
        let at = Neighbors::at_head(list);
        let level = list.height.load(Relaxed) - 1;
        let mut search = Self { node, height, level, at, next: None, found: [at; HEIGHT_MAX] };
        search.next = search.next_node(list);
        search
    }

    fn next_node(&self, list: &'l SkipList) -> Option<Node<'l>> {
        // SAFETY: the search reached this tower on this level or a higher one.
        Node::new(unsafe { self.at.tower(list).link(self.level) }.load(Acquire))
    }

    /// Compares the next node, and prefetches the one to compare after it. Returns `false` if there
    /// is none: then `found` is complete.
    fn step(&mut self, list: &'l SkipList) -> bool {
        let key = self.node.key();
        match self.next.filter(|next| next.key() < key) {
            Some(next) => self.at.before = Some(next),
            None if !self.descend() => return false,
            None => {}
        }
        loop {
            self.next = self.next_node(list);
            let next = as_ptr(self.next);
            // The `after` of the level above is not compared again.
            if next.is_null() || next == as_ptr(self.at.after) {
                if !self.descend() {
                    return false;
                }
                continue;
            }
            prefetch(next.addr());
            prefetch(next.addr() + size_of::<Head>());
            return true;
        }
    }

    /// Ends the search of this level. Returns `false` if it is the lowest.
    fn descend(&mut self) -> bool {
        self.at.after = self.next;
        self.found[self.level] = self.at;
        match self.level.checked_sub(1) {
            Some(level) => self.level = level,
            None => return false,
        }
        true
    }
}
