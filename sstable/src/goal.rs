//! Where a search in a table goes to.

use sievedb_format::InternalKey;

use crate::{block::BlockCursor, direction::Direction, index_cursor::IndexCursor};

/// Where a descent from an index goes to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'k> {
    /// The first entry, seen in this direction.
    End(Direction),
    /// The first entry at or behind this key.
    From(InternalKey<'k>),
    /// The last entry before this key, which an index block has a place for.
    Before(InternalKey<'k>),
}

impl Goal<'_> {
    /// The direction of the walk that begins there.
    pub(crate) fn direction(self) -> Direction {
        match self {
            Self::End(direction) => direction,
            Self::From(_) => Direction::Forward,
            Self::Before(_) => Direction::Backward,
        }
    }

    /// Goes there in an index block.
    pub(crate) fn go_in_index(self, index: &mut IndexCursor) {
        match self {
            Self::End(direction) => direction.enter_index(index),
            Self::From(target) | Self::Before(target) => index.seek(target),
        }
    }

    /// Goes there in a data block.
    pub(crate) fn go_in_data(self, data: &mut BlockCursor) {
        match self {
            Self::End(direction) => direction.enter(data),
            Self::From(target) => data.seek(target),
            Self::Before(target) => data.seek_before(target),
        }
    }
}
