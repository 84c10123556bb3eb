//! A decoded block in memory: lookups in it, and the slots of the blocks below an index.

use std::{
    cmp::Ordering,
    ops::{Deref, Range},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_filter::{LINE_BYTES, prefetch::prefetch};
use sievedb_format::{Corruption, InternalKey, SequenceNumber, Trailer};

use super::{
    BlockRole,
    layout::{Entry, Layout},
    residence::{self, Residence, Slot},
    search::{Search, word_of},
    stored::BlockHandle,
};
use crate::sync::Guard;

/// Maximum matching tags that a lookup compares before it falls back to a binary search. More tags
/// match only if a key has many versions or the keys are chosen to collide.
const TAGGED_COMPARED_MAX: usize = 8;

/// Cache lines of entries that a seek prefetches: those it compares, and the next ones of a forward
/// scan.
const SEEK_LINES: usize = 8;

/// Cache lines at the end of a block that a backward scan prefetches.
const LAST_LINES: usize = 8;

/// A decoded block. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Block(Arc<BlockInner>);

/// The shared part of a [`Block`].
#[derive(Debug)]
pub(crate) struct BlockInner {
    search: Search,
    /// The content, which [`Block::decode`] checked.
    pub(super) bytes: Bytes,
    pub(super) layout: Layout,
    residence: Residence,
    handle: BlockHandle,
    /// One per entry of an index; none in a data block.
    slots: Box<[Slot]>,
}

/// A block for the duration of a lookup.
#[derive(Debug)]
pub(crate) enum BlockRef {
    /// Loaded from its slot, without a write to the reference count.
    InSlot(Guard<Option<Arc<BlockInner>>>),
    Owned(Block),
}

impl BlockRef {
    /// Converts to an owned block.
    pub(crate) fn into_block(self) -> Block {
        match self {
            Self::InSlot(guard) => Block(Guard::into_inner(guard).expect("a full slot")),
            Self::Owned(block) => block,
        }
    }

    /// Returns the shared part.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<BlockInner> {
        match self {
            Self::InSlot(guard) => guard.as_ref().expect("a full slot"),
            Self::Owned(block) => &block.0,
        }
    }
}

impl Deref for BlockRef {
    type Target = BlockInner;

    #[inline]
    fn deref(&self) -> &BlockInner {
        self.shared()
    }
}

impl Deref for Block {
    type Target = BlockInner;

    #[inline]
    fn deref(&self) -> &BlockInner {
        &self.0
    }
}

/// A value in its block, borrowed for the duration of a lookup.
#[derive(Debug)]
pub struct ValueRef<'b> {
    content: &'b Bytes,
    range: Range<usize>,
}

impl ValueRef<'_> {
    /// Returns the length of the value, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the value without a copy. It keeps its block in memory.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.content.slice(self.range.clone())
    }

    /// Returns the value as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.content[self.range.clone()]
    }

    /// Returns the value without its first `bytes` bytes.
    ///
    /// # Panics
    ///
    /// If the value is shorter.
    #[must_use]
    pub fn after(&self, bytes: usize) -> ValueRef<'_> {
        assert!(bytes <= self.len(), "{bytes} of {} bytes", self.len());
        ValueRef { content: self.content, range: self.range.start + bytes..self.range.end }
    }
}

impl Block {
    /// Returns a block without entries.
    pub(crate) fn empty(role: BlockRole) -> Self {
        let (search, handle) = (Search::builder(b"", 0, role), BlockHandle { offset: 0, bytes: 0 });
        Self::new(Bytes::new(), Layout::EMPTY, search.finish(), handle)
    }

    /// Decodes the content of the block at `handle`.
    ///
    /// Checks everything, so that searches and cursors need no checks: entries are complete and in
    /// order, and the values of an index are valid handles of ascending blocks.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field violates the table in [`super`].
    pub(crate) fn decode(
        bytes: Bytes,
        role: BlockRole,
        handle: BlockHandle,
    ) -> Result<Self, Corruption> {
        let layout = Layout::decode(&bytes, role)?;
        let mut search = Search::builder(layout.prefix(&bytes), layout.entries as usize, role);
        let mut start = layout.entries_at as usize;
        let mut before: Option<(u64, Entry)> = None;
        let mut children_end = 0;
        for index in 0..layout.entries {
            let entry = layout.check_entry(&bytes, index, start, role)?;
            let suffix = &bytes[entry.suffix.clone()];
            let word = word_of(suffix);
            if let Some((word_before, before)) = before {
                // The first words usually differ.
                let order = word_before.cmp(&word).then_with(|| bytes[before.suffix].cmp(suffix));
                let ascends = match order {
                    Ordering::Less => true,
                    Ordering::Equal => before.trailer > entry.trailer,
                    Ordering::Greater => false,
                };
                if !ascends {
                    return Err(Corruption::Order { what: "block" });
                }
            }
            if role == BlockRole::Index {
                let child = BlockHandle::decode(&bytes[entry.value.clone()])?;
                // Otherwise a short index could lead to the same blocks many times.
                if child.offset < children_end {
                    return Err(Corruption::Order { what: "handles of an index" });
                }
                children_end = child.range().end;
            }
            search.push(suffix, word);
            start = entry.value.end;
            before = Some((word, entry));
        }
        let rest = bytes.len() - start;
        if rest > 0 {
            return Err(Corruption::Trailing { what: "block", bytes: rest as u64 });
        }
        Ok(Self::new(bytes, layout, search.finish(), handle))
    }

    /// Decodes a data block of an ingested table. Every entry gets the sequence number `sequence`
    /// instead of the stored one.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), and if the stored sequence numbers differ.
    pub(crate) fn decode_ingested(
        bytes: Bytes,
        handle: BlockHandle,
        sequence: SequenceNumber,
    ) -> Result<Self, Corruption> {
        let mut block = Self::decode(bytes, BlockRole::Data, handle)?;
        let inner = Arc::get_mut(&mut block.0).expect("a new block has one owner");
        inner.layout.replace_sequence(sequence)?;
        Ok(block)
    }

    fn new(bytes: Bytes, layout: Layout, search: Search, handle: BlockHandle) -> Self {
        let children = if search.role() == BlockRole::Index { layout.entries } else { 0 };
        let slots = (0..children).map(|_| Slot::default()).collect();
        let residence = Residence::default();
        Self(Arc::new(BlockInner { search, bytes, layout, residence, handle, slots }))
    }

    /// Publishes the block in slot `at` of `index`, until the cache evicts it.
    pub(crate) fn place_in(&self, index: &Arc<BlockInner>, at: usize) {
        debug_assert_eq!(index.role(), BlockRole::Index);
        debug_assert!(at < index.entries(), "an index has a slot per entry");
        residence::place(&self.0, index, at);
    }

    /// Returns the shared part.
    pub(crate) fn shared(&self) -> &Arc<BlockInner> {
        &self.0
    }

    /// Removes the block from its slot after its eviction from the cache.
    pub(crate) fn evict(&self) {
        residence::evict(&self.0);
    }
}

impl BlockInner {
    /// Returns the role that the block was checked as.
    #[inline]
    pub(crate) fn role(&self) -> BlockRole {
        self.search.role()
    }

    pub(super) fn residence(&self) -> &Residence {
        &self.residence
    }

    #[inline]
    pub(super) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// Returns the addresses that a lookup reads first, besides the struct itself.
    pub(super) fn first_read(&self) -> [usize; 2] {
        [self.search.address(), self.bytes.as_ptr().addr()]
    }

    /// Prefetches the last entries, which a backward scan reads first. The hardware prefetcher
    /// starts only after two or three lines.
    pub(crate) fn prefetch_last(&self) {
        let end = self.bytes.as_ptr_range().end.addr();
        (1..=LAST_LINES).for_each(|line| prefetch(end.wrapping_sub(line * LINE_BYTES)));
    }

    /// Prefetches the entries that a seek to `user_key` compares, and those after them.
    pub(crate) fn prefetch_seek(&self, user_key: &[u8]) {
        let Ok(suffix) = self.suffix(user_key) else { return };
        let first = self.search.narrow(suffix, self.entries()).start;
        let address = self.bytes.as_ptr().addr() + self.layout.start(&self.bytes, first);
        (0..SEEK_LINES).for_each(|line| prefetch(address + line * LINE_BYTES));
    }

    /// Prefetches the slot of entry `at` of an index.
    pub(crate) fn prefetch_slot(&self, at: usize) {
        self.slot(at).prefetch();
    }

    /// Prefetches the block in slot `at` of an index. Returns `true` if the slot is full.
    pub(crate) fn prefetch_child(&self, at: usize) -> bool {
        self.slot(at).load().is_some()
    }

    pub(crate) fn handle(&self) -> BlockHandle {
        self.handle
    }

    /// Returns the block in slot `at` of an index.
    #[inline]
    pub(crate) fn child(&self, at: usize) -> Option<BlockRef> {
        let guard = self.slot(at).load();
        guard.is_some().then_some(BlockRef::InSlot(guard))
    }

    /// Counts a use. Returns `true` if the cache must count it, too.
    #[inline]
    pub(crate) fn count_use(&self) -> bool {
        self.residence.count_use()
    }

    /// Resets the count of uses, so that the cache counts the next ones.
    pub(crate) fn forget_uses(&self) {
        self.residence.forget_uses();
    }

    /// Returns the length of the content, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the positions of prefix, ends and entries in the content.
    pub(crate) fn offsets(&self) -> [usize; 3] {
        self.layout.offsets()
    }

    /// Returns the common prefix of all user keys.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.layout.prefix(&self.bytes)
    }

    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.layout.entries as usize
    }

    #[inline]
    pub(super) fn entry(&self, index: usize) -> Entry {
        self.layout.entry(&self.bytes, index)
    }

    /// Returns the memory of the block in bytes, pages of a memory map included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots_bytes = size_of_val(&*self.slots);
        size_of::<Self>() + self.search.memory_bytes() + slots_bytes + self.content_bytes()
    }

    /// Passes the newest version of the target's user key at or after `target` to `take`.
    pub(crate) fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, ValueRef<'_>) -> T,
    ) -> Option<T> {
        let entry = self.find(target)?;
        Some(take(entry.trailer, ValueRef { content: &self.bytes, range: entry.value }))
    }

    /// Returns the entry of an index whose child may hold `target`.
    #[inline]
    pub(crate) fn position(&self, target: InternalKey<'_>) -> Option<usize> {
        debug_assert_eq!(self.role(), BlockRole::Index);
        Some(self.lower_bound(target)).filter(|at| *at < self.entries())
    }

    /// Returns the handle in entry `at` of an index.
    pub(crate) fn handle_at(&self, at: usize) -> BlockHandle {
        BlockHandle::decode(&self.bytes[self.entry(at).value]).expect("decode checked the handles")
    }

    /// Compares the user key of entry `at` with `user_key`.
    pub(crate) fn compare_user_key(&self, at: usize, user_key: &[u8]) -> Ordering {
        match self.suffix(user_key) {
            Ok(suffix) => self.bytes[self.entry(at).suffix].cmp(suffix),
            Err(order) => order.reverse(),
        }
    }

    #[inline]
    fn find(&self, target: InternalKey<'_>) -> Option<Entry> {
        let Self { search, bytes, .. } = self;
        let suffix = self.suffix(target.user_key).ok()?;
        let is_same = |entry: &Entry| bytes[entry.suffix.clone()] == *suffix;
        let is_visible = |entry: &Entry| entry.trailer <= target.trailer;
        if search.has_tags() {
            let mut tagged = search.tagged(suffix).take_while(|index| *index < self.entries());
            for index in tagged.by_ref().take(TAGGED_COMPARED_MAX) {
                let entry = self.entry(index);
                if is_same(&entry) && is_visible(&entry) {
                    return Some(entry);
                }
            }
            tagged.next()?;
        }
        let index = self.lower_bound(target);
        let entry = (index < self.entries()).then(|| self.entry(index))?;
        is_same(&entry).then_some(entry)
    }

    /// Returns the first entry at or after `target`, or the number of entries.
    #[inline]
    pub(super) fn lower_bound(&self, target: InternalKey<'_>) -> usize {
        let suffix = match self.suffix(target.user_key) {
            Ok(suffix) => suffix,
            Err(Ordering::Greater) => return self.entries(),
            Err(_) => return 0,
        };
        let Range { mut start, mut end } = self.search.narrow(suffix, self.entries());
        while start < end {
            let middle = start.midpoint(end);
            let entry = self.entry(middle);
            let is_before = match self.bytes[entry.suffix].cmp(suffix) {
                Ordering::Less => true,
                Ordering::Equal => entry.trailer > target.trailer,
                Ordering::Greater => false,
            };
            if is_before {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// Strips the common prefix. Without that prefix, returns how `user_key` compares with all
    /// entries.
    #[inline]
    fn suffix<'k>(&self, user_key: &'k [u8]) -> Result<&'k [u8], Ordering> {
        let prefix = self.search.prefix().unwrap_or_else(|| self.prefix());
        // A proper prefix of `prefix` compares as less, which is correct.
        user_key.strip_prefix(prefix).ok_or_else(|| user_key.cmp(prefix))
    }
}
