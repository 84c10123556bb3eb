//! Inserts of several entries, whose searches take turns.
//!
//! Most of the time of an insert is spent on cache misses: each step of its search reads a node
//! that the step before has found. The steps of several searches alternate, and each prefetches the
//! node that it compares at its next turn. An entry that follows the one before needs no search.
//!
//! Source: Chen, Ailamaki, Gibbons and Mowry, "Improving Hash Join Performance through
//! Prefetching", ICDE 2004.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use sievedb_filter::prefetch::prefetch;
use sievedb_format::InternalKey;

use super::{HEIGHT_MAX, Head, Neighbors, Node, SkipList, as_ptr};

/// Number of searches that take turns. More would evict each other's nodes from the cache.
const SEARCHES_MAX: usize = 12;

/// The height of a tower, a key and a value.
type Entry<'k> = (usize, InternalKey<'k>, &'k [u8]);

/// A node and its neighbors on each level.
#[derive(Clone, Copy)]
struct Position<'l> {
    node: Node<'l>,
    height: usize,
    neighbors: [Neighbors<'l>; HEIGHT_MAX],
}

/// A search for the position of an unpublished node.
struct Search<'l> {
    /// Has the neighbors on the levels above.
    position: Position<'l>,
    /// The level that is searched.
    level: usize,
    /// `before` on this level, `after` on the level above.
    at: Neighbors<'l>,
    /// The next node to compare, prefetched.
    next: Option<Node<'l>>,
}

impl SkipList {
    /// Inserts entries. Faster than as many calls of [`insert`](Self::insert) if the list is larger
    /// than the processor's cache, or the keys ascend.
    pub(crate) fn insert_all<'k>(
        &self,
        entries: impl IntoIterator<Item = (InternalKey<'k>, &'k [u8])>,
    ) {
        let entries = entries.into_iter();
        self.insert_with_heights(entries.map(|(key, value)| (self.random_height(), key, value)));
    }

    /// Inserts entries, each with a tower of this many links.
    pub(super) fn insert_with_heights<'k>(&self, mut entries: impl Iterator<Item = Entry<'k>>) {
        let Some(first) = entries.next() else { return };
        // Alone: if the keys ascend, the others follow it without a search.
        let mut first = Search::new(self, first);
        while first.step(self) {}
        let Some(next) = self.link_run(first.position, &mut entries) else { return };
        let mut searches = Vec::with_capacity(SEARCHES_MAX);
        searches.push(Search::new(self, next));
        let others = entries.by_ref().take(SEARCHES_MAX - 1);
        searches.extend(others.map(|entry| Search::new(self, entry)));
        while !searches.is_empty() {
            searches.retain_mut(|search| {
                if search.step(self) {
                    return true;
                }
                let next = self.link_run(search.position, &mut entries);
                next.map(|next| *search = Search::new(self, next)).is_some()
            });
        }
    }

    /// Links the node at `position`, and inserts the entries that follow it directly. Returns the
    /// first entry that does not.
    fn link_run<'l, 'k>(
        &'l self,
        mut position: Position<'l>,
        entries: &mut impl Iterator<Item = Entry<'k>>,
    ) -> Option<Entry<'k>> {
        loop {
            self.link(position.node, &mut position.neighbors[..position.height]);
            let (height, key, value) = entries.next()?;
            if !position.is_directly_before(key) {
                return Some((height, key, value));
            }
            for neighbors in &mut position.neighbors[..position.height] {
                neighbors.before = Some(position.node);
            }
            position.node = self.allocate_node(height, key, value);
            position.height = height;
        }
    }
}

impl Position<'_> {
    /// Returns `true` if `key` comes after the linked node and before the next one.
    fn is_directly_before(&self, key: InternalKey<'_>) -> bool {
        self.node.key() < key && self.node.next().is_none_or(|next| key <= next.key())
    }
}

impl<'l> Search<'l> {
    /// Allocates the node, and begins its search.
    fn new(list: &'l SkipList, (height, key, value): Entry<'_>) -> Self {
        let node = list.allocate_node(height, key, value);
        let at = Neighbors::at_head(list);
        let position = Position { node, height, neighbors: [at; HEIGHT_MAX] };
        let level = list.height.load(Relaxed) - 1;
        let mut search = Self { position, level, at, next: None };
        search.next = search.next_node(list);
        search
    }

    fn next_node(&self, list: &'l SkipList) -> Option<Node<'l>> {
        // SAFETY: the search reached this tower on this level or a higher one.
        Node::new(unsafe { self.at.tower(list).link(self.level) }.load(Acquire))
    }

    /// Compares the next node, and prefetches the one to compare after it. Returns `false` if there
    /// is none: then the position is complete.
    fn step(&mut self, list: &'l SkipList) -> bool {
        let key = self.position.node.key();
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
        self.position.neighbors[self.level] = self.at;
        match self.level.checked_sub(1) {
            Some(level) => self.level = level,
            None => return false,
        }
        true
    }
}
