//! Steps through a table in both directions.

mod walk;

use std::{cmp::Ordering, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey};

use crate::{
    block::{Block, BlockCursor, BlockRole},
    cache::{BlockCounts, BlockObserver as _, BlockRequest, CacheUse},
    cursor_options::CursorOptions,
    direction::Direction,
    error::ReadError,
    goal::Goal,
    handle::BlockHandle,
    index_cursor::IndexCursor,
    read_ahead::ReadAhead,
    table::Table,
};

mod seek;

/// A place among the point entries of a table, or none.
///
/// Unpositioned at first, after a step over an end, and after an error. Range tombstones are not
/// applied. A move up ends at the upper bound of its [`CursorOptions`], a move down at the lower
/// one; keys are compared with a bound only in blocks that may have it.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    options: CursorOptions,
    /// Whether any user key has several entries, by the properties of the table.
    has_versions: bool,
    counts: BlockCounts,
    /// Blocks read before the last search.
    blocks_read_before: u64,
    /// Whether a seek is between two steps, of which the next one finds no block in the slot.
    misses: bool,
    read_ahead: ReadAhead,
    /// From the top index down to the lowest. Each stands in the block whose handle is the current
    /// value of the one above it.
    index: Vec<IndexCursor>,
    /// Stands in the block whose handle is the current value of the lowest index.
    data: BlockCursor,
    /// Which way the last move went.
    direction: Direction,
    /// Whether the bound on that way lies in the block, or before the next one; `None` if that was
    /// not looked for.
    crosses_bound: Option<bool>,
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>, options: CursorOptions) -> Self {
        let mut index = vec![IndexCursor::new(table.top_index().clone())];
        if table.has_partitions() {
            index.push(IndexCursor::new(Block::empty(BlockRole::Index)));
        }
        let mut read_ahead = ReadAhead::new(options.read_ahead_bytes_max)
            .announcing_up_to(table.top_index().shared().handle().offset);
        if options.reads_all {
            read_ahead = read_ahead.at_once();
        }
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
            crosses_bound: None,
        }
    }

    /// The current key; `None` if unpositioned.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.data.key()
    }

    /// Whether there is a current entry.
    #[inline]
    #[must_use]
    pub fn is_positioned(&self) -> bool {
        self.data.is_positioned()
    }

    /// Whether the last move was [`next`](Self::next), and went to another version of the user key
    /// that it left.
    #[inline]
    #[must_use]
    pub fn is_older_version(&self) -> bool {
        self.has_versions && self.data.is_older_version()
    }

    /// Whether there is no entry before the current one with its user key, as far as that is known.
    /// Asks for no block: where the two lie in different ones, `false` unless the index or the
    /// properties tell.
    #[inline]
    pub fn is_newest_version(&mut self) -> bool {
        if !self.has_versions {
            true
        } else if self.data.is_at_first() {
            self.separator_differs()
        } else {
            self.data.is_newest_version()
        }
    }

    /// Whether the block before ends with another user key than the current one, with which this
    /// one begins: the separator between them, which is not below the one and below the other,
    /// differs.
    fn separator_differs(&self) -> bool {
        let index = self.index.last().filter(|index| index.is_positioned());
        let separator = index.zip(self.data.key());
        separator.is_some_and(|(index, first)| index.is_behind_other_than(first.user_key))
    }

    /// The current value. Shares the memory of its block.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[must_use]
    pub fn value(&self) -> Bytes {
        assert!(self.data.is_positioned(), "the value of an unpositioned cursor");
        self.data.value()
    }

    /// The current value where it lies in its block.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[must_use]
    pub fn value_ref(&self) -> &[u8] {
        assert!(self.data.is_positioned(), "the value of an unpositioned cursor");
        self.data.value_ref()
    }

    /// What the cursor asked for and read so far.
    #[must_use]
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged.
    pub fn seek_to_first(&mut self) -> Result<(), ReadError> {
        self.enter_table(Direction::Forward)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<(), ReadError> {
        self.enter_table(Direction::Backward)
    }

    /// Goes to the last entry before `target`.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_before(&mut self, target: InternalKey<'_>) -> Result<(), ReadError> {
        self.begin_walk();
        self.index[0].seek(target);
        if !self.index[0].is_positioned() {
            return self.seek_to_last();
        }
        self.descend(0, Goal::Before(target))?;
        self.settle(Direction::Backward, false)
    }

    /// Goes to the next entry.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first); and if the first entry of a block is not behind
    /// the last one of the block before.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its entries")]
    pub fn next(&mut self) -> Result<(), ReadError> {
        assert!(self.data.is_positioned(), "a step of an unpositioned cursor");
        self.data.next();
        if self.data.is_positioned() && self.is_inside(Direction::Forward) {
            return Ok(());
        }
        self.settle(Direction::Forward, true)
    }

    /// Goes to the entry before.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[inline]
    pub fn prev(&mut self) -> Result<(), ReadError> {
        assert!(self.data.is_positioned(), "a step of an unpositioned cursor");
        self.data.prev();
        if self.data.is_positioned() && self.is_inside(Direction::Backward) {
            return Ok(());
        }
        self.settle(Direction::Backward, true)
    }

    /// Goes to the first entry of the table, seen in this direction.
    fn enter_table(&mut self, direction: Direction) -> Result<(), ReadError> {
        self.begin_walk();
        direction.enter_index(&mut self.index[0]);
        self.descend(0, Goal::End(direction))?;
        self.settle(direction, false)
    }

    /// Loads the blocks below index level `from`, and goes to a place in each.
    ///
    /// Stops at a level without a place, and at an error: the levels below, and so the cursor, have
    /// no place then.
    fn descend(&mut self, from: usize, goal: Goal<'_>) -> Result<(), ReadError> {
        self.data.unposition();
        if let Some(block) = self.descend_to_data(from, goal)? {
            self.data.enter(block);
            self.look_for_bound(goal.direction());
            goal.go_in_data(&mut self.data);
        }
        Ok(())
    }

    /// Loads the blocks below index level `from`, and goes to a place in each but the data block,
    /// which is returned. `None` if there is none, or one on the way is to be passed over.
    fn descend_to_data(&mut self, from: usize, goal: Goal<'_>) -> Result<Option<Block>, ReadError> {
        for level in &mut self.index[from + 1..] {
            level.unposition();
        }
        (from + 1..self.index.len()).try_for_each(|level| self.descend_to_index(level, goal))?;
        let Some(at) = self.lowest_index().at() else { return Ok(None) };
        let block = self.data_block(at, goal.direction());
        self.or_skipped(block)
    }

    /// What was read; `None` if it is damaged and to be passed over.
    fn or_skipped<T>(&self, read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
        match read {
            Err(ReadError::Corrupt { .. }) if self.options.skip_damaged => Ok(None),
            read => read.map(Some),
        }
    }

    /// Loads the block of index level `level`, which has no place, if the level above has one, and
    /// goes to a place in it; not if it is to be passed over.
    fn descend_to_index(&mut self, level: usize, goal: Goal<'_>) -> Result<(), ReadError> {
        let above = &self.index[level - 1];
        let Some(at) = above.at() else { return Ok(()) };
        let (role, cache_use) = (BlockRole::Index, self.options.cache_use);
        let block = self.table.below(above.block(), at, role, cache_use, &mut self.counts);
        let Some(block) = self.or_skipped(block)? else { return Ok(()) };
        self.index[level].enter(block.into_block());
        goal.go_in_index(&mut self.index[level]);
        Ok(())
    }

    /// The index above the data blocks.
    fn lowest_index(&self) -> &IndexCursor {
        self.index.last().expect("there is a top index")
    }

    /// The data block below entry `at` of the lowest index: from its slot, from the cache, or read
    /// with its neighbours.
    fn data_block(&mut self, at: usize, direction: Direction) -> Result<Block, ReadError> {
        let Self { table, options, counts, read_ahead, index, .. } = self;
        let cache_use = options.cache_use;
        let index = index.last().expect("there is a top index");
        let slots = index.block();
        let held = table.at_hand(slots, at, BlockRole::Data, cache_use);
        // The block that comes next: it is on its way while this one is read. Of the one behind it
        // only what tells where its entries lie.
        let after = |at| direction.after(at).filter(|next| *next < slots.entries());
        if let Some(next) = after(at) {
            let held = slots.below(next);
            // On the way up the same gained nothing in three rounds on a busy machine.
            if let Some(held) = held.filter(|_| direction == Direction::Backward) {
                held.prefetch_last();
                drop(after(next).and_then(|next| slots.below(next)));
            }
        }
        if let Some(held) = held {
            let BlockHandle { offset, bytes } = held.handle();
            counts.on_request(BlockRequest { offset, bytes, is_index: false });
            return Ok(held.into_block());
        }
        let handle = slots.handle_at(at);
        let block = match table.request(handle, BlockRole::Data, cache_use, counts) {
            Some(block) => block,
            None => {
                let around = |window| {
                    let place = direction.neighbours(slots, at, window);
                    options.within_bounds(slots, place)
                };
                let counted = |bytes| table.counted(bytes, cache_use);
                let stored = read_ahead.read(table.blocks(), handle.place(), around, counted)?;
                // A value held by the caller must pin one block only.
                let is_part = read_ahead.holds(&stored);
                table.keep_block(handle, stored, is_part, BlockRole::Data, cache_use, counts)?
            }
        };
        if cache_use == CacheUse::Fill {
            block.place_in(slots, at);
        }
        Ok(block)
    }

    /// Finds out whether the block just entered may have keys beyond the bound on the way. Leaves
    /// it anywhere.
    fn look_for_bound(&mut self, direction: Direction) {
        self.direction = direction;
        let crosses_bound = match direction {
            _ if self.bound(direction) == Bound::Unbounded => false,
            // No key of the block is behind its separator.
            Direction::Forward => {
                let index = self.lowest_index();
                match self.bound(direction) {
                    Bound::Unbounded => false,
                    Bound::Included(end) => index.compare(end) == Ordering::Greater,
                    Bound::Excluded(end) => index.compare(end) != Ordering::Less,
                }
            }
            Direction::Backward => {
                self.data.seek_to_first();
                self.data.key().is_some_and(|first| !self.is_within(first.user_key, direction))
            }
        };
        self.crosses_bound = Some(crosses_bound);
    }

    /// Whether the block is known to end before the bound in this direction.
    #[inline]
    fn is_inside(&self, direction: Direction) -> bool {
        self.crosses_bound == Some(false) && self.direction == direction
    }

    /// Whether `user_key` is not beyond the bound in this direction.
    fn is_within(&self, user_key: &[u8], direction: Direction) -> bool {
        match (self.bound(direction), direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), Direction::Forward) => user_key <= end,
            (Bound::Excluded(end), Direction::Forward) => user_key < end,
            (Bound::Included(start), Direction::Backward) => user_key >= start,
            (Bound::Excluded(start), Direction::Backward) => user_key > start,
        }
    }

    /// Where moves in this direction end.
    fn bound(&self, direction: Direction) -> Bound<&[u8]> {
        let bound = match direction {
            Direction::Forward => &self.options.end,
            Direction::Backward => &self.options.start,
        };
        bound.as_ref().map(AsRef::as_ref)
    }

    /// If the data has no place, goes on to the next block, in this direction, that has an entry.
    /// `stepped` tells that the data was left by a step. Leaves an entry beyond the bound.
    #[cold]
    fn settle(&mut self, direction: Direction, stepped: bool) -> Result<(), ReadError> {
        if self.direction != direction {
            self.direction = direction;
            self.crosses_bound = (self.bound(direction) == Bound::Unbounded).then_some(false);
        }
        let mut stepped = stepped && !self.data.is_positioned();
        if stepped && self.crosses_bound == Some(true) {
            // What lies beyond this block lies beyond the bound.
            return Ok(());
        }
        while !self.data.is_positioned() {
            let Some(lowest) = self.index.iter().rposition(IndexCursor::is_positioned) else {
                return Ok(());
            };
            direction.step(&mut self.index[lowest]);
            self.read_ahead.set_goes_on(lowest + 1 < self.index.len());
            if stepped && direction == Direction::Forward {
                stepped = !self.go_on_up(lowest)?;
            } else {
                self.descend(lowest, Goal::End(direction))?;
            }
        }
        let is_beyond = !self.is_inside(direction)
            && self.data.key().is_some_and(|key| !self.is_within(key.user_key, direction));
        if is_beyond {
            self.data.unposition();
        }
        Ok(())
    }
}

impl TableCursor {
    /// Goes to the first entry of the next block, below index level `from`, and checks that it is
    /// behind the entry that was left. Returns whether there is a block below that level.
    fn go_on_up(&mut self, from: usize) -> Result<bool, ReadError> {
        let goal = Goal::End(Direction::Forward);
        let Some(block) = self.descend_to_data(from, goal)? else { return Ok(false) };
        let order = self.data.go_on_to_first(block);
        self.look_for_bound(Direction::Forward);
        if order == Ordering::Less {
            self.data.unposition();
            let offset = self.lowest_index().handle().map_or(0, |at| at.offset);
            let source = Corruption::Order { what: "blocks of a table" };
            return Err(ReadError::Corrupt { offset, source });
        }
        Ok(true)
    }
}
