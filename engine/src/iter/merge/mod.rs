//! Merge of sorted sources.
//!
//! A [`tournament`] decides which source has the current entry.

mod tournament;

use std::{mem, path::PathBuf};

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use self::tournament::{Loser, Player};
use super::{
    cursor::{Cursor, SEEK_STEPS},
    range_tombstone_sources::HiddenRange,
};
use crate::{Result, table::blobs::Blob};

/// The entries of several cursors in one order.
///
/// No two cursors have the same internal key: a sequence number belongs to one write, and a write
/// is in one source of a read view. A change of direction steps every other source once, since each
/// is next to the current entry. Unpositioned sources are searched again.
#[derive(Debug)]
pub(crate) struct MergeCursor<C> {
    cursors: Vec<C>,
    players: Vec<Player>,
    /// The loser of each inner node. The children of node `n` are `2n` and `2n + 1`; node
    /// `cursors.len() + i` is cursor `i`, node 1 the root, and node 0 is not used.
    losers: Vec<Loser>,
    /// The cursor with the current entry, if `positioned` is not 0.
    winner: usize,
    /// Number of positioned cursors; 0 when the merge is unpositioned.
    positioned: usize,
    direction: Direction,
    /// Length of a common prefix of all user keys.
    common_prefix_bytes: usize,
    repeats: bool,
    /// The current user key during a change of direction.
    turn_key: Vec<u8>,
}

/// Direction of the last move. The other cursors are after the current entry (forward), or before
/// it (backward).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<C: Cursor> MergeCursor<C> {
    /// Creates an unpositioned merge of `cursors`, without moving them. All their user keys have
    /// the first `common_prefix_bytes` in common.
    pub(crate) fn new(cursors: Vec<C>, common_prefix_bytes: usize) -> Self {
        Self {
            players: vec![Player::default(); cursors.len()],
            losers: vec![Loser::default(); cursors.len()],
            cursors,
            winner: 0,
            positioned: 0,
            direction: Direction::Forward,
            common_prefix_bytes,
            repeats: false,
            turn_key: Vec::new(),
        }
    }

    /// Moves every cursor with `search`, as [`move_all`](Self::move_all) does, and orders them for
    /// `direction`.
    fn search(
        &mut self,
        direction: Direction,
        announce: impl Fn(&mut C),
        search: impl Fn(&mut C) -> Result<()>,
    ) -> Result<()> {
        self.positioned = 0;
        self.direction = direction;
        let mut reads = self.reads();
        self.move_all(&mut reads, announce, search)?;
        self.play_all();
        Ok(())
    }

    /// Returns `true` if any cursor read from a file for the last search, or since.
    fn reads(&self) -> bool {
        self.cursors.iter().any(C::has_missed_cache)
    }

    /// Moves every cursor with `go`. After the first cursor that reads from a file, and also if
    /// `reads` is set, `announce` prefetches for the later cursors, so that their reads are in
    /// flight together. With everything in memory nothing is searched twice.
    #[inline]
    fn move_all(
        &mut self,
        reads: &mut bool,
        announce: impl Fn(&mut C),
        go: impl Fn(&mut C) -> Result<()>,
    ) -> Result<()> {
        let mut announced = false;
        for index in 0..self.cursors.len() {
            if *reads && !announced {
                self.cursors[index..].iter_mut().skip(1).for_each(&announce);
                announced = true;
            }
            go(&mut self.cursors[index])?;
            *reads = *reads || self.cursors[index].has_missed_cache();
        }
        Ok(())
    }

    /// Steps the current cursor with `step`, and determines the new winner.
    #[inline]
    fn step(&mut self, step: impl Fn(&mut C) -> Result<()>) -> Result<()> {
        debug_assert!(self.positioned > 0, "only a positioned cursor is stepped");
        let stepped = self.winner;
        let cursor = &mut self.cursors[stepped];
        if let Err(error) = step(cursor) {
            self.positioned = 0;
            return Err(error);
        }
        if self.positioned == 1 {
            self.positioned = usize::from(cursor.is_positioned());
            let goes_up = self.direction == Direction::Forward;
            self.repeats = goes_up && self.positioned == 1 && cursor.is_older_version();
            return Ok(());
        }
        self.play_again(stepped);
        Ok(())
    }

    /// Changes the direction: steps every cursor with `step`.
    ///
    /// A step moves the other cursors to the other side of the current entry. If a cursor is
    /// unpositioned, or a memtable got entries in between, `search` with the current key does so
    /// instead.
    fn turn(
        &mut self,
        direction: Direction,
        search: impl Fn(&mut C, InternalKey<'_>) -> Result<()>,
        step: impl Fn(&mut C) -> Result<()>,
    ) -> Result<()> {
        debug_assert!(self.positioned > 0, "only a positioned cursor is stepped");
        debug_assert_ne!(self.direction, direction);
        let current = self.winner;
        let mut turn_key = mem::take(&mut self.turn_key);
        let trailer = self.copy_current(&mut turn_key);
        let target = InternalKey::new(&turn_key, trailer);
        self.positioned = 0;
        self.direction = direction;
        for (index, cursor) in self.cursors.iter_mut().enumerate() {
            if index == current {
                step(cursor)?;
            } else if cursor.is_positioned() {
                step(cursor)?;
                let is_beyond = |key| match direction {
                    Direction::Forward => key > target,
                    Direction::Backward => key < target,
                };
                if cursor.key().is_some_and(|key| !is_beyond(key)) {
                    search(cursor, target)?;
                }
            } else {
                search(cursor, target)?;
            }
        }
        self.turn_key = turn_key;
        self.play_all();
        Ok(())
    }

    /// Moves each positioned cursor with `skip`, in the current direction.
    fn skip(&mut self, skip: impl Fn(&mut C) -> Result<()>) -> Result<()> {
        self.positioned = 0;
        self.cursors.iter_mut().filter(|cursor| cursor.is_positioned()).try_for_each(skip)?;
        self.play_all();
        Ok(())
    }

    /// Copies the current user key and returns its trailer.
    fn copy_current(&self, user_key: &mut Vec<u8>) -> Trailer {
        let key = self.current().key().expect("the winner is positioned");
        user_key.clear();
        user_key.extend_from_slice(key.user_key);
        key.trailer
    }

    #[inline]
    fn current(&self) -> &C {
        debug_assert!(self.positioned > 0, "only a positioned cursor is read");
        &self.cursors[self.winner]
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.search(Direction::Forward, |_| (), C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.search(Direction::Backward, |_| (), C::seek_to_last)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.positioned = 0;
        self.direction = Direction::Forward;
        let mut reads = self.reads();
        for step in 0..SEEK_STEPS {
            let announce = |cursor: &mut C| cursor.advise_seek_step(step);
            self.move_all(&mut reads, announce, |cursor| cursor.seek_step(step, target))?;
        }
        self.play_all();
        Ok(())
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.search(
            Direction::Backward,
            |c| c.advise_seek_before(target),
            |c| c.seek_before(target),
        )
    }

    fn skip_up(&mut self, hidden: &HiddenRange) -> Result<()> {
        if self.direction == Direction::Backward {
            return Ok(());
        }
        self.skip(|cursor| cursor.skip_up(hidden))
    }

    fn skip_down(&mut self, hidden: &HiddenRange) -> Result<()> {
        if self.direction == Direction::Forward {
            return Ok(());
        }
        self.skip(|cursor| cursor.skip_down(hidden))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.step(C::next),
            Direction::Backward => self.turn(Direction::Forward, |c, key| c.seek(key), C::next),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match self.direction {
            Direction::Backward => self.step(C::prev),
            Direction::Forward => {
                self.turn(Direction::Backward, |c, key| c.seek_before(key), C::prev)
            }
        }
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        if self.positioned == 0 {
            return None;
        }
        self.current().key()
    }

    #[inline]
    fn is_positioned(&self) -> bool {
        self.positioned > 0
    }

    #[inline]
    fn is_older_version(&self) -> bool {
        self.repeats
    }

    #[inline]
    fn is_newest_version(&mut self) -> bool {
        // After forward moves, the previous entry may belong to any cursor.
        self.direction == Direction::Backward
            && (self.positioned == 1 || !self.is_tied())
            && self.cursors[self.winner].is_newest_version()
    }

    fn value(&self) -> Bytes {
        self.current().value()
    }

    #[inline]
    fn value_ref(&self) -> &[u8] {
        self.current().value_ref()
    }

    fn note_tombstone(&mut self) {
        self.cursors[self.winner].note_tombstone();
    }

    fn blob(&self) -> Result<Blob> {
        self.current().blob()
    }

    fn path(&self) -> PathBuf {
        self.current().path()
    }
}
