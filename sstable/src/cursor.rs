//! Steps through a table in both directions.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_format::InternalKey;

use crate::{
    block::{Block, BlockCursor, BlockRole},
    cache::{BlockCounts, CacheUse},
    error::ReadError,
    table::Table,
};

/// A place among the point entries of a table, or none.
///
/// Unpositioned at first, after a step over an end, and after an error. Range tombstones are not
/// applied.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    cache_use: CacheUse,
    counts: BlockCounts,
    /// From the top index down to the data. Each stands in the block whose handle is the current
    /// value of the one above it.
    levels: Vec<BlockCursor>,
}

/// Which way to look for the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Enters a block from its end on this side.
    fn enter(self, cursor: &mut BlockCursor) {
        match self {
            Self::Forward => cursor.seek_to_first(),
            Self::Backward => cursor.seek_to_last(),
        }
    }

    fn step(self, cursor: &mut BlockCursor) {
        match self {
            Self::Forward => cursor.next(),
            Self::Backward => cursor.prev(),
        }
    }
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>, cache_use: CacheUse) -> Self {
        let mut levels = vec![BlockCursor::new(table.top_index().clone())];
        if table.has_partitions() {
            levels.push(BlockCursor::new(Block::empty(BlockRole::Index)));
        }
        levels.push(BlockCursor::new(Block::empty(BlockRole::Data)));
        Self { table, cache_use, counts: BlockCounts::default(), levels }
    }

    /// The current key; `None` if unpositioned.
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.data().key()
    }

    /// The current value. Shares the memory of its block.
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[must_use]
    pub fn value(&self) -> Bytes {
        assert!(self.data().is_positioned(), "the value of an unpositioned cursor");
        self.data().value()
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

    /// Goes to the first entry at or behind `target`.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, target: InternalKey<'_>) -> Result<(), ReadError> {
        self.levels[0].seek(target);
        self.descend(0, |level| level.seek(target))?;
        self.settle(Direction::Forward)
    }

    /// Goes to the last entry before `target`.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_before(&mut self, target: InternalKey<'_>) -> Result<(), ReadError> {
        self.levels[0].seek(target);
        if !self.levels[0].is_positioned() {
            return self.seek_to_last();
        }
        self.descend(0, |level| match level.role() {
            BlockRole::Index => level.seek(target),
            BlockRole::Data => level.seek_before(target),
        })?;
        self.settle(Direction::Backward)
    }

    /// Goes to the next entry.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    ///
    /// # Panics
    ///
    /// If unpositioned.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its entries")]
    pub fn next(&mut self) -> Result<(), ReadError> {
        self.step(Direction::Forward)
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
    pub fn prev(&mut self) -> Result<(), ReadError> {
        self.step(Direction::Backward)
    }

    /// Goes to the first entry of the table, seen in this direction.
    fn enter_table(&mut self, direction: Direction) -> Result<(), ReadError> {
        direction.enter(&mut self.levels[0]);
        self.descend(0, |level| direction.enter(level))?;
        self.settle(direction)
    }

    fn step(&mut self, direction: Direction) -> Result<(), ReadError> {
        let data = self.levels.last_mut().expect("the data is the last level");
        assert!(data.is_positioned(), "a step of an unpositioned cursor");
        direction.step(data);
        if data.is_positioned() {
            return Ok(());
        }
        self.settle(direction)
    }

    /// Loads the blocks below level `from`, and goes to a place in each.
    ///
    /// Stops at a level without a place, and at an error: the levels below, and so the cursor, have
    /// no place then.
    fn descend(&mut self, from: usize, go: impl Fn(&mut BlockCursor)) -> Result<(), ReadError> {
        for level in &mut self.levels[from + 1..] {
            level.unposition();
        }
        for below in from + 1..self.levels.len() {
            let Some(handle) = self.levels[below - 1].handle() else {
                break;
            };
            let level = &mut self.levels[below];
            let block = self.table.block(handle, level.role(), self.cache_use, &mut self.counts)?;
            level.enter(block);
            go(level);
        }
        Ok(())
    }

    /// If the data has no place, goes on to the next block, in this direction, that has an entry.
    fn settle(&mut self, direction: Direction) -> Result<(), ReadError> {
        while !self.data().is_positioned() {
            let Some(lowest) = self.levels.iter().rposition(BlockCursor::is_positioned) else {
                break;
            };
            direction.step(&mut self.levels[lowest]);
            self.descend(lowest, |level| direction.enter(level))?;
        }
        Ok(())
    }

    fn data(&self) -> &BlockCursor {
        self.levels.last().expect("the data is the last level")
    }
}
