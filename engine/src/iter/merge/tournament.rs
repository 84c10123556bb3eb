//! The tournament of the cursors of a merge.
//!
//! A tree of losers: each inner node has the loser of its match, and the overall winner has the
//! current entry. After a step, it plays against the losers on its path to the root:
//! `log2(sources)` comparisons. Most are decided by eight bytes of each key that are kept side by
//! side. With one source left there are no matches.
//!
//! Source: Knuth, "The Art of Computer Programming", volume 3, section 5.4.1.

use std::{cmp::Ordering, mem};

use sievedb_format::packed_keys::head;

use super::{Direction, MergeCursor};
use crate::iter::cursor::Cursor;

/// The current key of a cursor, abbreviated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Player {
    pub(super) is_positioned: bool,
    /// The first bytes after the common prefix.
    pub(super) head: u64,
}

/// The loser of a match.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loser {
    pub(super) cursor: usize,
    /// The winner has the same user key.
    pub(super) is_same_key: bool,
}

impl<C: Cursor> MergeCursor<C> {
    /// Plays the whole tournament.
    pub(super) fn play_all(&mut self) {
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

    /// Returns two flags: cursor `left` wins against `right`, and both have the same user key.
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

    /// Stores the abbreviated key of a cursor.
    #[inline]
    fn note_key(&mut self, index: usize) {
        let key = self.cursors[index].key();
        let is_positioned = key.is_some();
        let tail = key.and_then(|key| key.user_key.get(self.common_prefix_bytes..));
        self.players[index] = Player { is_positioned, head: head(tail.unwrap_or_default()) };
    }

    /// Plays the matches of the last winner after a step.
    pub(super) fn play_again(&mut self, stepped: usize) {
        debug_assert_eq!(stepped, self.winner);
        debug_assert!(1 < self.positioned && self.positioned <= self.cursors.len());
        self.note_key(stepped);
        self.positioned -= usize::from(!self.players[stepped].is_positioned);
        // The second best lost on this path. If any loser here had the key that was left, it has
        // that key too.
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

    /// Returns `true` if a loser to the current cursor has its user key.
    pub(super) fn is_tied(&self) -> bool {
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
