//! A concurrent, insert-only skiplist without locks.
//!
//! Nodes are never removed, so one compare-and-swap sets a link, and a node is valid as long as the
//! list. Nodes are allocated in an [arena](crate::arena), each with its key and value:
//!
//! | words  | contents                                                             |
//! |--------|----------------------------------------------------------------------|
//! | tower  | links to the next nodes, the highest level first                     |
//! | 2      | trailer; lengths of the user key and of the value ([`Head`])         |
//! | key    | the user key, padded to words                                        |
//! | value  | the value, padded to words                                           |
//!
//! A pointer to a node points at its head, after the tower. A search reads a link and the key,
//! which are usually in one cache line.
//!
//! Source: Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees", CACM 1990.

use std::{
    hash::{BuildHasher as _, RandomState},
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use sievedb_filter::prefetch::prefetch;
use sievedb_format::{InternalKey, Trailer};

use crate::{
    arena::{Arena, WORD_ALIGN, WORD_BYTES},
    sync::AtomicPtr,
};

mod ends;
mod searches;

use self::ends::ENDS;

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Maximum levels, enough for 4^10 entries, a million. More entries only cost more steps per
/// search.
const HEIGHT_MAX: usize = 10;

/// Binary logarithm of 4: a quarter of the nodes on a level are also on the next higher level.
const LEVEL_BITS: u32 = 2;

/// Increment of the height generator, from SplitMix64 (see `random_height`).
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of an average tower: 1 + 1/4 + 1/16 ... links.
const TOWER_BYTES: usize = (4 * size_of::<Link>()).div_ceil(3);

/// Pointer to the next node on a level, or null.
type Link = AtomicPtr<Head>;

/// Fixed part of a node.
#[repr(C)]
struct Head {
    trailer: Trailer,
    key_bytes: u32,
    value_bytes: u32,
}

const _: () = assert!(size_of::<Link>() == WORD_BYTES, "a pointer has 64 bits");
const _: () = assert!(size_of::<Head>().is_multiple_of(WORD_BYTES));
const _: () = assert!(align_of::<Link>() <= WORD_ALIGN);
const _: () = assert!(align_of::<Head>() <= WORD_ALIGN);

/// A sorted, concurrent, insert-only list.
#[derive(Debug)]
pub(crate) struct SkipList {
    arena: Arena,
    /// Links to the first node of each level, the highest level first, as in nodes.
    tower: [Link; HEIGHT_MAX],
    /// The last node of each of the lowest levels: see [`ends`].
    ends: [Link; ENDS],
    /// Levels in use, at least 1.
    height: AtomicUsize,
    entries: AtomicUsize,
    /// State of the generator of tower heights.
    seed: AtomicU64,
}

/// An entry of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'l> {
    head: NonNull<Head>,
    list: PhantomData<&'l SkipList>,
}

// SAFETY: nodes live as long as their list, which is `Sync`. They are immutable except for links,
// which are atomic.
unsafe impl Send for Node<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Node<'_> {}

/// The links of a node or of the list. `end` points after the tower.
#[derive(Debug, Clone, Copy)]
struct Tower<'l> {
    end: *const Link,
    list: PhantomData<&'l SkipList>,
}

impl<'l> Tower<'l> {
    /// Returns the link at `level`, counted from 0.
    ///
    /// # Safety
    ///
    /// The tower must have more than `level` levels.
    unsafe fn link(self, level: usize) -> &'l Link {
        // SAFETY: the tower lies before `end`, and the caller ensures that it has this level.
        let link = unsafe { self.end.sub(level + 1) };
        // SAFETY: links are initialized before a tower is published, and live as long as the list.
        unsafe { &*link }
    }
}

impl<'l> Node<'l> {
    fn new(head: *mut Head) -> Option<Self> {
        NonNull::new(head).map(|head| Self { head, list: PhantomData })
    }

    fn tower(self) -> Tower<'l> {
        Tower { end: self.head.as_ptr().cast_const().cast(), list: PhantomData }
    }

    fn head(self) -> &'l Head {
        // SAFETY: the head is written before the node is published, and never again.
        unsafe { self.head.as_ref() }
    }

    fn key_ptr(self) -> NonNull<u8> {
        // SAFETY: the key follows the head in the same allocation.
        unsafe { self.head.add(1).cast() }
    }

    fn value_ptr(self) -> NonNull<u8> {
        let key_bytes = (self.head().key_bytes as usize).next_multiple_of(WORD_BYTES);
        // SAFETY: the value follows the key in the same allocation.
        unsafe { self.key_ptr().add(key_bytes) }
    }

    #[inline]
    pub(crate) fn key(self) -> InternalKey<'l> {
        let Head { trailer, key_bytes, .. } = *self.head();
        let (at, len) = (self.key_ptr().as_ptr().cast_const(), key_bytes as usize);
        // SAFETY: the key is written before the node is published, and never again.
        let user_key = unsafe { std::slice::from_raw_parts(at, len) };
        InternalKey::new(user_key, trailer)
    }

    #[inline]
    pub(crate) fn value(self) -> &'l [u8] {
        let (at, len) = (self.value_ptr().as_ptr().cast_const(), self.head().value_bytes as usize);
        // SAFETY: as for the key.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// Returns the next node.
    #[inline]
    pub(crate) fn next(self) -> Option<Self> {
        // SAFETY: every tower has level 0.
        Self::new(unsafe { self.tower().link(0) }.load(Acquire))
    }

    /// Prefetches the next node, if there is one.
    #[inline]
    pub(crate) fn prefetch_next(self) {
        // SAFETY: every tower has level 0.
        let next = unsafe { self.tower().link(0) }.load(Relaxed).addr();
        // The head with the key, and the link before it.
        prefetch(next);
        prefetch(next.wrapping_sub(size_of::<Link>()));
    }

    /// Detaches the node from the borrow of its list.
    pub(crate) fn to_raw(self) -> RawNode {
        RawNode(self.head)
    }
}

/// A node without a borrow of its list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawNode(NonNull<Head>);

// SAFETY: it cannot be dereferenced without `node`, which is unsafe.
unsafe impl Send for RawNode {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawNode {}

impl RawNode {
    /// Returns the node.
    ///
    /// # Safety
    ///
    /// Its list must outlive `'l`.
    #[inline]
    pub(crate) unsafe fn node<'l>(self) -> Node<'l> {
        Node { head: self.0, list: PhantomData }
    }
}

impl SkipList {
    /// Creates an empty list. Draws unpredictable heights: otherwise an order of inserts could be
    /// prepared that leaves most nodes behind no tall one, and makes searches linear.
    pub(crate) fn new() -> Self {
        Self::with_seed(RandomState::new().hash_one(SEED_STEP))
    }

    /// Creates an empty list whose heights depend on `seed` only.
    fn with_seed(seed: u64) -> Self {
        Self {
            arena: Arena::default(),
            tower: Default::default(),
            ends: Default::default(),
            height: AtomicUsize::new(1),
            entries: AtomicUsize::new(0),
            seed: AtomicU64::new(seed),
        }
    }

    /// Returns the average bytes of a node.
    pub(crate) const fn node_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        let key_bytes = key_bytes.next_multiple_of(WORD_BYTES);
        let value_bytes = value_bytes.next_multiple_of(WORD_BYTES);
        TOWER_BYTES + size_of::<Head>() + key_bytes + value_bytes
    }

    /// Returns the bytes of nodes that are not on the heap.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.arena.mapped_bytes()
    }

    /// Returns the number of entries. Approximate during inserts.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Relaxed)
    }

    pub(crate) fn first(&self) -> Option<Node<'_>> {
        // SAFETY: the list has all levels.
        Node::new(unsafe { self.tower().link(0) }.load(Acquire))
    }

    pub(crate) fn last(&self) -> Option<Node<'_>> {
        self.find(|_| true).before
    }

    /// Returns the first node at `target` or greater.
    #[inline]
    pub(crate) fn lower_bound(&self, target: InternalKey<'_>) -> Option<Node<'_>> {
        self.find(|node| node.key() < target).after
    }

    /// Returns the last node less than `target`.
    pub(crate) fn last_before(&self, target: InternalKey<'_>) -> Option<Node<'_>> {
        self.find(|node| node.key() < target).before
    }

    /// Inserts an entry, before any entry with the same key.
    pub(crate) fn insert(&self, key: InternalKey<'_>, value: &[u8]) {
        self.insert_with_height(self.random_height(), key, value);
    }

    /// Inserts an entry with a tower of `height` links, from 1 to [`HEIGHT_MAX`].
    fn insert_with_height(&self, height: usize, key: InternalKey<'_>, value: &[u8]) {
        let node = self.allocate_node(height, key, value);
        let mut neighbors = [Neighbors::at_head(self); HEIGHT_MAX];
        if !self.find_at_ends(key, &mut neighbors[..height]) {
            self.find_per_level(|other| other.key() < key, |level, found| neighbors[level] = found);
        }
        self.link(node, &mut neighbors[..height]);
        self.note_ends(node, &neighbors[..height]);
    }

    /// Links `node` on each of its levels, between the neighbors that a search has found there.
    fn link<'l>(&'l self, node: Node<'l>, neighbors: &mut [Neighbors<'l>]) {
        let key = node.key();
        let is_less = |other: Node<'_>| other.key() < key;
        for (level, neighbors) in neighbors.iter_mut().enumerate() {
            loop {
                debug_assert!(neighbors.before.is_none_or(is_less), "level {level} is unsorted");
                debug_assert!(!neighbors.after.is_some_and(is_less), "level {level} is unsorted");
                let after = as_ptr(neighbors.after);
                // SAFETY: there are neighbors for each level of the node.
                unsafe { node.tower().link(level) }.store(after, Relaxed);
                // SAFETY: the search reached this tower on this level.
                let link = unsafe { neighbors.tower(self).link(level) };
                // Release: a thread that loads this link sees the whole node.
                let new = node.head.as_ptr();
                if link.compare_exchange(after, new, Release, Relaxed).is_ok() {
                    break;
                }
                // Another insert changed the link: search again from the same predecessor.
                self.search_level(level, neighbors, is_less);
            }
        }
        self.entries.fetch_add(1, Relaxed);
    }

    /// Allocates and writes an unpublished node with a tower of `height` links.
    fn allocate_node(&self, height: usize, key: InternalKey<'_>, value: &[u8]) -> Node<'_> {
        debug_assert!((1..=HEIGHT_MAX).contains(&height), "a tower of {height} links");
        let key_len = key.user_key.len();
        let key_bytes = u32::try_from(key_len).expect("keys have at most u32::MAX bytes");
        let value_bytes = u32::try_from(value.len()).expect("values have at most u32::MAX bytes");
        let words = [size_of::<Head>(), key_len, value.len()].map(|len| len.div_ceil(WORD_BYTES));
        let words: usize = words.into_iter().sum();
        let start = self.arena.allocate(height + words).cast::<Link>();
        for level in 0..height {
            // SAFETY: the allocation begins with the tower.
            let link = unsafe { start.add(level) };
            // SAFETY: no other thread can reach the allocation.
            unsafe { link.write(Link::default()) };
        }
        // SAFETY: the head follows the tower.
        let head = unsafe { start.add(height) }.cast::<Head>();
        // SAFETY: no other thread can reach the allocation, which is word-aligned.
        unsafe { head.write(Head { trailer: key.trailer, key_bytes, value_bytes }) };
        let node = Node { head, list: PhantomData };
        let (from, to) = (key.user_key.as_ptr(), node.key_ptr().as_ptr());
        // SAFETY: the allocation has room for the key and does not overlap with the source.
        unsafe { ptr::copy_nonoverlapping(from, to, key_len) };
        let (from, to) = (value.as_ptr(), node.value_ptr().as_ptr());
        // SAFETY: the allocation has room for the value after the key and does not overlap with the
        // source.
        unsafe { ptr::copy_nonoverlapping(from, to, value.len()) };
        self.height.fetch_max(height, Relaxed);
        node
    }

    fn random_height(&self) -> usize {
        // Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
        let mut bits = self.seed.fetch_add(SEED_STEP, Relaxed);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let more = (bits ^ bits >> 31).trailing_zeros() / LEVEL_BITS;
        (1 + more as usize).min(HEIGHT_MAX)
    }

    fn tower(&self) -> Tower<'_> {
        Tower { end: self.tower.as_ptr_range().end, list: PhantomData }
    }

    /// Returns the neighbors of the position after all nodes for which `is_less` holds.
    #[inline]
    fn find(&self, is_less: impl Fn(Node<'_>) -> bool) -> Neighbors<'_> {
        let mut found = Neighbors::at_head(self);
        self.find_per_level(is_less, |_, neighbors| found = neighbors);
        found
    }

    /// Does the same as [`find`](Self::find), and calls `visit` with the neighbors on each level,
    /// from the highest level down.
    #[inline]
    fn find_per_level<'l>(
        &'l self,
        is_less: impl Fn(Node<'l>) -> bool,
        mut visit: impl FnMut(usize, Neighbors<'l>),
    ) {
        let mut neighbors = Neighbors::at_head(self);
        for level in (0..self.height.load(Relaxed)).rev() {
            self.search_level(level, &mut neighbors, &is_less);
            visit(level, neighbors);
        }
    }

    /// Advances `neighbors` on this level. Does not compare the `after` of the level above again.
    #[inline]
    fn search_level<'l>(
        &'l self,
        level: usize,
        neighbors: &mut Neighbors<'l>,
        is_less: impl Fn(Node<'l>) -> bool,
    ) {
        let after = as_ptr(neighbors.after);
        loop {
            let tower = neighbors.tower(self);
            // SAFETY: the search reached this tower on this level or a higher one.
            let next = unsafe { tower.link(level) }.load(Acquire);
            let next_node = Node::new(next);
            if level > 0 {
                // Usually the next node to compare: its cache miss overlaps with this one.
                // SAFETY: as above; a tower has all lower levels.
                prefetch(unsafe { tower.link(level - 1) }.load(Relaxed).addr());
            }
            match next_node.filter(|_| next != after).filter(|next| is_less(*next)) {
                Some(next) => neighbors.before = Some(next),
                None => {
                    neighbors.after = next_node;
                    return;
                }
            }
        }
    }
}

/// The nodes on both sides of a position on a level.
#[derive(Debug, Clone, Copy)]
struct Neighbors<'l> {
    before: Option<Node<'l>>,
    after: Option<Node<'l>>,
}

impl<'l> Neighbors<'l> {
    fn at_head(_: &'l SkipList) -> Self {
        Self { before: None, after: None }
    }

    #[inline]
    fn tower(self, list: &'l SkipList) -> Tower<'l> {
        self.before.map_or_else(|| list.tower(), Node::tower)
    }
}

fn as_ptr(node: Option<Node<'_>>) -> *mut Head {
    node.map_or(ptr::null_mut(), |node| node.head.as_ptr())
}
