//! Steps through the entries of a block in both directions.

use std::{cmp::Ordering, mem, ops::Range};

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use super::{Block, Entry, word_of};
use crate::handle::BlockHandle;

/// The number of no entry.
const NOWHERE: usize = usize::MAX;

/// A place in a block, or none.
///
/// A step decodes one entry, in both directions alike: an entry starts where the one before ends,
/// and all ends can be told.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    /// The number of the current entry; that of all entries or [`NOWHERE`] if unpositioned.
    index: usize,
    /// The current user key, if the block has a prefix, which it starts with. Else the key lies in
    /// the block as it is. Empty until the block is looked at.
    user_key: Vec<u8>,
    /// Memory for the user key that a step out of a block leaves.
    left_key: Vec<u8>,
    trailer: Trailer,
    /// Where the current entry starts; it ends with the value.
    start: usize,
    /// The current user key without the prefix of the block.
    suffix: Range<usize>,
    value: Range<usize>,
    /// The suffix of the entry that the last step up within the block has left.
    left_suffix: Range<usize>,
    /// Where the entry before starts, and its parts, if they were looked at.
    before: Option<(usize, Entry)>,
    /// Whether the first entry was reached by a step over the edge of the block before, and has the
    /// user key of the last one there.
    repeats_across: bool,
}

impl BlockCursor {
    /// An unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        Self {
            block,
            index: NOWHERE,
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

    /// Goes over to another block, unpositioned, and keeps the buffers. Does not look at the block
    /// yet.
    pub(crate) fn enter(&mut self, block: Block) {
        self.replace(block);
    }

    /// As [`enter`](Self::enter). Returns the block that it leaves.
    fn replace(&mut self, block: Block) -> Block {
        (self.repeats_across, self.left_suffix) = (false, 0..0);
        self.user_key.clear();
        self.unposition();
        mem::replace(&mut self.block, block)
    }

    /// The current key; `None` if unpositioned.
    #[inline]
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.is_positioned().then(|| InternalKey::new(self.user_key(), self.trailer))
    }

    /// The user key of the current entry. Only when positioned.
    #[inline]
    fn user_key(&self) -> &[u8] {
        let content = self.block.content();
        match content.layout().prefix_bytes {
            0 => &content.bytes()[self.suffix.clone()],
            _ => &self.user_key,
        }
    }

    /// Whether the current entry, to which [`next`](Self::next) went, is another version of the
    /// user key of the entry before. Only when positioned.
    #[inline]
    pub(crate) fn is_older_version(&self) -> bool {
        if self.index == 0 { self.repeats_across } else { self.has_suffix(&self.left_suffix) }
    }

    /// Whether the entry before is in this block and has another user key. Only when positioned.
    ///
    /// Costs nothing if a step down follows, which takes over what was decoded.
    #[inline]
    pub(crate) fn is_newest_version(&mut self) -> bool {
        let Some(before) = self.index.checked_sub(1) else { return false };
        let content = self.block.content();
        let layout = content.layout();
        let start = layout.start(content.bytes(), before);
        let entry = layout.entry_between(content.bytes(), start, self.start);
        let is_other = !self.has_suffix(&entry.suffix);
        self.before = Some((start, entry));
        is_other
    }

    /// Whether this is the first entry of the block. Only when positioned.
    #[inline]
    pub(crate) fn is_at_first(&self) -> bool {
        self.index == 0
    }

    /// Whether the current entry has the user key whose suffix lies there in the block.
    #[inline]
    fn has_suffix(&self, other: &Range<usize>) -> bool {
        let bytes = self.block.content().bytes();
        let (suffix, other) = (&bytes[self.suffix.clone()], &bytes[other.clone()]);
        // Most differ in their first bytes, or in their length.
        other.len() == suffix.len() && word_of(other) == word_of(suffix) && other == suffix
    }

    /// Whether there is a current entry.
    #[inline]
    pub(crate) fn is_positioned(&self) -> bool {
        self.index < self.block.entries()
    }

    /// The current value where it lies in the block. Only when positioned.
    #[inline]
    pub(crate) fn value_ref(&self) -> &[u8] {
        debug_assert!(self.is_positioned());
        &self.block.content().bytes()[self.value.clone()]
    }

    /// The current value, shared with the block. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        debug_assert!(self.is_positioned());
        self.block.content().slice(self.value.clone())
    }

    /// The current value of an index, decoded; `None` if unpositioned.
    pub(crate) fn handle(&self) -> Option<BlockHandle> {
        let value = self.is_positioned().then(|| self.value.clone())?;
        let value = &self.block.content().bytes()[value];
        Some(BlockHandle::decode(value).expect("Block::decode checked the handles of an index"))
    }

    /// Where the current entry lies in the content. Only when positioned.
    pub(crate) fn place(&self) -> Range<usize> {
        self.start..self.value.end
    }

    /// Leaves the entry.
    pub(crate) fn unposition(&mut self) {
        self.index = NOWHERE;
    }

    /// Goes to the first entry.
    pub(crate) fn seek_to_first(&mut self) {
        self.go_to(0);
    }

    /// Goes over to the first entry of the block that follows the one which a step up has just
    /// left. Tells how its user key compares with that of the entry left;
    /// [`Greater`](Ordering::Greater) if there is no entry here.
    pub(crate) fn go_on_to_first(&mut self, block: Block) -> Ordering {
        let left_suffix = self.suffix.clone();
        mem::swap(&mut self.user_key, &mut self.left_key);
        let left_block = self.replace(block);
        self.seek_to_first();
        let left = match left_block.content().layout().prefix_bytes {
            0 => &left_block.content().bytes()[left_suffix],
            _ => &*self.left_key,
        };
        let order = self.key().map(|first| first.user_key.cmp(left));
        self.repeats_across = order == Some(Ordering::Equal);
        order.unwrap_or(Ordering::Greater)
    }

    /// Goes to the last entry.
    pub(crate) fn seek_to_last(&mut self) {
        match self.block.entries().checked_sub(1) {
            Some(last) => self.go_to(last),
            None => self.unposition(),
        }
    }

    /// Starts to load what [`seek`](Self::seek) compares, and what follows.
    pub(crate) fn prefetch_seek(&self, target: InternalKey<'_>) {
        self.block.prefetch_found(target.user_key);
    }

    /// Goes to the first entry at or behind `target`.
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) {
        self.go_to(self.block.lower_bound(target));
    }

    /// Goes to the last entry before `target`.
    pub(crate) fn seek_before(&mut self, target: InternalKey<'_>) {
        match self.block.lower_bound(target).checked_sub(1) {
            Some(before) => self.go_to(before),
            None => self.unposition(),
        }
    }

    /// Goes to the next entry, or leaves the block. Only when positioned.
    #[inline]
    pub(crate) fn next(&mut self) {
        debug_assert!(self.is_positioned());
        self.index += 1;
        if self.is_positioned() {
            self.left_suffix = self.suffix.clone();
            let content = self.block.content();
            let start = self.value.end;
            let end = content.layout().end(content.bytes(), self.index);
            self.apply(start, content.layout().entry_between(content.bytes(), start, end));
        }
    }

    /// Goes to the entry before, or leaves the block. Only when positioned.
    #[inline]
    pub(crate) fn prev(&mut self) {
        debug_assert!(self.is_positioned());
        let Some(before) = self.index.checked_sub(1) else {
            return self.unposition();
        };
        self.index = before;
        if let Some((start, entry)) = self.before.take() {
            return self.apply(start, entry);
        }
        let content = self.block.content();
        let start = content.layout().start(content.bytes(), before);
        self.apply(start, content.layout().entry_between(content.bytes(), start, self.start));
    }

    /// Goes to entry `index`; unpositioned if there is none.
    fn go_to(&mut self, index: usize) {
        self.index = index;
        if self.is_positioned() {
            let content = self.block.content();
            let start = content.layout().start(content.bytes(), index);
            self.apply(start, content.entry(index));
        }
    }

    /// Takes over the entry that starts there.
    #[inline]
    fn apply(&mut self, start: usize, entry: Entry) {
        let content = self.block.content();
        let prefix_bytes = content.layout().prefix_bytes as usize;
        if prefix_bytes > 0 {
            if self.user_key.is_empty() {
                self.user_key.extend_from_slice(content.prefix());
            }
            self.user_key.truncate(prefix_bytes);
            self.user_key.extend_from_slice(&content.bytes()[entry.suffix.clone()]);
        }
        self.before = None;
        self.start = start;
        self.suffix = entry.suffix;
        self.trailer = entry.trailer;
        self.value = entry.value;
    }
}
