//! Merge of sorted sources.
//!
//! A tree of losers: each inner node has the loser of its match, and the overall winner has the
//! current entry. After a step, it plays against the losers on its path to the root:
//! `log2(sources)` comparisons. Most are decided by eight bytes of each key that are kept side by
//! side. With one source left there are no matches.
//!
//! Source: Knuth, "The Art of Computer Programming", volume 3, section 5.4.1.

use std::{cmp::Ordering, mem, path::PathBuf};

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer, packed_keys::head};

use super::{
    cursor::{Cursor, SEEK_STEPS},
    range_tombstone_sources::HiddenRange,
};
use crate::Result;

/// The entries of several cursors in one order.
///
/// No two cursors have the same internal key: a sequence number belongs to one write, and a write
/// is in one source of a read view. A change of direction steps every other source once, since each
/// is next to the current entry; unpositioned ones are searched again.
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

/// The current key of a cursor, in short.
#[derive(Debug, Clone, Copy, Default)]
struct Player {
    is_positioned: bool,
    /// The first bytes behind the common prefix.
    head: u64,
}

/// The loser of a match.
#[derive(Debug, Clone, Copy, Default)]
struct Loser {
    cursor: usize,
    /// The winner has the same user key.
    is_same_key: bool,
}

/// Direction of the last move. The other cursors are behind the current entry, or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<C: Cursor> MergeCursor<C> {
    /// Creates an unpositioned merge of `cursors`, and moves none. All their user keys have the
    /// first `common_prefix_bytes` in common.
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

    /// Returns whether any cursor read from a file for the last search, or since.
    fn reads(&self) -> bool {
        self.cursors.iter().any(C::has_missed_cache)
    }

    /// Moves every cursor with `go`. From the first one that reads from a file on, and if `reads`
    /// is set, `announce` prefetches for those behind it, so that their reads are in flight
    /// together. With everything in memory nothing is searched twice.
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

    /// Plays the whole tournament.
    fn play_all(&mut self) {
        self.repeats = false;
        self.positioned = 0;
        for index in 0..self.cursors.len() {
            self.note_key(index);
            self.positioned += usize::from(self.players[index].is_positioned);
        }
        self.winner = match (self.positioned, self.cursors.len()) {
            (0, _) | (_, 1) => 0,
            (1, _) => self.players.iter().position(|player| player.is_positioned).unwrap_or(0),
            _ => self.play_below(1),
        };
    }

    /// Plays the matches of `node` and below. Returns the winner.
    fn play_below(&mut self, node: usize) -> usize {
        if let Some(cursor) = node.checked_sub(self.cursors.len()) {
            return cursor;
        }
        let (left, right) = (self.play_below(2 * node), self.play_below(2 * node + 1));
        let (left_wins, is_same_key) = self.play(left, right);
        let (winner, cursor) = if left_wins { (left, right) } else { (right, left) };
        self.losers[node] = Loser { cursor, is_same_key };
        winner
    }

    /// Returns whether cursor `left` wins against `right`, and whether both have the same user key.
    #[inline]
    fn play(&self, left: usize, right: usize) -> (bool, bool) {
        let (Player { head: a, is_positioned }, Player { head: b, is_positioned: has_right }) =
            (self.players[left], self.players[right]);
        if !is_positioned || !has_right {
            return (is_positioned, false);
        }
        let order = if a != b { a.cmp(&b) } else { self.compare(left, right) };
        let (order, is_same_key) = match order {
            Ordering::Equal => (self.compare_versions(left, right), true),
            order => (order, false),
        };
        match self.direction {
            Direction::Forward => (order == Ordering::Less, is_same_key),
            Direction::Backward => (order == Ordering::Greater, is_same_key),
        }
    }

    fn compare(&self, left: usize, right: usize) -> Ordering {
        let key = |cursor: usize| self.cursors[cursor].key().map(|key| key.user_key);
        key(left).cmp(&key(right))
    }

    /// Compares two versions of one user key: the newer one is first.
    fn compare_versions(&self, left: usize, right: usize) -> Ordering {
        let trailer = |cursor: usize| self.cursors[cursor].key().map(|key| key.trailer);
        trailer(right).cmp(&trailer(left))
    }

    /// Keeps what is kept of a cursor's key.
    #[inline]
    fn note_key(&mut self, index: usize) {
        let key = self.cursors[index].key();
        let is_positioned = key.is_some();
        let tail = key.and_then(|key| key.user_key.get(self.common_prefix_bytes..));
        self.players[index] = Player { is_positioned, head: head(tail.unwrap_or_default()) };
    }

    /// Steps the current cursor with `step`, and finds the new winner.
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

    /// Plays the matches of the last winner, which was stepped.
    fn play_again(&mut self, stepped: usize) {
        debug_assert_eq!(stepped, self.winner);
        debug_assert!(1 < self.positioned && self.positioned <= self.cursors.len());
        self.note_key(stepped);
        self.positioned -= usize::from(!self.players[stepped].is_positioned);
        // The second best lost on this path: if any loser here had the key just left, it has too.
        let mut others_repeat = false;
        let mut winner = stepped;
        let mut node = (stepped + self.cursors.len()) / 2;
        while node > 0 {
            let Loser { cursor: loser, is_same_key } = self.losers[node];
            others_repeat |= is_same_key;
            let (winner_wins, is_same_key) = self.play(winner, loser);
            let cursor = if winner_wins { loser } else { mem::replace(&mut winner, loser) };
            self.losers[node] = Loser { cursor, is_same_key };
            node /= 2;
        }
        self.winner = winner;
        self.repeats = match self.direction {
            Direction::Backward => false,
            Direction::Forward if winner != stepped => others_repeat,
            Direction::Forward => {
                self.players[stepped].is_positioned && self.cursors[stepped].is_older_version()
            }
        };
    }

    /// Changes the direction: steps every cursor with `step`.
    ///
    /// A step moves the other cursors to the other side of the current entry. Not if one is
    /// unpositioned, or if a memtable got entries in between; then `search` does, given the current
    /// key.
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

    /// Moves each positioned cursor with `skip`, in the present direction.
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

    /// Returns whether a loser to the current cursor has its user key.
    fn is_tied(&self) -> bool {
        let mut node = (self.winner + self.cursors.len()) / 2;
        while node > 0 {
            if self.losers[node].is_same_key {
                return true;
            }
            node /= 2;
        }
        false
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
        // Forward, the entry before may be that of any cursor.
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

    fn path(&self) -> PathBuf {
        self.current().path()
    }
}
