//! Searches and steps backward.

use std::{cmp::Ordering, mem, ops::Bound};

use sievedb_format::{InternalKey, Trailer};

use super::{InBlobFile, STEPS_MAX, State, VisibleCursor, newest};
use crate::{
    Result,
    iter::{
        bounds::is_above,
        cursor::{Cursor, out_of_order},
    },
    resolve::{self, Seen},
};

impl<C: Cursor> VisibleCursor<C> {
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

    /// Moves to the previous entry from one that was found forward, or passed.
    pub(super) fn turn_down(&mut self, state: State, start: Bound<&[u8]>) -> Result<()> {
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

    /// Moves backward from the entry under `cursor`, inclusive, to the next visible entry after
    /// `start`. Requires that no version of its key was passed before.
    #[inline]
    pub(super) fn find_down(&mut self, start: Bound<&[u8]>) -> Result<()> {
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

    /// Moves backward over the versions of `user_key` that the reader may see, and keeps the value
    /// of the newest. Returns its content.
    fn take_newest(&mut self) -> Result<Seen> {
        let mut newest = Ok(Seen::Nothing);
        let mut steps = 0;
        while let Some(key) = self.cursor.key()
            && key.user_key == self.user_key
            && key.trailer.sequence() <= self.at.sequence
        {
            // An unsupported kind is harmless below a newer version, so its error is deferred.
            let trailer = key.trailer;
            newest = self.seen(trailer);
            match newest {
                Ok(Seen::Value) if resolve::is_in_blob_file(trailer) => {
                    self.in_blob_file = InBlobFile::Passed(self.cursor.blob());
                }
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
}
