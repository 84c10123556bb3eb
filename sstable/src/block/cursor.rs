//! Steps through the entries of a block in both directions.

use std::ops::Range;

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use super::{Block, BlockRole};
use crate::handle::BlockHandle;

/// A place in a block, or none.
///
/// A step decodes one entry, in both directions alike: an entry starts where the one before ends, and
/// all ends can be told.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    /// The number of the current entry; that of all entries if unpositioned.
    index: usize,
    /// Starts with the prefix of the block.
    user_key: Vec<u8>,
    trailer: Trailer,
    /// Where the current entry starts; it ends with the value.
    start: usize,
    value: Range<usize>,
}

impl BlockCursor {
    /// An unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        let mut cursor = Self {
            block: Block::empty(block.role()),
            index: 0,
            user_key: Vec::new(),
            trailer: Trailer::OLDEST,
            start: 0,
            value: 0..0,
        };
        cursor.enter(block);
        cursor
    }

    /// Goes over to another block, unpositioned, and keeps the buffers.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = block;
        self.user_key.clear();
        self.user_key.extend_from_slice(self.block.content().prefix());
        self.unposition();
    }

    /// The current key; `None` if unpositioned.
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.is_positioned().then(|| InternalKey::new(&self.user_key, self.trailer))
    }

    /// Whether there is a current entry.
    pub(crate) fn is_positioned(&self) -> bool {
        self.index < self.block.entries()
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

    /// What the entries are.
    pub(crate) fn role(&self) -> BlockRole {
        self.block.role()
    }

    /// Leaves the entry.
    pub(crate) fn unposition(&mut self) {
        self.index = self.block.entries();
    }

    /// Goes to the first entry.
    pub(crate) fn seek_to_first(&mut self) {
        self.go_to(0);
    }

    /// Goes to the last entry.
    pub(crate) fn seek_to_last(&mut self) {
        match self.block.entries().checked_sub(1) {
            Some(last) => self.go_to(last),
            None => self.unposition(),
        }
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
            let content = self.block.content();
            let end = content.layout().end(content.bytes(), self.index);
            self.apply(self.value.end, end);
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
        let content = self.block.content();
        let start = content.layout().start(content.bytes(), before);
        self.apply(start, self.start);
    }

    /// Goes to entry `index`; unpositioned if there is none.
    fn go_to(&mut self, index: usize) {
        self.index = index;
        if self.is_positioned() {
            let content = self.block.content();
            let layout = content.layout();
            let start = layout.start(content.bytes(), index);
            self.apply(start, layout.end(content.bytes(), index));
        }
    }

    /// Takes over the entry with these bounds.
    #[inline]
    fn apply(&mut self, start: usize, end: usize) {
        let content = self.block.content();
        let entry = content.layout().entry_between(content.bytes(), start, end);
        self.user_key.truncate(content.layout().prefix_bytes as usize);
        self.user_key.extend_from_slice(&content.bytes()[entry.suffix]);
        self.trailer = entry.trailer;
        self.start = start;
        self.value = entry.value;
    }
}
