//! Cursor over the entries that a reader sees.
//!
//! | module       | content                                |
//! |--------------|----------------------------------------|
//! | [`forward`]  | searches and steps to larger keys      |
//! | [`backward`] | searches and steps to smaller keys     |
//! | [`fold`]     | values computed from merge operands    |

mod backward;
mod fold;
mod forward;

use std::{mem, ops::Bound};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, Trailer};

use super::{
    cursor::Cursor,
    last_key::LastKey,
    range_tombstone_sources::{HiddenRange, RangeTombstoneSources},
};
use crate::{
    Error, Result,
    fold::OperatorCell,
    resolve::{self, ReadPoint, Refused, Seen},
    table::blobs::Blob,
};

/// Number of steps over versions of one key before a search replaces them. A step takes tens of
/// nanoseconds, a search in a store of ten sources some microseconds.
const STEPS_MAX: u32 = 8;

/// Cursor over the entries that a reader at one point in time sees, one per user key. The clock of
/// the reader is fixed if any entry expires.
///
/// Finds the newest version of each key at or below the reader's sequence number. Skips the key if
/// there is none or if it has no value by [`resolve`]. Every search and step takes a limit, so that
/// it does not read keys that are hidden or out of range.
///
/// Like a [`Cursor`], it is unpositioned at first, beyond either end, and after an error.
#[derive(Debug)]
pub(crate) struct VisibleCursor<C> {
    cursor: C,
    at: ReadPoint,
    range_tombstones: RangeTombstoneSources,
    operator: OperatorCell,
    /// Values are not read: an operand suffices for a key.
    keys_only: bool,
    /// The last hidden range found; initially the default.
    hidden: HiddenRange,
    /// `hidden` was found for the current key, and the cursor has not skipped it.
    may_skip: bool,
    state: State,
    /// In states `Forward` and `Backward`, the length of the bytes before the current value.
    prefix_bytes: usize,
    /// In states `Passed` and `Folded` the current key; else the key of a search.
    user_key: Vec<u8>,
    /// In states `Passed` and `Folded` the current value; one from a blob file in all states.
    value: Bytes,
    in_blob_file: InBlobFile,
}

/// Location of the current value: in a blob file or not.
#[derive(Debug)]
enum InBlobFile {
    No,
    /// The entry under `cursor` refers to the value.
    Current,
    /// The passed entry refers to the value, or the entry is damaged.
    Passed(Result<Blob>),
    /// The value was loaded into `value`.
    Loaded,
}

/// Position of the current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unpositioned,
    /// Under `cursor`, which moved forward to it.
    Forward,
    /// Under `cursor`, which moved backward to it. The previous entry is known to have another key.
    Backward,
    /// In `user_key` and `value`; `cursor` has passed the entry. Backward, the oldest version of a
    /// key is first. So `cursor` must pass a version to identify it as the newest, unless the
    /// source reports that.
    Passed,
    /// In `user_key` and `value`, which was computed from merge operands; `cursor` has moved
    /// forward over them.
    Folded,
}

impl<C: Cursor> VisibleCursor<C> {
    /// Creates an unpositioned cursor over the entries in `cursor` visible at `at`. `operator` is
    /// the merge operator of the keyspace.
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
            keys_only: false,
            hidden: HiddenRange::default(),
            may_skip: false,
            state: State::Unpositioned,
            prefix_bytes: 0,
            user_key,
            value,
            in_blob_file: InBlobFile::No,
        }
    }

    /// Computes no values from merge operands from now on. The caller reads no value.
    pub(crate) fn set_keys_only(&mut self) {
        self.keys_only = true;
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

    /// Moves to the previous entry, if it is after `start`. Only when positioned.
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

    /// Returns `true` if there is a current entry.
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
            State::Forward | State::Backward => match self.in_blob_file {
                InBlobFile::No => self.present_value(),
                _ => self.loaded().clone(),
            },
            State::Passed | State::Folded => self.value.clone(),
        }
    }

    /// Returns a reference to the current value. Only when positioned.
    #[inline]
    pub(crate) fn value_ref(&self) -> &[u8] {
        match self.state {
            State::Unpositioned => unreachable!("only a positioned cursor is read"),
            State::Forward | State::Backward => match self.in_blob_file {
                InBlobFile::No => &self.cursor.value_ref()[self.prefix_bytes..],
                _ => self.loaded(),
            },
            State::Passed | State::Folded => &self.value,
        }
    }

    /// Reads the current value if it is in a blob file. Must precede [`value`](Self::value) and
    /// [`value_ref`](Self::value_ref).
    ///
    /// # Errors
    ///
    /// Errors of reading. The entry stays current.
    #[inline]
    pub(crate) fn load_value(&mut self) -> Result<()> {
        match self.in_blob_file {
            InBlobFile::No | InBlobFile::Loaded => Ok(()),
            _ => self.read_blob(),
        }
    }

    #[cold]
    fn read_blob(&mut self) -> Result<()> {
        self.value = match &self.in_blob_file {
            InBlobFile::Passed(blob) => blob.clone()?.read()?,
            _ => self.cursor.blob()?.read()?,
        };
        self.in_blob_file = InBlobFile::Loaded;
        Ok(())
    }

    /// Returns a value that was loaded from a blob file.
    fn loaded(&self) -> &Bytes {
        debug_assert!(matches!(self.in_blob_file, InBlobFile::Loaded), "the value was not loaded");
        &self.value
    }

    /// Returns `true` if the current key equals the limit, so that it is the last, without a read.
    #[inline]
    fn is_last(&self, limit: Bound<&[u8]>) -> bool {
        matches!(limit, Bound::Included(last) if self.key() == Some(last))
    }

    /// Returns the value of the version under the cursor, which was resolved last.
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

    /// Returns what the reader sees of the version under the cursor, with this trailer. The reader
    /// is not older than the version.
    #[inline(always)]
    fn seen(&mut self, trailer: Trailer) -> Result<Seen> {
        debug_assert!(trailer.sequence() <= self.at.sequence, "the version is invisible");
        // The usual case.
        if resolve::is_lasting_value(trailer) && self.range_tombstones.is_empty() {
            self.prefix_bytes = 0;
            self.in_blob_file = InBlobFile::No;
            return Ok(Seen::Value);
        }
        self.seen_if_not_hidden(trailer)
    }

    /// As [`seen`](Self::seen), for versions of all kinds. Not inlined: most scans need no call.
    #[inline(never)]
    fn seen_if_not_hidden(&mut self, trailer: Trailer) -> Result<Seen> {
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
        self.in_blob_file = match resolve::is_in_blob_file(trailer) {
            true => InBlobFile::Current,
            false => InBlobFile::No,
        };
        Ok(if seen == Seen::Operand && self.keys_only { Seen::Value } else { seen })
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
