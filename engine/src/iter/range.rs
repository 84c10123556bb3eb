//! The double-ended iterator of the caller.

use std::{fmt, iter::FusedIterator, mem, ops::Bound, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    bounds::{KeyBounds, is_above, is_below},
    cursor::Cursor,
    range_tombstone_sources::RangeTombstoneSources,
    visible::VisibleCursor,
};
use crate::{Error, Result, fold::OperatorCell, resolve::ReadPoint};

/// Keys share allocations of this many bytes. A key that the caller keeps pins one.
const KEY_BUFFER_BYTES: usize = 1 << 10;

/// A read view, which a range keeps alive.
pub(crate) trait CursorSource {
    /// A cursor over all versions in the view.
    type Cursor: Cursor;

    /// Returns an unpositioned cursor that ends at `bounds`.
    fn cursor(&self, bounds: &Arc<KeyBounds>) -> Self::Cursor;

    /// Returns the range tombstones of the view.
    fn range_tombstones(&self) -> RangeTombstoneSources;

    /// Returns the merge operator of the keyspace.
    fn operator(&self) -> OperatorCell;
}

/// The entries of a range of keys as one reader sees them, from both ends.
///
/// Each end has its own cursor, created at its first step: a scan in one direction pays for one.
/// The ends never yield an entry twice, unless a seek repositions one. After an error the range is
/// at its end, until a seek restarts it.
///
/// A step allocates nothing; an item takes memory for the key, once per [`KEY_BUFFER_BYTES`].
pub(crate) struct Range<S: CursorSource> {
    // Cursors refer to the tables and the store of the source, and are dropped before it.
    front: Side<S::Cursor>,
    back: Side<S::Cursor>,
    source: S,
    at: ReadPoint,
    bounds: Arc<KeyBounds>,
    state: State,
    /// Skips reading values.
    keys_only: bool,
    keys: BytesMut,
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Front,
    Back,
}

/// State of an end.
struct Side<C> {
    cursor: Option<VisibleCursor<C>>,
    place: Place,
    /// Key of the last seek, or of the position before the source was replaced.
    key: Vec<u8>,
}

/// Position from which an end continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At its bound of the range.
    Bound,
    /// At `key`, which is within the bounds.
    Key,
    /// After `key`, which was yielded last, before the source was replaced.
    Passed,
    /// At the entry under its cursor.
    Current,
    /// After the entry under its cursor, which was yielded last.
    Yielded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The ends met, one reached the other bound, or there was an error.
    UsedUp,
    /// A merge failed. For the caller the range is at its end.
    Failed,
    /// No keys are within the bounds, regardless of seeks.
    Empty,
}

impl<C> Side<C> {
    fn new() -> Self {
        Self { cursor: None, place: Place::Bound, key: Vec::new() }
    }
}

impl<C: Cursor> Side<C> {
    /// Returns the bound of the other end; unbounded if this end is at its bound.
    #[inline]
    fn limit(&self) -> Bound<&[u8]> {
        let key = || self.cursor.as_ref().and_then(VisibleCursor::key);
        match self.place {
            Place::Bound => Bound::Unbounded,
            Place::Key => Bound::Included(&self.key),
            Place::Passed => Bound::Excluded(&self.key),
            Place::Current => key().map_or(Bound::Unbounded, Bound::Included),
            Place::Yielded => key().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// Returns `true` if its cursor is at this key.
    fn is_at(&self, key: &[u8]) -> bool {
        matches!(self.place, Place::Current | Place::Yielded)
            && self.cursor.as_ref().and_then(VisibleCursor::key) == Some(key)
    }

    /// Drops the cursor, and keeps its position as a key.
    fn detach(&mut self) {
        let cursor = self.cursor.take();
        let place = match self.place {
            Place::Current => Place::Key,
            Place::Yielded => Place::Passed,
            kept => return self.place = kept,
        };
        let key = cursor.as_ref().and_then(VisibleCursor::key);
        debug_assert!(key.is_some(), "an open end has an entry under its cursor");
        self.key.clear();
        self.key.extend_from_slice(key.unwrap_or_default());
        self.place = place;
    }
}

impl<S: CursorSource> Range<S> {
    /// Creates a range over the entries of `source` within `bounds` visible at `at`, without
    /// reading.
    pub(crate) fn new(source: S, at: ReadPoint, bounds: KeyBounds) -> Self {
        let state = if bounds.is_empty() { State::Empty } else { State::Open };
        let (front, back) = (Side::new(), Side::new());
        let (bounds, keys) = (Arc::new(bounds), BytesMut::new());
        Self { source, at, bounds, front, back, state, keys_only: false, keys }
    }

    /// Reads no values in blob files, and computes none from merge operands.
    pub(crate) fn set_keys_only(&mut self) {
        self.keys_only = true;
        for side in [&mut self.front, &mut self.back] {
            side.cursor.iter_mut().for_each(VisibleCursor::set_keys_only);
        }
    }

    pub(crate) fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Moves `end` by one entry. Returns its cursor, at the entry, if there is one.
    #[inline]
    pub(crate) fn advance(&mut self, end: End) -> Result<Option<&VisibleCursor<S::Cursor>>> {
        if self.state != State::Open {
            return Ok(None);
        }
        match self.step(end).and_then(|found| self.load(end, found)) {
            Ok(true) => {
                let side = match end {
                    End::Front => &self.front,
                    End::Back => &self.back,
                };
                Ok(side.cursor.as_ref())
            }
            Ok(false) => {
                self.finish();
                Ok(None)
            }
            Err(Error::MergeFailed { keyspace, operator, key, source }) => {
                self.stop_at(end, &key);
                Err(Error::MergeFailed { keyspace, operator, key, source })
            }
            Err(error) => {
                self.finish();
                Err(error)
            }
        }
    }

    /// Ends the iteration, because the value of `key` cannot be computed. Keeps the positions of
    /// both ends for [`resume`](Self::resume).
    #[cold]
    fn stop_at(&mut self, end: End, key: &[u8]) {
        let (side, other) = match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        };
        *side = Side { cursor: None, place: Place::Passed, key: key.to_vec() };
        other.detach();
        self.state = State::Failed;
    }

    /// Continues after the key whose merge failed, if that was the last step.
    pub(crate) fn resume(&mut self) {
        if self.state == State::Failed {
            self.state = State::Open;
        }
    }

    /// Reads the value of the entry under the cursor of `end`, if it was `found` and is needed.
    #[inline]
    fn load(&mut self, end: End, found: bool) -> Result<bool> {
        let side = match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        };
        match &mut side.cursor {
            Some(cursor) if found && !self.keys_only => cursor.load_value().map(|()| true),
            _ => Ok(found),
        }
    }

    /// Moves the cursor of `end` by one entry. Returns `true` if there is one.
    #[inline]
    fn step(&mut self, end: End) -> Result<bool> {
        let (side, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        let limit = other.limit();
        match (side.place, &mut side.cursor) {
            (Place::Yielded, Some(cursor)) => {
                match end {
                    End::Front => cursor.next(limit)?,
                    End::Back => cursor.prev(limit)?,
                }
                Ok(cursor.is_positioned())
            }
            (Place::Current, Some(cursor)) => {
                side.place = Place::Yielded;
                Ok(cursor.key().is_some_and(|key| match end {
                    End::Front => is_below(key, limit),
                    End::Back => is_above(key, limit),
                }))
            }
            _ => self.search(end),
        }
    }

    /// Moves the cursor of `end`, created if needed, to the position from which it continues.
    fn search(&mut self, end: End) -> Result<bool> {
        let (side, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        let limit = other.limit();
        let cursor = side.cursor.get_or_insert_with(|| {
            let range_tombstones = self.source.range_tombstones();
            let operator = self.source.operator();
            let cursor = self.source.cursor(&self.bounds);
            let mut cursor = VisibleCursor::new(cursor, self.at, range_tombstones, operator);
            if self.keys_only {
                cursor.set_keys_only();
            }
            cursor
        });
        let (start, end_bound) = self.bounds.as_slices();
        let from = |bound| match side.place {
            Place::Key => Bound::Included(&*side.key),
            Place::Passed => Bound::Excluded(&*side.key),
            _ => bound,
        };
        match end {
            End::Front => cursor.seek(from(start), limit)?,
            End::Back => cursor.seek_back(limit, from(end_bound))?,
        }
        let is_found = cursor.is_positioned();
        side.place = Place::Yielded;
        Ok(is_found)
    }

    /// Repositions `end` at `key`, or at the next one within the bounds in its direction. The other
    /// end restarts at its bound.
    pub(crate) fn seek(&mut self, end: End, key: &[u8]) {
        if self.state == State::Empty {
            return;
        }
        let (start, end_bound) = self.bounds.as_slices();
        let (is_before, is_behind) = (!is_above(key, start), !is_below(key, end_bound));
        let (has_no_key, is_at_bound) = match end {
            End::Front => (is_behind, is_before),
            End::Back => (is_before, is_behind),
        };
        let (side, other) = match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        };
        if side.is_at(key) {
            side.place = Place::Current;
        } else if other.is_at(key) {
            // After a change of direction, reuse the existing cursor.
            mem::swap(&mut side.cursor, &mut other.cursor);
            side.place = Place::Current;
        } else if is_at_bound {
            side.place = Place::Bound;
        } else {
            side.place = Place::Key;
            side.key.clear();
            side.key.extend_from_slice(key);
        }
        other.place = Place::Bound;
        if has_no_key {
            self.finish();
        } else {
            self.state = State::Open;
        }
    }

    /// Replaces the view by another `source`, read at `at`. Both ends keep their positions. A range
    /// at its end stays there.
    pub(crate) fn replace_source(&mut self, source: S, at: ReadPoint) {
        debug_assert!(self.at.sequence <= at.sequence, "a range moves forward in time");
        for side in [&mut self.front, &mut self.back] {
            side.detach();
        }
        debug_assert!(self.front.cursor.is_none() && self.back.cursor.is_none());
        (self.source, self.at) = (source, at);
    }

    /// Returns the result of `take` for the next key of `end`, copied, and its cursor.
    fn item<T>(
        &mut self,
        end: End,
        take: impl FnOnce(Bytes, &VisibleCursor<S::Cursor>) -> T,
    ) -> Option<Result<T>> {
        let mut keys = mem::take(&mut self.keys);
        let item = match self.advance(end) {
            Ok(cursor) => cursor.map(|cursor| {
                let key = cursor.key().expect("the end stands at an entry");
                Ok(take(share(key, &mut keys), cursor))
            }),
            Err(error) => Some(Err(error)),
        };
        self.keys = keys;
        item
    }

    /// Returns the next key and value of `end`.
    #[inline]
    pub(crate) fn entry(&mut self, end: End) -> Option<Result<(Bytes, Bytes)>> {
        self.item(end, |key, cursor| (key, cursor.value()))
    }

    /// Returns the next key of `end`.
    #[inline]
    pub(crate) fn key(&mut self, end: End) -> Option<Result<Bytes>> {
        self.item(end, |key, _| key)
    }

    /// Ends the iteration until the next seek, unless the range is at its end. Returns `true` if it
    /// was not. Keeps the cursors: in a forked child, a drop may wait for a thread of the parent.
    #[cold]
    pub(crate) fn stop(&mut self) -> bool {
        let was_open = self.state == State::Open;
        if was_open {
            self.state = State::UsedUp;
        }
        was_open
    }

    /// Ends the iteration. Drops the cursors with their blocks.
    fn finish(&mut self) {
        self.state = State::UsedUp;
        (self.front, self.back) = (Side::new(), Side::new());
    }
}

impl<S: CursorSource> Iterator for Range<S> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry(End::Front)
    }
}

impl<S: CursorSource> DoubleEndedIterator for Range<S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entry(End::Back)
    }
}

impl<S: CursorSource> FusedIterator for Range<S> {}

impl<S: CursorSource> fmt::Debug for Range<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bounds, state, .. } = self;
        let mut range = f.debug_struct("Range");
        range.field("at", at).field("bounds", bounds).field("state", state);
        range.finish_non_exhaustive()
    }
}

/// Copies `key` into memory that several keys share.
#[inline]
fn share(key: &[u8], buffer: &mut BytesMut) -> Bytes {
    if buffer.capacity() < key.len() {
        buffer.reserve(key.len().max(KEY_BUFFER_BYTES));
    }
    buffer.extend_from_slice(key);
    buffer.split().freeze()
}
