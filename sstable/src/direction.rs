//! Up or down the keys of a table.

use std::ops::Range;

use crate::{
    block::{BlockCursor, BlockInner},
    index_cursor::IndexCursor,
};

/// Which way to look for the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Enters a data block from its end on this side.
    pub(crate) fn enter(self, cursor: &mut BlockCursor) {
        match self {
            Self::Forward => cursor.seek_to_first(),
            Self::Backward => cursor.seek_to_last(),
        }
    }

    /// Enters an index block from its end on this side.
    pub(crate) fn enter_index(self, cursor: &mut IndexCursor) {
        match self {
            Self::Forward => cursor.seek_to_first(),
            Self::Backward => cursor.seek_to_last(),
        }
    }

    /// Goes one entry in this direction.
    pub(crate) fn step(self, cursor: &mut IndexCursor) {
        match self {
            Self::Forward => cursor.next(),
            Self::Backward => cursor.prev(),
        }
    }

    /// The number behind `at` in this direction.
    pub(crate) fn after(self, at: usize) -> Option<usize> {
        match self {
            Self::Forward => at.checked_add(1),
            Self::Backward => at.checked_sub(1),
        }
    }

    /// The place of block `at` below `index`, and of those in this direction that lie side by side
    /// with it: `window` bytes at the most, unless the block alone is longer.
    pub(crate) fn neighbours(self, index: &BlockInner, at: usize, window: u64) -> Range<u64> {
        let mut place = index.handle_at(at).place();
        match self {
            Self::Forward => {
                let start = place.start;
                let fits = |place: &Range<u64>| place.end.saturating_sub(start) <= window;
                let behind = (at + 1..index.entries()).map(|at| index.handle_at(at).place());
                for block in behind.take_while(fits).filter(|block| block.start >= start) {
                    place.end = place.end.max(block.end);
                }
            }
            Self::Backward => {
                let from = place.end.saturating_sub(window);
                let before = (0..at).rev().map(|at| index.handle_at(at).place());
                for block in before.take_while(|block| block.start >= from) {
                    place.start = place.start.min(block.start);
                }
            }
        }
        place
    }
}
