//! A cursor over the entries of an index block.

use std::{cmp::Ordering, sync::Arc};

use sievedb_format::InternalKey;

use crate::block::{Block, BlockHandle, BlockInner, BlockRole};

/// Index of an unpositioned cursor.
const UNPOSITIONED: usize = usize::MAX;

/// A position in an index block.
///
/// The cursor decodes neither separator nor handle, because the child is usually in its slot. That
/// saves two cache misses per seek.
#[derive(Debug)]
pub(crate) struct IndexCursor {
    block: Block,
    /// Index of the current entry. Unpositioned if there is no such entry.
    at: usize,
}

impl IndexCursor {
    /// Returns an unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        debug_assert_eq!(block.role(), BlockRole::Index);
        Self { block, at: UNPOSITIONED }
    }

    /// Moves to another block. The cursor is then unpositioned. Does not read the block yet.
    pub(crate) fn enter(&mut self, block: Block) {
        debug_assert_eq!(block.role(), BlockRole::Index);
        self.block = block;
        self.unposition();
        debug_assert!(!self.is_positioned());
    }

    pub(crate) fn unposition(&mut self) {
        self.at = UNPOSITIONED;
    }

    pub(crate) fn is_positioned(&self) -> bool {
        self.at < self.block.entries()
    }

    /// Returns the index of the current entry; `None` if unpositioned.
    pub(crate) fn at(&self) -> Option<usize> {
        self.is_positioned().then_some(self.at)
    }

    pub(crate) fn block(&self) -> &Arc<BlockInner> {
        self.block.shared()
    }

    /// Moves to the first entry whose separator is at or after `target`.
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) {
        self.at = self.block.position(target).unwrap_or(UNPOSITIONED);
    }

    /// Prefetches the slot of the current entry.
    pub(crate) fn prefetch_slot(&self) {
        if let Some(at) = self.at() {
            self.block.prefetch_slot(at);
        }
    }

    /// Prefetches the child of the current entry. Returns `true` if its slot is full or the cursor
    /// is unpositioned.
    pub(crate) fn prefetch_child(&self) -> bool {
        self.at().is_none_or(|at| self.block.prefetch_child(at))
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.at = 0;
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.at = self.block.entries().checked_sub(1).unwrap_or(UNPOSITIONED);
    }

    /// Moves to the next entry, or leaves the block. The cursor must be positioned.
    pub(crate) fn next(&mut self) {
        debug_assert!(self.is_positioned());
        self.at += 1;
        debug_assert!(self.at <= self.block.entries());
    }

    /// Moves to the previous entry, or leaves the block. The cursor must be positioned.
    pub(crate) fn prev(&mut self) {
        debug_assert!(self.is_positioned());
        self.at = self.at.checked_sub(1).unwrap_or(UNPOSITIONED);
        debug_assert!(self.at == UNPOSITIONED || self.is_positioned());
    }

    /// Returns the handle of the child; `None` if unpositioned.
    pub(crate) fn handle(&self) -> Option<BlockHandle> {
        self.at().map(|at| self.block.handle_at(at))
    }

    /// Compares the user key of the current separator with `user_key`. The cursor must be
    /// positioned.
    pub(crate) fn compare(&self, user_key: &[u8]) -> Ordering {
        debug_assert!(self.is_positioned());
        self.block.compare_user_key(self.at, user_key)
    }

    /// Returns `true` if the previous separator is in this block and has another user key than
    /// `user_key`. The cursor must be positioned.
    pub(crate) fn separator_before_differs(&self, user_key: &[u8]) -> bool {
        let before = self.at.checked_sub(1);
        before.is_some_and(|at| self.block.compare_user_key(at, user_key) != Ordering::Equal)
    }
}
