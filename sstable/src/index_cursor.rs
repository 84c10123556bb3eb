//! Steps through an index block in both directions.

use std::{cmp::Ordering, sync::Arc};

use sievedb_format::InternalKey;

use crate::{
    block::{Block, BlockInner, BlockRole},
    handle::BlockHandle,
};

/// The number of no entry.
const NOWHERE: usize = usize::MAX;

/// A place in an index block, or none.
///
/// A number and no more: the block below is mostly found in its slot, and so neither separators nor
/// handles are looked at, which would be two lines that are not in the processor's cache for each
/// search.
#[derive(Debug)]
pub(crate) struct IndexCursor {
    block: Block,
    /// The number of the current entry; that of all entries or [`NOWHERE`] if unpositioned.
    at: usize,
}

impl IndexCursor {
    /// An unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        debug_assert_eq!(block.role(), BlockRole::Index);
        Self { block, at: NOWHERE }
    }

    /// Goes over to another block, unpositioned. Does not look at it yet.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = block;
        self.unposition();
    }

    /// Leaves the entry.
    pub(crate) fn unposition(&mut self) {
        self.at = NOWHERE;
    }

    /// Whether there is a current entry.
    pub(crate) fn is_positioned(&self) -> bool {
        self.at < self.block.entries()
    }

    /// The number of the current entry.
    pub(crate) fn at(&self) -> Option<usize> {
        self.is_positioned().then_some(self.at)
    }

    /// The block, with a slot for each entry.
    pub(crate) fn block(&self) -> &Arc<BlockInner> {
        self.block.shared()
    }

    /// Goes to the first entry whose separator is at or behind `target`.
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) {
        self.at = self.block.position(target).unwrap_or(NOWHERE);
    }

    /// Starts to load the slot of the current entry, if there is one.
    pub(crate) fn prefetch_slot(&self) {
        if let Some(at) = self.at() {
            self.block.prefetch_slot(at);
        }
    }

    /// Starts to load the block below the current entry. Whether it is in its slot, or there is
    /// none.
    pub(crate) fn prefetch_below(&self) -> bool {
        self.at().is_none_or(|at| self.block.prefetch_below(at))
    }

    /// Goes to the first entry.
    pub(crate) fn seek_to_first(&mut self) {
        self.at = 0;
    }

    /// Goes to the last entry.
    pub(crate) fn seek_to_last(&mut self) {
        self.at = self.block.entries().checked_sub(1).unwrap_or(NOWHERE);
    }

    /// Goes to the next entry, or leaves the block. Only when positioned.
    pub(crate) fn next(&mut self) {
        debug_assert!(self.is_positioned());
        self.at += 1;
    }

    /// Goes to the entry before, or leaves the block. Only when positioned.
    pub(crate) fn prev(&mut self) {
        debug_assert!(self.is_positioned());
        self.at = self.at.checked_sub(1).unwrap_or(NOWHERE);
    }

    /// Where the block below lies; `None` if unpositioned.
    pub(crate) fn handle(&self) -> Option<BlockHandle> {
        self.at().map(|at| self.block.handle_at(at))
    }

    /// How the user key of the current separator compares with `user_key`. Only when positioned.
    pub(crate) fn compare(&self, user_key: &[u8]) -> Ordering {
        self.block.compare_user_key(self.at, user_key)
    }

    /// Whether the entry before is in this block and has another user key than `user_key`. Only
    /// when positioned.
    pub(crate) fn is_behind_other_than(&self, user_key: &[u8]) -> bool {
        let before = self.at.checked_sub(1);
        before.is_some_and(|at| self.block.compare_user_key(at, user_key) != Ordering::Equal)
    }
}
