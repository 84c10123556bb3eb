//! The target of a seek, and the direction of a scan.

use std::ops::Range;

use sievedb_format::InternalKey;

use crate::{
    block::{BlockCursor, BlockInner},
    index_cursor::IndexCursor,
};

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    pub(crate) fn step(self, cursor: &mut IndexCursor) {
        match self {
            Self::Forward => cursor.next(),
            Self::Backward => cursor.prev(),
        }
    }

    /// Returns the index after `at` in this direction. It may exceed the number of entries.
    pub(crate) fn after(self, at: usize) -> Option<usize> {
        match self {
            Self::Forward => at.checked_add(1),
            Self::Backward => at.checked_sub(1),
        }
    }

    /// Returns the range of child `at` of `index` and of the adjacent children in this direction.
    /// The range has at most `window` bytes, unless the child alone is longer.
    pub(crate) fn adjacent_range(self, index: &BlockInner, at: usize, window: u64) -> Range<u64> {
        let mut range = index.handle_at(at).range();
        match self {
            Self::Forward => {
                let start = range.start;
                let fits = |child: &Range<u64>| child.end.saturating_sub(start) <= window;
                let children = (at + 1..index.entries()).map(|at| index.handle_at(at).range());
                for child in children.take_while(fits).filter(|child| child.start >= start) {
                    range.end = range.end.max(child.end);
                }
            }
            Self::Backward => {
                let from = range.end.saturating_sub(window);
                let children = (0..at).rev().map(|at| index.handle_at(at).range());
                for child in children.take_while(|child| child.start >= from) {
                    range.start = range.start.min(child.start);
                }
            }
        }
        range
    }
}

/// Target of a seek.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeekTarget<'k> {
    /// The first entry in this direction.
    First(Direction),
    /// The first entry at or after this key.
    AtOrAfter(InternalKey<'k>),
    /// The last entry before this key, which must not be after all separators.
    Before(InternalKey<'k>),
}

impl SeekTarget<'_> {
    /// Returns the direction of the scan that follows.
    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::First(direction) => direction,
            Self::AtOrAfter(_) => Direction::Forward,
            Self::Before(_) => Direction::Backward,
        }
    }

    pub(crate) fn seek_index(self, cursor: &mut IndexCursor) {
        match self {
            Self::First(Direction::Forward) => cursor.seek_to_first(),
            Self::First(Direction::Backward) => cursor.seek_to_last(),
            // The child of the first separator at or after a key also holds the entry before.
            Self::AtOrAfter(key) | Self::Before(key) => cursor.seek(key),
        }
    }

    pub(crate) fn seek_data(self, cursor: &mut BlockCursor) {
        match self {
            Self::First(Direction::Forward) => cursor.seek_to_first(),
            Self::First(Direction::Backward) => cursor.seek_to_last(),
            Self::AtOrAfter(key) => cursor.seek(key),
            Self::Before(key) => cursor.seek_before(key),
        }
    }
}
