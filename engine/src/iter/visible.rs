//! Cursor over the entries that a reader sees.

use std::{cmp::Ordering, mem, ops::Bound};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey, SEQUENCE_MAX, Trailer};

use super::{
    bounds::{is_above, is_below},
    cursor::{Cursor, out_of_order},
    last_key::LastKey,
    range_tombstone_sources::{HiddenRange, RangeTombstoneSources},
};
use crate::{
    Error, Result,
    fold::{OPERANDS_FREE, OperatorCell},
    resolve::{self, ReadPoint, Refused, Seen},
};

/// Steps over versions of one key before a search replaces them. A step takes tens of nanoseconds,
/// a search in a store of ten sources some microseconds.
const STEPS_MAX: u32 = 8;

/// Cursor over the entries that a reader at one point in time sees, one per user key. The clock of
/// the reader is fixed if any entry expires.
///
/// Finds the newest version of each key at or below that number, and skips the key if there is none
/// or if it has no value by [`resolve`]. Every search and step takes a limit, so that it does not
/// read on over keys that are hidden or out of range.
///
/// Like a [`Cursor`] it is unpositioned at first, behind either end and after an error.
#[derive(Debug)]
pub(crate) struct VisibleCursor<C> {
    cursor: C,
    at: ReadPoint,
    range_tombstones: RangeTombstoneSources,
    operator: OperatorCell,
    /// The last hidden range that was found; at first the default.
    hidden: HiddenRange,
    /// `hidden` was found for the present key, and the cursor has not skipped it.
    may_skip: bool,
    state: State,
    /// In states `Forward` and `Backward` the length of what precedes the current value.
    prefix_bytes: usize,
    /// In states `Passed` and `Folded` the current key; else the key of a search.
    user_key: Vec<u8>,
    /// In states `Passed` and `Folded` the current value.
    value: Bytes,
}

/// Position of the current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unpositioned,
    /// Under `cursor`, which moved forward to it.
    Forward,
    /// Under `cursor`, which moved backward to it. The entry before is known to have another key.
    Backward,
    /// In `user_key` and `value`; `cursor` has passed it. Backward, the oldest version of a key is
    /// first. So `cursor` must pass one to identify it as the newest, unless the source reports
    /// that.
    Passed,
    /// In `user_key` and `value`, which merge operands made; `cursor` has moved forward over them.
    Folded,
}

impl<C: Cursor> VisibleCursor<C> {
    /// Creates an unpositioned cursor over the entries in `cursor` visible at `at`.
    /// `operator` is that of the keyspace.
    pub(crate) fn new(
        cursor: C,
        at: ReadPoint,
        range_tombstones: RangeTombstoneSources,
        operator: OperatorCell,
    ) -> Self {
        let (user_key, value) = (Vec::new(), Bytes::new());
        Self {
            cursor,
            at,
            range_tombstones,
            operator,
            hidden: HiddenRange::default(),
            may_skip: false,
            state: State::Unpositioned,
            prefix_bytes: 0,
            user_key,
            value,
        }
    }

    /// Moves to the first entry between `start` and `end`.
    ///
    /// # Errors
    ///
    /// This and every other move: errors of the sources, and [`Corrupt`](crate::Error::Corrupt) if
    /// an entry is out of order or of an unsupported kind.
    pub(crate) fn seek(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<()> {
        self.state = State::Unpositioned;
        match start {
            Bound::Included(key) => self.cursor.seek(InternalKey::seek(key, self.at.sequence))?,
            Bound::Excluded(key) => self.cursor.seek(InternalKey::new(key, Trailer::OLDEST))?,
            Bound::Unbounded => self.cursor.seek_to_first()?,
        }
        self.find_up(LastKey::None, end)
    }

    /// Moves to the last entry between `start` and `end`.
    pub(crate) fn seek_back(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<()> {
        self.state = State::Unpositioned;
        match end {
            Bound::Included(key) => {
                self.cursor.seek_before(InternalKey::new(key, Trailer::OLDEST))?;
            }
            Bound::Excluded(key) => self.cursor.seek_before(newest(key))?,
            Bound::Unbounded => self.cursor.seek_to_last()?,
        }
        self.find_down(start)
    }

    /// Moves to the next entry, if it is before `end`. Only when positioned.
    #[inline]
    pub(crate) fn next(&mut self, end: Bound<&[u8]>) -> Result<()> {
        if self.is_last(end) {
            self.state = State::Unpositioned;
            return Ok(());
        }
        match mem::replace(&mut self.state, State::Unpositioned) {
            State::Forward => {
                self.cursor.next()?;
                self.find_up(LastKey::Resolved, end)
            }
            state => self.turn_up(state, end),
        }
    }

    /// Moves to the previous entry, if it is behind `start`. Only when positioned.
    #[inline]
    pub(crate) fn prev(&mut self, start: Bound<&[u8]>) -> Result<()> {
        if self.is_last(start) {
            self.state = State::Unpositioned;
            return Ok(());
        }
        match mem::replace(&mut self.state, State::Unpositioned) {
            State::Backward => {
                self.cursor.prev()?;
                self.find_down(start)
            }
            state => self.turn_down(state, start),
        }
    }

    /// Returns whether there is a current entry.
    #[inline]
    pub(crate) fn is_positioned(&self) -> bool {
        self.state != State::Unpositioned
    }

    /// Returns the current user key; `None` when unpositioned.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.state {
            State::Unpositioned => None,
            State::Forward | State::Backward => self.cursor.key().map(|key| key.user_key),
            State::Passed | State::Folded => Some(&self.user_key),
        }
    }

    /// Returns the current value, without a copy. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        match self.state {
            State::Unpositioned => unreachable!("only a positioned cursor is read"),
            State::Forward | State::Backward => self.present_value(),
            State::Passed | State::Folded => self.value.clone(),
        }
    }

    /// Returns the current value where it lies. Only when positioned.
    #[inline]
    pub(crate) fn value_ref(&self) -> &[u8] {
        match self.state {
            State::Unpositioned => unreachable!("only a positioned cursor is read"),
            State::Forward | State::Backward => &self.cursor.value_ref()[self.prefix_bytes..],
            State::Passed | State::Folded => &self.value,
        }
    }

    /// Returns whether the current key is the limit itself: it is the last, without a read.
    #[inline]
    fn is_last(&self, limit: Bound<&[u8]>) -> bool {
        matches!(limit, Bound::Included(last) if self.key() == Some(last))
    }

    /// Moves to the next entry from one that was found backward, or folded from operands.
    fn turn_up(&mut self, state: State, end: Bound<&[u8]>) -> Result<()> {
        if state == State::Backward {
            self.copy_key();
        }
        // The passed entry may be in a source that ended there.
        if !self.cursor.is_positioned() {
            self.cursor.seek(InternalKey::new(&self.user_key, Trailer::OLDEST))?;
            return self.find_up(LastKey::None, end);
        }
        let mut steps = 0;
        while let Some(key) = self.cursor.key()
            && key.user_key <= &*self.user_key
        {
            steps += 1;
            if steps == STEPS_MAX {
                self.cursor.seek(InternalKey::new(&self.user_key, Trailer::OLDEST))?;
                break;
            }
            self.cursor.next()?;
        }
        self.find_up(LastKey::None, end)
    }

    /// Moves to the previous entry from one that was found forward, or passed.
    fn turn_down(&mut self, state: State, start: Bound<&[u8]>) -> Result<()> {
        match state {
            State::Forward => {
                self.copy_key();
                self.cursor.prev()?;
            }
            State::Passed => {}
            State::Folded => self.cursor.seek_before(newest(&self.user_key))?,
            _ => unreachable!("only a positioned cursor is stepped"),
        }
        self.pass_too_new()?;
        self.find_down(start)
    }

    /// Moves backward over the remaining versions of `user_key`, which are too new for the reader.
    fn pass_too_new(&mut self) -> Result<()> {
        let mut steps = 0;
        while let Some(key) = self.cursor.key() {
            match key.user_key.cmp(&self.user_key) {
                Ordering::Less => break,
                Ordering::Equal => {}
                Ordering::Greater => return Err(out_of_order(&self.cursor)),
            }
            steps += 1;
            if steps == STEPS_MAX {
                return self.cursor.seek_before(newest(&self.user_key));
            }
            self.cursor.prev()?;
        }
        Ok(())
    }

    /// Moves forward from the entry under `cursor`, inclusive, to the next visible one before
    /// `end`. `last_key` is the key that a step has just left.
    #[inline]
    fn find_up(&mut self, mut last_key: LastKey, end: Bound<&[u8]>) -> Result<()> {
        let mut steps = 0;
        while let Some(key) = self.cursor.key() {
            let repeated = last_key != LastKey::None && self.cursor.is_older_version();
            if !repeated && !is_below(key.user_key, end) {
                break;
            }
            let too_new = key.trailer.sequence() > self.at.sequence;
            if repeated && (too_new || last_key == LastKey::Resolved) {
                steps += 1;
                if steps < STEPS_MAX {
                    self.cursor.next()?;
                } else {
                    steps = 0;
                    self.pass_versions(last_key)?;
                    last_key = LastKey::None;
                }
                continue;
            }
            steps = 0;
            if !too_new {
                let trailer = key.trailer;
                match self.seen(trailer)? {
                    Seen::Value => {
                        self.state = State::Forward;
                        break;
                    }
                    Seen::Operand => {
                        self.copy_key();
                        return self.fold();
                    }
                    Seen::Nothing => self.note_tombstone(trailer),
                }
                if self.may_skip && self.skip_up(trailer)? {
                    last_key = LastKey::None;
                    continue;
                }
            }
            last_key = if too_new { LastKey::TooNew } else { LastKey::Resolved };
            self.cursor.next()?;
        }
        Ok(())
    }

    /// Searches, from one version of a key, the one that the reader sees or, if the key is
    /// resolved, the next key.
    #[cold]
    fn pass_versions(&mut self, last_key: LastKey) -> Result<()> {
        self.copy_key();
        let is_resolved = last_key == LastKey::Resolved;
        self.cursor.seek(match is_resolved {
            true => InternalKey::new(&self.user_key, Trailer::OLDEST),
            false => InternalKey::seek(&self.user_key, self.at.sequence),
        })?;
        // In a table that is out of order, the search might lead back forever.
        let found = self.cursor.key().map(|key| key.user_key.cmp(&self.user_key));
        match found {
            Some(Ordering::Less) => Err(out_of_order(&self.cursor)),
            Some(Ordering::Equal) if is_resolved => Err(out_of_order(&self.cursor)),
            _ => Ok(()),
        }
    }

    /// Moves backward from the entry under `cursor`, inclusive, to the next visible one behind
    /// `start`. No version of its key was passed before.
    #[inline]
    fn find_down(&mut self, start: Bound<&[u8]>) -> Result<()> {
        while let Some(key) = self.cursor.key() {
            if !is_above(key.user_key, start) {
                break;
            }
            let trailer = key.trailer;
            if trailer.sequence() > self.at.sequence || !self.cursor.is_newest_version() {
                self.copy_key();
                match self.take_newest()? {
                    Seen::Value => {
                        self.state = State::Passed;
                        break;
                    }
                    Seen::Operand => return self.fold_from_newest(),
                    Seen::Nothing => self.pass_too_new()?,
                }
                if mem::take(&mut self.may_skip) && self.cursor.is_positioned() {
                    self.cursor.skip_down(&self.hidden)?;
                }
                continue;
            }
            match self.seen(trailer)? {
                Seen::Value => {
                    self.state = State::Backward;
                    break;
                }
                Seen::Operand => {
                    self.copy_key();
                    return self.fold_from_newest();
                }
                Seen::Nothing => self.note_tombstone(trailer),
            }
            self.cursor.prev()?;
            if mem::take(&mut self.may_skip) && self.cursor.is_positioned() {
                self.cursor.skip_down(&self.hidden)?;
            }
        }
        Ok(())
    }

    /// Moves forward over the hidden range around the version under the cursor, with this trailer,
    /// as far as sources have no newer versions. Returns whether the cursor left the version.
    #[cold]
    fn skip_up(&mut self, trailer: Trailer) -> Result<bool> {
        self.may_skip = false;
        self.copy_key();
        self.cursor.skip_up(&self.hidden)?;
        let left = InternalKey::new(&self.user_key, trailer);
        debug_assert!(self.cursor.key().is_none_or(|key| key >= left), "a skip led back");
        Ok(self.cursor.key() != Some(left))
    }

    /// Moves backward over the versions of `user_key` that the reader may see, and keeps the value
    /// of the newest. Returns what it shows.
    fn take_newest(&mut self) -> Result<Seen> {
        let mut newest = Ok(Seen::Nothing);
        let mut steps = 0;
        while let Some(key) = self.cursor.key()
            && key.user_key == self.user_key
            && key.trailer.sequence() <= self.at.sequence
        {
            // An unsupported kind is harmless below a newer version, so its error waits.
            let trailer = key.trailer;
            newest = self.seen(trailer);
            match newest {
                Ok(Seen::Value) => self.value = self.present_value(),
                Ok(Seen::Nothing) => self.note_tombstone(trailer),
                Ok(Seen::Operand) | Err(_) => {}
            }
            steps += 1;
            if steps == STEPS_MAX {
                self.cursor.seek(InternalKey::seek(&self.user_key, self.at.sequence))?;
            } else {
                self.cursor.prev()?;
            }
        }
        newest
    }

    /// Moves to the newest visible version of `user_key`, a merge operand, and folds it.
    #[cold]
    fn fold_from_newest(&mut self) -> Result<()> {
        self.cursor.seek(InternalKey::seek(&self.user_key, self.at.sequence))?;
        match self.cursor.key() {
            Some(key) if key.user_key == self.user_key => self.fold(),
            Some(_) => Err(out_of_order(&self.cursor)),
            None => {
                let source = Corruption::Order { what: "an entry" };
                Err(Error::corrupt("a table or memtable", 0, source))
            }
        }
    }

    /// Moves forward over the merge operands of `user_key` under the cursor, up to the version that
    /// decides, and makes the value.
    #[cold]
    fn fold(&mut self) -> Result<()> {
        if self.operator.get().is_none() {
            return Err(self.refused(Refused::OPERAND));
        }
        let (mut operands, mut base) = (Vec::new(), None);
        while let Some(key) = self.cursor.key()
            && key.user_key == self.user_key
        {
            let trailer = key.trailer;
            match self.seen(trailer)? {
                Seen::Operand => {
                    operands.push(self.cursor.value());
                    if operands.len() > OPERANDS_FREE {
                        self.cursor.note_tombstone();
                    }
                }
                Seen::Value => {
                    base = Some(self.present_value());
                    break;
                }
                Seen::Nothing => break,
            }
            self.cursor.next()?;
        }
        debug_assert!(!operands.is_empty(), "an operand is under the cursor");
        let oldest_first: Vec<&[u8]> = operands.iter().rev().map(|operand| &**operand).collect();
        if let Some(folder) = self.operator.get() {
            self.value = folder.fold(&self.user_key, base.as_deref(), &oldest_first)?;
            self.state = State::Folded;
        }
        Ok(())
    }

    /// Returns the value of the version under the cursor, seen last.
    fn present_value(&self) -> Bytes {
        match self.prefix_bytes {
            0 => self.cursor.value(),
            bytes => self.cursor.value().slice(bytes..),
        }
    }

    /// Copies the key under the cursor into `user_key`.
    fn copy_key(&mut self) {
        let key = self.cursor.key().expect("the current entry is under the cursor");
        self.user_key.clear();
        self.user_key.extend_from_slice(key.user_key);
    }

    /// Returns what the version under the cursor, with this trailer, shows of its key.
    #[inline]
    fn seen(&mut self, trailer: Trailer) -> Result<Seen> {
        let Self { cursor, range_tombstones, hidden, may_skip, at, .. } = self;
        let cover = || {
            if range_tombstones.is_empty() {
                return 0;
            }
            let key = cursor.key().expect("the cursor stands at the version").user_key;
            let versions = (at.sequence, trailer.sequence());
            let (newest, is_new) = range_tombstones.find_newer(key, versions, hidden);
            *may_skip |= is_new;
            newest
        };
        let seen = at.seen(trailer, || cursor.value_ref(), cover);
        let seen = seen.map_err(|refused| self.refused(refused))?;
        self.prefix_bytes = resolve::prefix_bytes(trailer.kind());
        Ok(seen)
    }

    #[cold]
    fn refused(&self, refused: Refused) -> Error {
        Error::corrupt(self.cursor.path(), 0, refused.into())
    }

    /// Counts the version under the cursor, with this trailer, if it is a tombstone.
    #[inline]
    fn note_tombstone(&mut self, trailer: Trailer) {
        if resolve::is_tombstone(trailer) {
            self.cursor.note_tombstone();
        }
    }
}

/// Returns the position before every version of `user_key`.
fn newest(user_key: &[u8]) -> InternalKey<'_> {
    InternalKey::seek(user_key, SEQUENCE_MAX)
}
