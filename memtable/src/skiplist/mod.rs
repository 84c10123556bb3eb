//! A sorted list of entries that threads insert into and walk over at once, without a lock.
//!
//! A skiplist (Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees", CACM 1990) from
//! which nothing is ever taken out: so a link is set by one compare-and-swap, and a node that was
//! found stays valid as long as the list. Nodes lie in [memory of their own](crate::node_memory),
//! each with its key:
//!
//! | words  | hold                                                                 |
//! |--------|----------------------------------------------------------------------|
//! | tower  | links to the nodes that follow, the highest level first              |
//! | 2      | trailer; lengths of the user key and of the value ([`Head`])         |
//! | key    | the user key                                                         |
//! | value  | the value                                                            |
//!
//! A pointer to a node points behind its tower. So a search, which reads a link and the key, mostly
//! needs one cache line of a node.

use std::{
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use sievedb_format::{InternalKey, Trailer, prefetch::prefetch};

use crate::{
    node_memory::{NodeMemory, WORD_ALIGN, WORD_BYTES},
    sync::AtomicPtr,
};

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Levels, for 4^12 entries. More are found, too, with some steps more.
const HEIGHT_MAX: usize = 12;

/// Of the nodes on a level, one in so many is on the next: 2 to the power of it.
const LEVEL_BITS: u32 = 2;

/// What a counter of nodes grows by, so that its bits, mixed, are as good as random.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of an average tower: 1 + 1/4 + 1/16 ... links.
const TOWER_BYTES: usize = (4 * size_of::<Link>()).div_ceil(3);

/// A pointer to the node that follows, or null.
type Link = AtomicPtr<Head>;

/// What lies where a pointer to a node points.
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
    memory: NodeMemory,
    /// The tower in front of the first node: the highest level first, as in nodes.
    tower: [Link; HEIGHT_MAX],
    /// Levels in use, at least 1.
    height: AtomicUsize,
    entries: AtomicUsize,
    /// Heights of towers come from it.
    seed: AtomicU64,
}

/// An entry of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'l> {
    /// Behind its tower.
    head: NonNull<Head>,
    list: PhantomData<&'l SkipList>,
}

// SAFETY: a node is reached from its list, which may be shared, and shows what does not change, but
// for links, which are atomics.
unsafe impl Send for Node<'_> {}
// SAFETY: the same.
unsafe impl Sync for Node<'_> {}

/// What has links: a node, or the list itself. Points behind the tower.
#[derive(Debug, Clone, Copy)]
struct Tower<'l> {
    end: *const Link,
    list: PhantomData<&'l SkipList>,
}

impl<'l> Tower<'l> {
    /// The link at `level`, counted from 0.
    ///
    /// # Safety
    ///
    /// The tower has to have that level.
    unsafe fn link(self, level: usize) -> &'l Link {
        // SAFETY: a tower lies in front of its end, and the caller says that it is high enough.
        let link = unsafe { self.end.sub(level + 1) };
        // SAFETY: links are set up before a tower can be met, and live as long as the list.
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
        // SAFETY: it is written before the node can be met, and never again.
        unsafe { self.head.as_ref() }
    }

    /// Where the user key lies.
    fn key_at(self) -> NonNull<u8> {
        // SAFETY: the key follows, in the same piece of memory.
        unsafe { self.head.add(1).cast() }
    }

    /// Where the value lies.
    fn value_at(self) -> NonNull<u8> {
        let key_bytes = (self.head().key_bytes as usize).next_multiple_of(WORD_BYTES);
        // SAFETY: the value follows the words of the key, in the same piece of memory.
        unsafe { self.key_at().add(key_bytes) }
    }

    /// The key.
    #[inline]
    pub(crate) fn key(self) -> InternalKey<'l> {
        let Head { trailer, key_bytes, .. } = *self.head();
        let (at, len) = (self.key_at().as_ptr().cast_const(), key_bytes as usize);
        // SAFETY: so many bytes were written there before the node could be met, and never again.
        let user_key = unsafe { std::slice::from_raw_parts(at, len) };
        InternalKey::new(user_key, trailer)
    }

    /// The value.
    #[inline]
    pub(crate) fn value(self) -> &'l [u8] {
        let (at, len) = (self.value_at().as_ptr().cast_const(), self.head().value_bytes as usize);
        // SAFETY: so many bytes were written before the node could be met, and never again.
        unsafe { std::slice::from_raw_parts(at, len) }
    }

    /// The node that follows.
    #[inline]
    pub(crate) fn next(self) -> Option<Self> {
        // SAFETY: every tower has level 0.
        Self::new(unsafe { self.tower().link(0) }.load(Acquire))
    }

    /// Asks for the memory of the node that follows, if there is one.
    #[inline]
    pub(crate) fn prefetch_next(self) {
        // SAFETY: every tower has level 0.
        let next = unsafe { self.tower().link(0) }.load(Relaxed).addr();
        // Its key, and the link in front of that.
        prefetch(next);
        prefetch(next.wrapping_sub(size_of::<Link>()));
    }

    /// The node as it can be kept without a borrow of its list.
    pub(crate) fn keep(self) -> KeptNode {
        KeptNode(self.head)
    }
}

/// A node without a borrow of its list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptNode(NonNull<Head>);

// SAFETY: it shows nothing by itself.
unsafe impl Send for KeptNode {}
// SAFETY: the same.
unsafe impl Sync for KeptNode {}

impl KeptNode {
    /// The node.
    ///
    /// # Safety
    ///
    /// Its list has to live as long as `'l`.
    #[inline]
    pub(crate) unsafe fn node<'l>(self) -> Node<'l> {
        Node { head: self.0, list: PhantomData }
    }
}

impl SkipList {
    /// An empty list.
    pub(crate) fn new() -> Self {
        Self {
            memory: NodeMemory::default(),
            tower: Default::default(),
            height: AtomicUsize::new(1),
            entries: AtomicUsize::new(0),
            seed: AtomicU64::new(SEED_STEP),
        }
    }

    /// Bytes that a node takes, on average.
    pub(crate) const fn node_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        let key_bytes = key_bytes.next_multiple_of(WORD_BYTES);
        let value_bytes = value_bytes.next_multiple_of(WORD_BYTES);
        TOWER_BYTES + size_of::<Head>() + key_bytes + value_bytes
    }

    /// Returns how many bytes of nodes do not lie on the heap.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.memory.mapped_bytes()
    }

    /// Number of entries. Approximate while others insert.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Relaxed)
    }

    /// The first node.
    pub(crate) fn first(&self) -> Option<Node<'_>> {
        // SAFETY: the list has all levels.
        Node::new(unsafe { self.tower().link(0) }.load(Acquire))
    }

    /// The last node.
    pub(crate) fn last(&self) -> Option<Node<'_>> {
        self.find(|_| true).before
    }

    /// The first node at or behind `target`.
    #[inline]
    pub(crate) fn at_or_behind(&self, target: InternalKey<'_>) -> Option<Node<'_>> {
        self.find(|node| node.key() < target).behind
    }

    /// The last node before `target`.
    pub(crate) fn before(&self, target: InternalKey<'_>) -> Option<Node<'_>> {
        self.find(|node| node.key() < target).before
    }

    /// Adds an entry. One that is there with the same key stays, behind it.
    pub(crate) fn insert(&self, key: InternalKey<'_>, value: &[u8]) {
        self.insert_tower(self.next_height(), key, value);
    }

    /// Adds an entry with a tower of `height` links, from 1 to [`HEIGHT_MAX`].
    fn insert_tower(&self, height: usize, key: InternalKey<'_>, value: &[u8]) {
        let node = self.make(height, key, value);
        self.height.fetch_max(height, Relaxed);
        let is_before = |other: Node<'_>| other.key() < key;
        let mut around = [Around::ahead_of(self); HEIGHT_MAX];
        self.find_noting(is_before, |level, found| around[level] = found);
        for (level, around) in around.iter_mut().enumerate().take(height) {
            loop {
                let behind = as_pointer(around.behind);
                // SAFETY: the node has `height` levels.
                unsafe { node.tower().link(level) }.store(behind, Relaxed);
                // SAFETY: the search came to this tower on this level.
                let link = unsafe { around.tower(self).link(level) };
                // Whoever meets the node by this link meets what was written before.
                let new = node.head.as_ptr();
                if link.compare_exchange(behind, new, Release, Relaxed).is_ok() {
                    break;
                }
                // Another node came between.
                self.go_on(level, around, is_before);
            }
        }
        self.entries.fetch_add(1, Relaxed);
    }

    /// Writes a node, which nobody meets yet.
    fn make(&self, height: usize, key: InternalKey<'_>, value: &[u8]) -> Node<'_> {
        let key_len = key.user_key.len();
        let key_bytes = u32::try_from(key_len).expect("keys have at most 64 KiB");
        let value_bytes = u32::try_from(value.len()).expect("values have at most 4 GiB");
        let words = [size_of::<Head>(), key_len, value.len()].map(|len| len.div_ceil(WORD_BYTES));
        let words: usize = words.into_iter().sum();
        let piece = self.memory.take(height + words).cast::<Link>();
        for level in 0..height {
            // SAFETY: the piece begins with the tower.
            let link = unsafe { piece.add(level) };
            // SAFETY: nobody else has the piece.
            unsafe { link.write(Link::default()) };
        }
        // SAFETY: the head lies behind the tower.
        let head = unsafe { piece.add(height) }.cast::<Head>();
        // SAFETY: nobody else has the piece, which is aligned to words.
        unsafe { head.write(Head { trailer: key.trailer, key_bytes, value_bytes }) };
        let node = Node { head, list: PhantomData };
        let (from, to) = (key.user_key.as_ptr(), node.key_at().as_ptr());
        // SAFETY: there is room for the key, which lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(from, to, key_len) };
        let (from, to) = (value.as_ptr(), node.value_at().as_ptr());
        // SAFETY: there is room for the value behind the key, and it lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(from, to, value.len()) };
        node
    }

    /// Levels of the next node.
    fn next_height(&self) -> usize {
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

    /// The nodes beside the place that all nodes that are `before` lie before.
    #[inline]
    fn find(&self, before: impl Fn(Node<'_>) -> bool) -> Around<'_> {
        let mut found = Around::ahead_of(self);
        self.find_noting(before, |_, around| found = around);
        found
    }

    /// As [`find`](Self::find), and tells `note` what lies beside the place on each level in use,
    /// the highest first.
    #[inline]
    fn find_noting<'l>(
        &'l self,
        before: impl Fn(Node<'l>) -> bool,
        mut note: impl FnMut(usize, Around<'l>),
    ) {
        let mut around = Around::ahead_of(self);
        for level in (0..self.height.load(Relaxed)).rev() {
            self.go_on(level, &mut around, &before);
            note(level, around);
        }
    }

    /// Goes on, on this level, from the node before to the place that all nodes that are `before`
    /// lie before. What lies behind on the level above is not compared again.
    #[inline]
    fn go_on<'l>(
        &'l self,
        level: usize,
        around: &mut Around<'l>,
        before: impl Fn(Node<'l>) -> bool,
    ) {
        let behind = as_pointer(around.behind);
        loop {
            // SAFETY: the search came to this tower on this level or a higher one.
            let next = unsafe { around.tower(self).link(level) }.load(Acquire);
            let next_node = Node::new(next);
            match next_node.filter(|_| next != behind).filter(|next| before(*next)) {
                Some(next) => around.before = Some(next),
                None => {
                    around.behind = next_node;
                    return;
                }
            }
        }
    }
}

/// The nodes on both sides of a place on a level.
#[derive(Debug, Clone, Copy)]
struct Around<'l> {
    before: Option<Node<'l>>,
    behind: Option<Node<'l>>,
}

impl<'l> Around<'l> {
    /// The place ahead of all nodes, with none looked at.
    fn ahead_of(_: &'l SkipList) -> Self {
        Self { before: None, behind: None }
    }

    /// The tower in front of the place.
    #[inline]
    fn tower(self, list: &'l SkipList) -> Tower<'l> {
        self.before.map_or_else(|| list.tower(), Node::tower)
    }
}

fn as_pointer(node: Option<Node<'_>>) -> *mut Head {
    node.map_or(ptr::null_mut(), |node| node.head.as_ptr())
}
