//! Searches and steps forward.

use std::{cmp::Ordering, ops::Bound};

use sievedb_format::{InternalKey, Trailer};

use super::{STEPS_MAX, State, VisibleCursor};
use crate::{
    Result,
    iter::{
        bounds::is_below,
        cursor::{Cursor, out_of_order},
        last_key::LastKey,
    },
    resolve::Seen,
};

impl<C: Cursor> VisibleCursor<C> {
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

    /// Moves to the next entry from one that was found backward, or folded from operands.
    pub(super) fn turn_up(&mut self, state: State, end: Bound<&[u8]>) -> Result<()> {
        if state == State::Backward {
            self.copy_key();
        }
        // The passed entry may have been the last one of its source.
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

    /// Moves forward from the entry under `cursor`, inclusive, to the next visible entry before
    /// `end`. `last_key` is the key before a step.
    #[inline]
    pub(super) fn find_up(&mut self, mut last_key: LastKey, end: Bound<&[u8]>) -> Result<()> {
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

    /// Searches for the visible version of a key, starting at one of its versions, or for the next
    /// key if the key is resolved.
    #[cold]
    fn pass_versions(&mut self, last_key: LastKey) -> Result<()> {
        self.copy_key();
        let is_resolved = last_key == LastKey::Resolved;
        self.cursor.seek(match is_resolved {
            true => InternalKey::new(&self.user_key, Trailer::OLDEST),
            false => InternalKey::seek(&self.user_key, self.at.sequence),
        })?;
        // In an unordered table, the search might lead back forever.
        let found = self.cursor.key().map(|key| key.user_key.cmp(&self.user_key));
        match found {
            Some(Ordering::Less) => Err(out_of_order(&self.cursor)),
            Some(Ordering::Equal) if is_resolved => Err(out_of_order(&self.cursor)),
            _ => Ok(()),
        }
    }

    /// Moves forward over the hidden range around the version under the cursor, with this trailer,
    /// as far as sources have no newer versions. Returns `true` if the cursor left the version.
    #[cold]
    fn skip_up(&mut self, trailer: Trailer) -> Result<bool> {
        self.may_skip = false;
        self.copy_key();
        self.cursor.skip_up(&self.hidden)?;
        let left = InternalKey::new(&self.user_key, trailer);
        debug_assert!(self.cursor.key().is_none_or(|key| key >= left), "a skip led back");
        Ok(self.cursor.key() != Some(left))
    }
}
