//! How many sorted sources become one.

use std::{mem, path::PathBuf};

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use super::cursor::Cursor;
use crate::Result;

/// The entries of several cursors in one order.
///
/// No two cursors hold the same internal key: a sequence number belongs to one write, and a write is
/// in one source of a read view. A step moves one cursor and costs two comparisons while the same
/// source goes on winning, up to `2 log2(sources)` otherwise. A change of direction searches every
/// other source anew.
#[derive(Debug)]
pub(crate) struct MergeCursor<C> {
    cursors: Vec<C>,
    /// Indices of the positioned cursors: a binary heap with the current one first. Empty when the
    /// merge is unpositioned.
    heap: Vec<usize>,
    direction: Direction,
    /// Holds the current user key while the other cursors are turned round.
    turn_key: Vec<u8>,
}

/// Which way the cursors stand: the others beyond the current entry, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<C: Cursor> MergeCursor<C> {
    /// An unpositioned merge of `cursors`. Moves none of them.
    pub(crate) fn new(cursors: Vec<C>) -> Self {
        let heap = Vec::with_capacity(cursors.len());
        Self { cursors, heap, direction: Direction::Forward, turn_key: Vec::new() }
    }

    /// Moves every cursor with `search` and orders them for `direction`.
    fn search(
        &mut self,
        direction: Direction,
        search: impl Fn(&mut C) -> Result<()>,
    ) -> Result<()> {
        self.heap.clear();
        self.direction = direction;
        self.cursors.iter_mut().try_for_each(search)?;
        self.order_all();
        Ok(())
    }

    /// Makes the heap of all positioned cursors.
    fn order_all(&mut self) {
        let positioned = |&index: &usize| self.cursors[index].key().is_some();
        self.heap.extend((0..self.cursors.len()).filter(positioned));
        for slot in (0..self.heap.len() / 2).rev() {
            self.sift_down(slot);
        }
    }

    /// Steps the current cursor with `step` and finds its new place.
    fn step(&mut self, step: impl Fn(&mut C) -> Result<()>) -> Result<()> {
        let current = self.current();
        let cursor = &mut self.cursors[current];
        if let Err(error) = step(cursor) {
            self.heap.clear();
            return Err(error);
        }
        if cursor.key().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Turns every cursor but the current one with `search`, given the current key, and then steps
    /// the current one with `step`.
    ///
    /// A search, not a step: a source that ran over its end has no place to step from, and a
    /// memtable may have got entries in between.
    fn turn(
        &mut self,
        direction: Direction,
        search: impl Fn(&mut C, InternalKey<'_>) -> Result<()>,
        step: impl Fn(&mut C) -> Result<()>,
    ) -> Result<()> {
        let current = self.current();
        let mut turn_key = mem::take(&mut self.turn_key);
        let trailer = self.copy_current(&mut turn_key);
        let target = InternalKey::new(&turn_key, trailer);
        self.heap.clear();
        self.direction = direction;
        for (index, cursor) in self.cursors.iter_mut().enumerate() {
            if index == current {
                step(cursor)?;
            } else {
                search(cursor, target)?;
            }
        }
        self.turn_key = turn_key;
        self.order_all();
        Ok(())
    }

    /// Copies the current user key and returns its trailer.
    fn copy_current(&self, user_key: &mut Vec<u8>) -> Trailer {
        let key = self.cursors[self.current()].key().expect("the heap holds positioned cursors");
        user_key.clear();
        user_key.extend_from_slice(key.user_key);
        key.trailer
    }

    /// Index of the cursor with the current entry.
    fn current(&self) -> usize {
        *self.heap.first().expect("only a positioned cursor is stepped and read")
    }

    /// Restores the heap below `slot`, whose cursor alone may be out of order.
    fn sift_down(&mut self, mut slot: usize) {
        loop {
            let mut first = slot;
            for child in [2 * slot + 1, 2 * slot + 2] {
                if child < self.heap.len() && self.comes_before(child, first) {
                    first = child;
                }
            }
            if first == slot {
                return;
            }
            self.heap.swap(slot, first);
            slot = first;
        }
    }

    /// Whether the entry at heap slot `left` is met before the one at `right`.
    fn comes_before(&self, left: usize, right: usize) -> bool {
        let key = |slot: usize| self.cursors[self.heap[slot]].key();
        match self.direction {
            Direction::Forward => key(left) < key(right),
            Direction::Backward => key(left) > key(right),
        }
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.search(Direction::Forward, C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.search(Direction::Backward, C::seek_to_last)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.search(Direction::Forward, |cursor| cursor.seek(target))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.search(Direction::Backward, |cursor| cursor.seek_before(target))
    }

    fn next(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.step(C::next),
            Direction::Backward => self.turn(Direction::Forward, |c, key| c.seek(key), C::next),
        }
    }

    fn prev(&mut self) -> Result<()> {
        match self.direction {
            Direction::Backward => self.step(C::prev),
            Direction::Forward => {
                self.turn(Direction::Backward, |c, key| c.seek_before(key), C::prev)
            }
        }
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        self.cursors[*self.heap.first()?].key()
    }

    fn value(&self) -> Bytes {
        self.cursors[self.current()].value()
    }

    fn path(&self) -> PathBuf {
        self.cursors[self.current()].path()
    }
}
