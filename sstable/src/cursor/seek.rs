//! A search in a table, in steps that searches in several tables take together.

use sievedb_format::InternalKey;

use super::TableCursor;
use crate::{
    block::{Block, BlockRole},
    direction::Direction,
    error::ReadError,
    goal::Goal,
    index_cursor::IndexCursor,
};

impl TableCursor {
    /// Steps of a seek: see [`seek_step`](Self::seek_step).
    pub const SEEK_STEPS: usize = 6;

    /// Goes to the first entry at or behind `target`.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, target: InternalKey<'_>) -> Result<(), ReadError> {
        (0..Self::SEEK_STEPS).try_for_each(|step| self.seek_step(step, target))
    }

    /// Takes one step of a [`seek`](Self::seek), which is all [`SEEK_STEPS`](Self::SEEK_STEPS) of
    /// them in their order: 0 and up, with one `target`. Unpositioned in between.
    ///
    /// Each but the last ends with asking the processor for what the next one reads. So whoever
    /// moves several cursors and takes each step with all of them waits for memory once a step, not
    /// once a step and cursor. A block that is not in memory is read when its step comes: see
    /// [`advise_seek_step`](Self::advise_seek_step).
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<(), ReadError> {
        let goal = Goal::From(target);
        match step {
            0 => {
                self.begin_walk();
                self.data.unposition();
                self.index[1..].iter_mut().for_each(IndexCursor::unposition);
                self.index[0].seek(target);
                self.index[0].prefetch_slot();
            }
            1 => self.misses = !self.index[0].prefetch_below(),
            2 if self.index.len() > 1 => {
                self.descend_to_index(1, goal)?;
                self.misses = false;
                self.lowest_index().prefetch_slot();
            }
            3 if self.index.len() > 1 => self.misses = !self.lowest_index().prefetch_below(),
            4 => {
                if let Some(at) = self.lowest_index().at() {
                    let block = self.data_block(at, Direction::Forward);
                    // One to be passed over is as if it were empty.
                    let block = self.or_skipped(block)?;
                    let block = block.unwrap_or_else(|| Block::empty(BlockRole::Data));
                    self.misses = false;
                    self.data.enter(block);
                    self.look_for_bound(Direction::Forward);
                    self.data.prefetch_seek(target);
                }
            }
            5 => {
                if self.lowest_index().is_positioned() {
                    goal.go_in_data(&mut self.data);
                }
                self.settle(Direction::Forward, false)?;
            }
            _ => {}
        }
        Ok(())
    }
}
