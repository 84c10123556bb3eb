//! Which version of a key a reader sees.

use std::{cmp::Ordering, mem, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb_format::{InternalKey, RangeTombstoneSource, SEQUENCE_MAX, SequenceNumber, Trailer};

use super::{
    bounds::{is_above, is_below},
    cursor::{Cursor, has_value, out_of_order},
};
use crate::Result;

/// Steps over versions of one key before a search takes their place. A step costs tens of
/// nanoseconds and a search in a store of ten sources some microseconds.
const STEPS_MAX: u32 = 8;

/// The range tombstones of a read view, from sources that have any.
///
/// A reader's sequence number is fixed before it asks, so a source that is empty when the list is
/// made cannot get a range tombstone that the reader sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeTombstoneSources(Vec<Arc<dyn RangeTombstoneSource>>);

impl RangeTombstoneSources {
    /// Those of `sources` that are not empty.
    pub(crate) fn new(sources: impl IntoIterator<Item = Arc<dyn RangeTombstoneSource>>) -> Self {
        Self(sources.into_iter().filter(|source| !source.is_empty()).collect())
    }

    /// Whether a range tombstone that a reader at `at` sees is newer than the version of `user_key`
    /// written at `sequence`.
    fn cover(&self, user_key: &[u8], sequence: SequenceNumber, at: SequenceNumber) -> bool {
        let newest = |source: &Arc<dyn RangeTombstoneSource>| source.newest_cover(user_key, at);
        self.0.iter().filter_map(newest).any(|cover| cover > sequence)
    }
}

/// The entries that a reader at one sequence number sees, one per user key.
///
/// Of the versions of a key the newest at or below that number counts; the key is skipped if there is
/// none, if that one is a tombstone, or if a range tombstone covers it. Every search and step takes
/// the bound where it ends, so that it does not read on over keys that are hidden or out of range.
///
/// Like a [`Cursor`] it is unpositioned at first, behind either end and after an error.
#[derive(Debug)]
pub(crate) struct VisibleCursor<C> {
    cursor: C,
    /// The reader's place in the history.
    sequence: SequenceNumber,
    range_tombstones: RangeTombstoneSources,
    state: State,
    /// The key whose versions were looked at last. In state `Backward` the current key.
    user_key: Vec<u8>,
    /// In state `Backward` the current value.
    value: Bytes,
}

/// Where the current entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nowhere.
    Unpositioned,
    /// Under `cursor`.
    Forward,
    /// In `user_key` and `value`. Versions of a key are met oldest first on the way back, so
    /// `cursor` has to pass the current one to know that it is the newest.
    Backward,
}

/// How much is known of the versions of the key looked at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// There is no such key.
    Nowhere,
    /// Those met so far are too new for the reader.
    TooNew,
    /// Its fate is known: the others do not matter.
    Decided,
}

impl<C: Cursor> VisibleCursor<C> {
    /// An unpositioned cursor over what a reader at `sequence` sees in `cursor`.
    pub(crate) fn new(
        cursor: C,
        sequence: SequenceNumber,
        range_tombstones: RangeTombstoneSources,
    ) -> Self {
        let (user_key, value) = (Vec::new(), Bytes::new());
        let state = State::Unpositioned;
        Self { cursor, sequence, range_tombstones, state, user_key, value }
    }

    /// Moves to the first entry between `start` and `end`.
    ///
    /// # Errors
    ///
    /// This and every other move: what the sources fail with, and [`Corrupt`](crate::Error::Corrupt)
    /// if an entry is out of order or of a kind that cannot be applied.
    pub(crate) fn seek(&mut self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<()> {
        self.state = State::Unpositioned;
        match start {
            Bound::Included(key) => self.cursor.seek(InternalKey::seek(key, self.sequence))?,
            Bound::Excluded(key) => self.cursor.seek(InternalKey::new(key, Trailer::OLDEST))?,
            Bound::Unbounded => self.cursor.seek_to_first()?,
        }
        self.find_up(Looked::Nowhere, end)
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
        self.find_down(Looked::Nowhere, start)
    }

    /// Moves to the next entry, if it is before `end`. Only when positioned.
    pub(crate) fn next(&mut self, end: Bound<&[u8]>) -> Result<()> {
        let state = self.leave();
        if end == Bound::Included(self.user_key.as_slice()) {
            return Ok(());
        }
        match state {
            State::Unpositioned => unreachable!("only a positioned cursor is stepped"),
            State::Forward => self.cursor.next()?,
            State::Backward => {
                self.cursor.seek(InternalKey::new(&self.user_key, Trailer::OLDEST))?;
            }
        }
        self.find_up(Looked::Decided, end)
    }

    /// Moves to the previous entry, if it is behind `start`. Only when positioned.
    pub(crate) fn prev(&mut self, start: Bound<&[u8]>) -> Result<()> {
        let state = self.leave();
        if start == Bound::Included(self.user_key.as_slice()) {
            return Ok(());
        }
        match state {
            State::Unpositioned => unreachable!("only a positioned cursor is stepped"),
            State::Forward => self.cursor.seek_before(newest(&self.user_key))?,
            State::Backward => {}
        }
        self.find_down(Looked::Decided, start)
    }

    /// The current user key; `None` when unpositioned.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.state {
            State::Unpositioned => None,
            State::Forward => self.cursor.key().map(|key| key.user_key),
            State::Backward => Some(&self.user_key),
        }
    }

    /// The current value, without a copy. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        match self.state {
            State::Unpositioned => unreachable!("only a positioned cursor is read"),
            State::Forward => self.cursor.value(),
            State::Backward => self.value.clone(),
        }
    }

    /// Makes the current key the one looked at last, and the cursor unpositioned. Returns where the
    /// current entry was.
    fn leave(&mut self) -> State {
        let state = mem::replace(&mut self.state, State::Unpositioned);
        if state == State::Forward {
            let key = self.cursor.key().expect("the current entry is under the cursor");
            copy(key.user_key, &mut self.user_key);
        }
        state
    }

    /// Goes up from the entry under `cursor`, it included, to the next visible one before `end`.
    /// `looked` tells about `user_key`.
    fn find_up(&mut self, mut looked: Looked, end: Bound<&[u8]>) -> Result<()> {
        let mut steps = 0;
        while let Some(key) = self.cursor.key() {
            let repeated = looked != Looked::Nowhere
                && match key.user_key.cmp(&self.user_key) {
                    Ordering::Less => return Err(out_of_order(&self.cursor)),
                    Ordering::Equal => true,
                    Ordering::Greater => false,
                };
            if !repeated && !is_below(key.user_key, end) {
                break;
            }
            let too_new = key.trailer.sequence() > self.sequence;
            if repeated && (too_new || looked == Looked::Decided) {
                steps += 1;
                if steps < STEPS_MAX {
                    self.cursor.next()?;
                } else {
                    steps = 0;
                    self.cursor.seek(match looked {
                        Looked::Decided => InternalKey::new(&self.user_key, Trailer::OLDEST),
                        _ => InternalKey::seek(&self.user_key, self.sequence),
                    })?;
                }
                continue;
            }
            steps = 0;
            if !too_new
                && let Some(sequence) = self.put_sequence(key)?
                && !self.is_covered(key.user_key, sequence)
            {
                self.state = State::Forward;
                break;
            }
            looked = if too_new { Looked::TooNew } else { Looked::Decided };
            copy(key.user_key, &mut self.user_key);
            self.cursor.next()?;
        }
        Ok(())
    }

    /// Goes down from the entry under `cursor`, it included, to the next visible one behind `start`.
    /// `looked` tells about `user_key`.
    fn find_down(&mut self, mut looked: Looked, start: Bound<&[u8]>) -> Result<()> {
        let mut steps = 0;
        while let Some(key) = self.cursor.key() {
            if looked == Looked::Decided {
                match key.user_key.cmp(&self.user_key) {
                    Ordering::Less => {}
                    Ordering::Equal => {
                        // Too new: what the reader could see was met before.
                        steps += 1;
                        if steps < STEPS_MAX {
                            self.cursor.prev()?;
                        } else {
                            steps = 0;
                            self.cursor.seek_before(newest(&self.user_key))?;
                        }
                        continue;
                    }
                    Ordering::Greater => return Err(out_of_order(&self.cursor)),
                }
            }
            steps = 0;
            if !is_above(key.user_key, start) {
                break;
            }
            copy(key.user_key, &mut self.user_key);
            looked = Looked::Decided;
            if self.take_newest()? {
                self.state = State::Backward;
                break;
            }
        }
        Ok(())
    }

    /// Goes down over the versions of `user_key` that the reader may see, and keeps the value of the
    /// newest. Returns whether it is visible.
    fn take_newest(&mut self) -> Result<bool> {
        let mut newest = Ok(None);
        let mut steps = 0;
        while let Some(key) = self.cursor.key()
            && key.user_key == self.user_key
            && key.trailer.sequence() <= self.sequence
        {
            // A kind that cannot be applied does no harm below a newer version, so its error waits.
            newest = self.put_sequence(key);
            self.value = self.cursor.value();
            steps += 1;
            if steps == STEPS_MAX {
                self.cursor.seek(InternalKey::seek(&self.user_key, self.sequence))?;
            } else {
                self.cursor.prev()?;
            }
        }
        Ok(newest?.is_some_and(|sequence| !self.is_covered(&self.user_key, sequence)))
    }

    /// The sequence number of the version at `key`, under `cursor`, if it gives its key a value.
    fn put_sequence(&self, key: InternalKey<'_>) -> Result<Option<SequenceNumber>> {
        let put = has_value(key.trailer.kind(), || self.cursor.path())?;
        Ok(put.then_some(key.trailer.sequence()))
    }

    /// Whether a range tombstone takes away the version of `user_key` written at `sequence`.
    fn is_covered(&self, user_key: &[u8], sequence: SequenceNumber) -> bool {
        self.range_tombstones.cover(user_key, sequence, self.sequence)
    }
}

/// Before every version of `user_key`.
fn newest(user_key: &[u8]) -> InternalKey<'_> {
    InternalKey::seek(user_key, SEQUENCE_MAX)
}

/// Overwrites `copy` with `key`, in the memory it has.
fn copy(key: &[u8], copy: &mut Vec<u8>) {
    copy.clear();
    copy.extend_from_slice(key);
}
