//! A cursor over the entries of one block.

use std::{cmp::Ordering, mem, ops::Range};

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use super::{Block, BlockHandle, layout::Entry, search::word_of};

/// Index of an unpositioned cursor.
const UNPOSITIONED: usize = usize::MAX;

/// A position in a block. Both directions decode one entry per step.
///
/// Methods that require a positioned cursor otherwise panic or return an unspecified result.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    /// Index of the current entry. Unpositioned if there is no such entry.
    index: usize,
    /// The current user key, if the block has a prefix; otherwise the key is read in place. Empty
    /// until the first move in a block.
    user_key: Vec<u8>,
    /// Buffer for the user key of the block left by [`enter_next`](Self::enter_next).
    left_key: Vec<u8>,
    trailer: Trailer,
    /// Start of the current entry, which ends with the value.
    start: usize,
    suffix: Range<usize>,
    value: Range<usize>,
    /// Suffix of the entry that the last [`next`](Self::next) left.
    left_suffix: Range<usize>,
    /// Start and parts of the previous entry, if decoded.
    before: Option<(usize, Entry)>,
    /// `true` if the first entry has the user key of the previous block's last entry. Valid only
    /// after [`enter_next`](Self::enter_next).
    repeats_across: bool,
}

impl BlockCursor {
    /// Returns an unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        Self {
            block,
            index: UNPOSITIONED,
            user_key: Vec::new(),
            left_key: Vec::new(),
            trailer: Trailer::OLDEST,
            start: 0,
            suffix: 0..0,
            value: 0..0,
            left_suffix: 0..0,
            before: None,
            repeats_across: false,
        }
    }

    /// Moves to another block, and returns the block left. The cursor is then unpositioned.
    ///
    /// Keeps the buffers. Does not read the new block yet, so that it can be prefetched.
    pub(crate) fn enter(&mut self, block: Block) -> Block {
        (self.repeats_across, self.left_suffix) = (false, 0..0);
        self.user_key.clear();
        self.unposition();
        debug_assert!(self.user_key.is_empty() && !self.is_positioned());
        mem::replace(&mut self.block, block)
    }

    /// Returns the current key; `None` if unpositioned.
    #[inline]
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.is_positioned().then(|| InternalKey::new(self.user_key(), self.trailer))
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        match self.block.layout.prefix_bytes {
            0 => &self.block.bytes[self.suffix.clone()],
            _ => &self.user_key,
        }
    }

    /// Returns `true` if the current entry has the user key of the entry that [`next`](Self::next)
    /// left. The cursor must be positioned.
    #[inline]
    pub(crate) fn is_older_version(&self) -> bool {
        if self.index == 0 { self.repeats_across } else { self.has_suffix(&self.left_suffix) }
    }

    /// Returns `true` if the previous entry is in this block and has another user key. The cursor
    /// must be positioned.
    ///
    /// A following [`prev`](Self::prev) reuses the decoded entry.
    #[inline]
    pub(crate) fn is_newest_version(&mut self) -> bool {
        let Some(before) = self.index.checked_sub(1) else { return false };
        let (layout, bytes) = (&self.block.layout, &self.block.bytes);
        let start = layout.start(bytes, before);
        let entry = layout.entry_between(bytes, start, self.start);
        let is_newest = !self.has_suffix(&entry.suffix);
        self.before = Some((start, entry));
        is_newest
    }

    /// Returns `true` if this is the first entry of the block. The cursor must be positioned.
    #[inline]
    pub(crate) fn is_at_first(&self) -> bool {
        self.index == 0
    }

    #[inline]
    fn has_suffix(&self, other: &Range<usize>) -> bool {
        let bytes = &self.block.bytes;
        let (suffix, other) = (&bytes[self.suffix.clone()], &bytes[other.clone()]);
        // Most suffixes differ in their first bytes or length, which avoids calls to `memcmp`.
        other.len() == suffix.len() && word_of(other) == word_of(suffix) && other == suffix
    }

    #[inline]
    pub(crate) fn is_positioned(&self) -> bool {
        self.index < self.block.entries()
    }

    /// Returns the current value. The cursor must be positioned.
    #[inline]
    pub(crate) fn value_ref(&self) -> &[u8] {
        debug_assert!(self.is_positioned());
        &self.block.bytes[self.value.clone()]
    }

    /// Returns the current value, which keeps its block in memory. The cursor must be positioned.
    pub(crate) fn value(&self) -> Bytes {
        debug_assert!(self.is_positioned());
        self.block.bytes.slice(self.value.clone())
    }

    /// Returns the current value of an index; `None` if unpositioned.
    pub(crate) fn handle(&self) -> Option<BlockHandle> {
        self.is_positioned().then(|| self.block.handle_at(self.index))
    }

    /// Returns the range of the current entry in the content. The cursor must be positioned.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.value.end
    }

    pub(crate) fn unposition(&mut self) {
        self.index = UNPOSITIONED;
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.go_to(0);
    }

    /// Moves to the first entry of `block`, after [`next`](Self::next) has left the previous block.
    ///
    /// Compares the user key of that entry with the user key of the entry left. Returns
    /// [`Greater`](Ordering::Greater) if `block` has no entry.
    pub(crate) fn enter_next(&mut self, block: Block) -> Ordering {
        debug_assert!(!self.is_positioned(), "the block before has more entries");
        let left_suffix = self.suffix.clone();
        mem::swap(&mut self.user_key, &mut self.left_key);
        let left_block = self.enter(block);
        self.seek_to_first();
        let left = match left_block.layout.prefix_bytes {
            0 => &left_block.bytes[left_suffix],
            _ => &*self.left_key,
        };
        let order = self.key().map(|first| first.user_key.cmp(left));
        self.repeats_across = order == Some(Ordering::Equal);
        order.unwrap_or(Ordering::Greater)
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.go_to(self.block.entries().checked_sub(1).unwrap_or(UNPOSITIONED));
    }

    /// Prefetches the entries that [`seek`](Self::seek) compares.
    pub(crate) fn prefetch_seek(&self, target: InternalKey<'_>) {
        self.block.prefetch_seek(target.user_key);
    }

    /// Moves to the first entry at or after `target`.
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) {
        self.go_to(self.block.lower_bound(target));
        debug_assert!(self.key().is_none_or(|key| key >= target));
    }

    /// Moves to the last entry before `target`.
    pub(crate) fn seek_before(&mut self, target: InternalKey<'_>) {
        self.go_to(self.block.lower_bound(target).checked_sub(1).unwrap_or(UNPOSITIONED));
        debug_assert!(self.key().is_none_or(|key| key < target));
    }

    /// Moves to the next entry, or leaves the block. The cursor must be positioned.
    #[inline]
    pub(crate) fn next(&mut self) {
        debug_assert!(self.is_positioned());
        self.index += 1;
        if self.is_positioned() {
            self.left_suffix = self.suffix.clone();
            let (layout, bytes) = (&self.block.layout, &self.block.bytes);
            let start = self.value.end;
            let end = layout.end(bytes, self.index);
            debug_assert_eq!(start, layout.start(bytes, self.index), "entries have no gaps");
            self.apply(start, layout.entry_between(bytes, start, end));
        }
    }

    /// Moves to the previous entry, or leaves the block. The cursor must be positioned.
    #[inline]
    pub(crate) fn prev(&mut self) {
        debug_assert!(self.is_positioned());
        let Some(before) = self.index.checked_sub(1) else {
            return self.unposition();
        };
        self.index = before;
        if let Some((start, entry)) = self.before.take() {
            debug_assert_eq!(entry.value.end, self.start, "the entry before ends here");
            return self.apply(start, entry);
        }
        let (layout, bytes) = (&self.block.layout, &self.block.bytes);
        let start = layout.start(bytes, before);
        self.apply(start, layout.entry_between(bytes, start, self.start));
    }

    /// Moves to entry `index`. Without such an entry the cursor is unpositioned.
    fn go_to(&mut self, index: usize) {
        self.index = index;
        if self.is_positioned() {
            let start = self.block.layout.start(&self.block.bytes, index);
            self.apply(start, self.block.entry(index));
        }
    }

    /// Makes `entry`, which starts at `start`, the current one.
    ///
    /// Always inlined: a call would pass `entry` through memory, at 2 ns a step of a scan.
    #[inline(always)]
    fn apply(&mut self, start: usize, entry: Entry) {
        debug_assert!(start <= entry.suffix.start && entry.suffix.end == entry.value.start);
        debug_assert!(entry.value.end <= self.block.bytes.len());
        let prefix_bytes = self.block.layout.prefix_bytes as usize;
        if prefix_bytes > 0 {
            if self.user_key.is_empty() {
                self.user_key.extend_from_slice(self.block.prefix());
            }
            self.user_key.truncate(prefix_bytes);
            self.user_key.extend_from_slice(&self.block.bytes[entry.suffix.clone()]);
        }
        self.before = None;
        self.start = start;
        self.suffix = entry.suffix;
        self.trailer = entry.trailer;
        self.value = entry.value;
    }
}
