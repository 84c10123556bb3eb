//! A cursor over the point entries of a table, in both directions.

mod seek;
mod target;

use std::{cmp::Ordering, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey};

pub(crate) use self::target::{Direction, SeekTarget};
use crate::{
    block::{Block, BlockCursor, BlockHandle, BlockRole},
    cache::{BlockCounts, BlockObserver as _, BlockRequest, CacheUse},
    error::ReadError,
    index_cursor::IndexCursor,
    options::CursorOptions,
    read_ahead::ReadAhead,
    table::Table,
};

/// A cursor over the point entries of a table.
///
/// The cursor is unpositioned at first, after a step beyond either end, and after an error. Range
/// tombstones are not applied. A forward move ends at the upper bound of its [`CursorOptions`], a
/// backward move at the lower bound. The cursor compares keys with a bound only in blocks that may
/// reach it.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    options: CursorOptions,
    /// `true` if any user key has several entries, according to the properties.
    has_versions: bool,
    counts: BlockCounts,
    /// `blocks_read` at the last seek.
    blocks_read_before: u64,
    /// `true` if the next step of a seek will find its slot empty.
    misses: bool,
    read_ahead: ReadAhead,
    /// From the top index down. Each level is in the child of the level above.
    index: Vec<IndexCursor>,
    /// In the child of the lowest index level.
    data: BlockCursor,
    /// Direction of the last move.
    direction: Direction,
    /// `true` if the block may reach the bound in `direction`; `None` if unknown.
    reaches_bound: Option<bool>,
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>, options: CursorOptions) -> Self {
        let mut index = vec![IndexCursor::new(table.top_index().clone())];
        if table.has_partitions() {
            index.push(IndexCursor::new(Block::empty(BlockRole::Index)));
        }
        let advised_end = table.top_index().handle().offset;
        let read_ahead =
            ReadAhead::new(options.read_ahead_bytes_max, options.reads_all, advised_end);
        let properties = table.properties();
        Self {
            has_versions: properties.user_keys != properties.points(),
            table,
            options,
            counts: BlockCounts::default(),
            blocks_read_before: 0,
            misses: false,
            read_ahead,
            index,
            data: BlockCursor::new(Block::empty(BlockRole::Data)),
            direction: Direction::Forward,
            reaches_bound: None,
        }
    }

    /// Returns the current key; `None` if unpositioned.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.data.key()
    }

    /// Returns `true` if there is a current entry.
    #[inline]
    #[must_use]
    pub fn is_positioned(&self) -> bool {
        self.data.is_positioned()
    }

    /// Returns `true` if the last move was [`next`](Self::next) and reached another version of the
    /// user key that it left.
    #[inline]
    #[must_use]
    pub fn is_older_version(&self) -> bool {
        self.has_versions && self.data.is_older_version()
    }

    /// Returns `true` if the current entry is known to be the newest version of its user key in the
    /// table. Reads no block: at the start of a block, returns `false` unless index or properties
    /// decide.
    #[inline]
    pub fn is_newest_version(&mut self) -> bool {
        if !self.has_versions {
            true
        } else if self.data.is_at_first() {
            // The separator of the previous block is at or after its last entry.
            let index = self.index.last().filter(|index| index.is_positioned());
            let first = index.zip(self.data.key());
            first.is_some_and(|(index, first)| index.separator_before_differs(first.user_key))
        } else {
            self.data.is_newest_version()
        }
    }

    /// Returns the current value, which keeps its block in memory.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Bytes {
        assert!(self.data.is_positioned(), "the cursor is unpositioned");
        self.data.value()
    }

    /// Returns the current value as a slice of its block.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[must_use]
    pub fn value_ref(&self) -> &[u8] {
        assert!(self.data.is_positioned(), "the cursor is unpositioned");
        self.data.value_ref()
    }

    /// Returns the blocks requested and read so far.
    #[must_use]
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first), and if the first entry of a block is not after
    /// the last entry of the previous block.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its entries")]
    pub fn next(&mut self) -> Result<(), ReadError> {
        assert!(self.data.is_positioned(), "the cursor is unpositioned");
        self.data.next();
        if self.data.is_positioned() && self.is_inside(Direction::Forward) {
            return Ok(());
        }
        self.settle(Direction::Forward, true)
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    pub fn prev(&mut self) -> Result<(), ReadError> {
        assert!(self.data.is_positioned(), "the cursor is unpositioned");
        self.data.prev();
        if self.data.is_positioned() && self.is_inside(Direction::Backward) {
            return Ok(());
        }
        self.settle(Direction::Backward, true)
    }

    /// Returns the index level above the data blocks.
    fn lowest_index(&self) -> &IndexCursor {
        self.index.last().expect("there is a top index")
    }

    /// Returns the data block below entry `at` of the lowest index: from its slot, from the cache,
    /// or from the source with adjacent blocks.
    fn data_block(&mut self, at: usize, direction: Direction) -> Result<Block, ReadError> {
        let Self { table, options, counts, read_ahead, index, .. } = self;
        let (role, cache_use) = (BlockRole::Data, options.cache_use);
        let index = index.last().expect("there is a top index").block();
        let in_slot = table.child_in_slot(index, at, role, cache_use);
        let after = |at| direction.after(at).filter(|next| *next < index.entries());
        // Prefetches the next block. Backward, also prefetches its last entries and the header of
        // the following block; forward, this showed no gain.
        if let Some(next) = after(at) {
            let child = index.child(next);
            if let Some(child) = child.filter(|_| direction == Direction::Backward) {
                child.prefetch_last();
                drop(after(next).and_then(|next| index.child(next)));
            }
        }
        if let Some(block) = in_slot {
            let BlockHandle { offset, bytes } = block.handle();
            counts.on_request(BlockRequest { offset, bytes, is_index: false });
            return Ok(block.into_block());
        }
        let handle = index.handle_at(at);
        let block = match table.request(handle, role, cache_use, counts) {
            Some(block) => block,
            None => {
                let around = |window| {
                    let range = direction.adjacent_range(index, at, window);
                    options.within_bounds(index, range)
                };
                let counted = |bytes| table.counted(bytes, cache_use);
                let stored = read_ahead.read(table.reader(), handle.range(), around, counted)?;
                // A value held by the caller must pin one block only.
                let is_part = read_ahead.holds(&stored);
                table.admit_block(handle, stored, is_part, role, cache_use, counts)?
            }
        };
        if cache_use == CacheUse::Fill {
            block.place_in(index, at);
        }
        Ok(block)
    }

    /// Determines whether the block just entered may reach the bound in `direction`. Leaves the
    /// data cursor at an unspecified position.
    fn check_bound(&mut self, direction: Direction) {
        self.direction = direction;
        let reaches_bound = match (direction, self.bound(direction)) {
            (_, Bound::Unbounded) => false,
            // No key of the block is after its separator.
            (Direction::Forward, Bound::Included(end)) => {
                self.lowest_index().compare(end) == Ordering::Greater
            }
            (Direction::Forward, Bound::Excluded(end)) => {
                self.lowest_index().compare(end) != Ordering::Less
            }
            (Direction::Backward, _) => {
                self.data.seek_to_first();
                self.data.key().is_some_and(|first| !self.is_within(first.user_key, direction))
            }
        };
        self.reaches_bound = Some(reaches_bound);
    }

    /// Returns `true` if the block is known to end before the bound in this direction.
    #[inline]
    fn is_inside(&self, direction: Direction) -> bool {
        self.reaches_bound == Some(false) && self.direction == direction
    }

    /// Returns `true` if `user_key` is within the bound in this direction.
    fn is_within(&self, user_key: &[u8], direction: Direction) -> bool {
        match (self.bound(direction), direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Forward) => user_key <= end,
            (Bound::Excluded(end), Direction::Forward) => user_key < end,
            (Bound::Included(start), Direction::Backward) => user_key >= start,
            (Bound::Excluded(start), Direction::Backward) => user_key > start,
        }
    }

    /// Returns the bound of moves in this direction.
    fn bound(&self, direction: Direction) -> Bound<&[u8]> {
        let bound = match direction {
            Direction::Forward => &self.options.end,
            Direction::Backward => &self.options.start,
        };
        bound.as_ref().map(AsRef::as_ref)
    }

    /// Moves to the next non-empty block in this direction if the data cursor is unpositioned, then
    /// enforces the bound. `stepped` is `true` if the last move was a step, which may have left the
    /// block.
    #[cold]
    fn settle(&mut self, direction: Direction, stepped: bool) -> Result<(), ReadError> {
        if self.direction != direction {
            self.direction = direction;
            self.reaches_bound = (self.bound(direction) == Bound::Unbounded).then_some(false);
        }
        let mut stepped = stepped && !self.data.is_positioned();
        if stepped && self.reaches_bound == Some(true) {
            // All further blocks are beyond the bound.
            return Ok(());
        }
        while !self.data.is_positioned() {
            let Some(lowest) = self.index.iter().rposition(IndexCursor::is_positioned) else {
                return Ok(());
            };
            direction.step(&mut self.index[lowest]);
            self.read_ahead.set_contiguous(lowest + 1 < self.index.len());
            if stepped {
                stepped = !match direction {
                    Direction::Forward => self.step_into_next(lowest)?,
                    Direction::Backward => self.step_into_previous(lowest)?,
                };
            } else {
                self.descend(lowest, SeekTarget::First(direction))?;
            }
        }
        debug_assert!(self.index.iter().all(IndexCursor::is_positioned));
        let is_beyond = !self.is_inside(direction)
            && self.data.key().is_some_and(|key| !self.is_within(key.user_key, direction));
        if is_beyond {
            self.data.unposition();
        }
        Ok(())
    }

    /// Moves to the first entry of the next block, below index level `from`, and checks that it is
    /// after the previous entry. Returns `false` if there is no block below that level.
    fn step_into_next(&mut self, from: usize) -> Result<bool, ReadError> {
        let target = SeekTarget::First(Direction::Forward);
        let Some(block) = self.descend_to_data(from, target)? else { return Ok(false) };
        let order = self.data.enter_next(block);
        self.check_bound(Direction::Forward);
        if order == Ordering::Less { Err(self.out_of_order()) } else { Ok(true) }
    }

    /// Moves to the last entry of the previous block, below index level `from`, and checks that it
    /// is before the block left. Returns `false` if there is no block below that level.
    fn step_into_previous(&mut self, from: usize) -> Result<bool, ReadError> {
        let target = SeekTarget::First(Direction::Backward);
        let Some(block) = self.descend_to_data(from, target)? else { return Ok(false) };
        let left = self.data.enter(block);
        self.check_bound(Direction::Backward);
        self.data.seek_to_last();
        let order = self.data.key().map(|last| left.compare_user_key(0, last.user_key));
        if order == Some(Ordering::Less) { Err(self.out_of_order()) } else { Ok(true) }
    }

    /// Ends at the block just entered, which is out of order.
    #[cold]
    fn out_of_order(&mut self) -> ReadError {
        self.data.unposition();
        let offset = self.lowest_index().handle().map_or(0, |at| at.offset);
        let source = Corruption::Order { what: "blocks of a table" };
        ReadError::Corrupt { offset, source }
    }
}
