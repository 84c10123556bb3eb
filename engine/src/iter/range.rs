//! The double-ended iterator a user holds.

use std::{fmt, iter::FusedIterator, ops::Bound};

use bytes::{Bytes, BytesMut};
use sievedb_format::SequenceNumber;

use super::{
    bounds::KeyBounds,
    cursor::Cursor,
    visible::{RangeTombstoneSources, VisibleCursor},
};
use crate::Result;

/// Keys share allocations of this many bytes. A key that the user keeps pins one, as a value pins
/// its block.
const KEY_BUFFER_BYTES: usize = 1 << 10;

/// A read view, as far as a range needs it. It owns what keeps the view alive.
pub(crate) trait CursorSource {
    /// Walks every entry of the view, versions and all.
    type Cursor: Cursor;

    /// An unpositioned cursor. The range takes nothing outside `bounds`, so sources that have no key
    /// within may be left out.
    fn cursor(&self, bounds: &KeyBounds) -> Self::Cursor;

    /// The range tombstones of the view.
    fn range_tombstones(&self) -> RangeTombstoneSources;
}

/// The entries of a range of keys as one reader sees them, from both ends.
///
/// Each end has a cursor of its own, made at its first step: a scan in one direction pays for one.
/// The ends never yield an entry twice. After an error the range is at its end.
///
/// A step allocates nothing but memory for the key, and that once per [`KEY_BUFFER_BYTES`].
pub(crate) struct Range<S: CursorSource> {
    source: S,
    sequence: SequenceNumber,
    bounds: KeyBounds,
    /// What each end yielded last, or `None` before its first step.
    ends: [Option<VisibleCursor<S::Cursor>>; 2],
    /// The ends have met, or there was an error.
    done: bool,
    keys: BytesMut,
}

/// An end of a range, as an index of its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front = 0,
    Back = 1,
}

impl<S: CursorSource> Range<S> {
    /// The entries of `source` within `bounds` that a reader at `sequence` sees. Reads nothing yet.
    pub(crate) fn new(source: S, sequence: SequenceNumber, bounds: KeyBounds) -> Self {
        let done = bounds.is_empty();
        Self { source, sequence, bounds, ends: [None, None], done, keys: BytesMut::new() }
    }

    /// The same without the values.
    pub(crate) fn keys(self) -> Keys<S> {
        Keys { range: self }
    }

    /// Moves `end` by one entry and returns its key.
    fn advance(&mut self, end: End) -> Option<Result<Bytes>> {
        if self.done {
            return None;
        }
        if let Err(error) = self.step(end) {
            self.finish();
            return Some(Err(error));
        }
        let cursor = self.ends[end as usize].as_ref();
        let Some(key) = cursor.and_then(VisibleCursor::key) else {
            self.finish();
            return None;
        };
        Some(Ok(share(key, &mut self.keys)))
    }

    /// Moves the cursor of `end` by one entry. It is unpositioned then if the ends have met.
    fn step(&mut self, end: End) -> Result<()> {
        let (mut lower, mut upper) = self.bounds.as_slices();
        let [front, back] = &mut self.ends;
        // The entry that the other end yielded last is where this end stops.
        let (cursor, other) = match end {
            End::Front => (front, back),
            End::Back => (back, front),
        };
        match (end, other.as_ref().and_then(VisibleCursor::key)) {
            (_, None) => {}
            (End::Front, Some(key)) => upper = Bound::Excluded(key),
            (End::Back, Some(key)) => lower = Bound::Excluded(key),
        }
        match (end, cursor) {
            (End::Front, Some(front)) => front.next(upper),
            (End::Back, Some(back)) => back.prev(lower),
            (_, cursor) => {
                let bounds = KeyBounds::copy(lower, upper);
                let merged = self.source.cursor(&bounds);
                let range_tombstones = self.source.range_tombstones();
                let cursor =
                    cursor.insert(VisibleCursor::new(merged, self.sequence, range_tombstones));
                match end {
                    End::Front => cursor.seek(lower, upper),
                    End::Back => cursor.seek_back(lower, upper),
                }
            }
        }
    }

    /// The value that `end` yielded last.
    fn value(&self, end: End) -> Bytes {
        let cursor = self.ends[end as usize].as_ref();
        cursor.expect("the end has just yielded a key").value()
    }

    /// Ends the iteration and lets go of the blocks that the cursors hold.
    fn finish(&mut self) {
        self.done = true;
        self.ends = [None, None];
    }
}

impl<S: CursorSource> Iterator for Range<S> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.advance(End::Front)?;
        Some(key.map(|key| (key, self.value(End::Front))))
    }
}

impl<S: CursorSource> DoubleEndedIterator for Range<S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let key = self.advance(End::Back)?;
        Some(key.map(|key| (key, self.value(End::Back))))
    }
}

impl<S: CursorSource> FusedIterator for Range<S> {}

impl<S: CursorSource> fmt::Debug for Range<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, bounds, done, .. } = self;
        let mut range = f.debug_struct("Range");
        range.field("sequence", sequence).field("bounds", bounds).field("done", done);
        range.finish_non_exhaustive()
    }
}

/// The keys of a [`Range`].
#[derive(Debug)]
pub(crate) struct Keys<S: CursorSource> {
    range: Range<S>,
}

impl<S: CursorSource> Iterator for Keys<S> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.advance(End::Front)
    }
}

impl<S: CursorSource> DoubleEndedIterator for Keys<S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.advance(End::Back)
    }
}

impl<S: CursorSource> FusedIterator for Keys<S> {}

/// Copies `key` into memory that several keys share.
fn share(key: &[u8], buffer: &mut BytesMut) -> Bytes {
    if buffer.capacity() < key.len() {
        buffer.reserve(key.len().max(KEY_BUFFER_BYTES));
    }
    buffer.extend_from_slice(key);
    buffer.split().freeze()
}
