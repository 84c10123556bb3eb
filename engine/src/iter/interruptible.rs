//! A merge that somebody may end.

use std::path::PathBuf;

use bytes::Bytes;
use sievedb_format::InternalKey;

use super::cursor::Cursor;
use crate::{Error, Result};

/// Entries and bytes of values after which it is asked again: some 0.3 ms of a compaction.
const ENTRIES_MAX: u32 = 1024;
const BYTES_MAX: usize = 1 << 20;

/// A cursor that asks now and then, while it goes forward, whether to go on. If not, the step fails with
/// [`Error::Closed`], which nobody is to see: whoever said so knows better.
#[derive(Debug)]
pub(crate) struct Interruptible<C, S> {
    cursor: C,
    stops: S,
    entries: u32,
    bytes: usize,
}

impl<C: Cursor, S: FnMut() -> bool> Interruptible<C, S> {
    /// An unpositioned cursor over `cursor`, until `stops` says so.
    pub(crate) fn new(cursor: C, stops: S) -> Self {
        Self { cursor, stops, entries: 0, bytes: 0 }
    }
}

impl<C: Cursor, S: FnMut() -> bool> Cursor for Interruptible<C, S> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last()
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.cursor.seek(target)
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.cursor.seek_before(target)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.entries += 1;
        self.bytes += self.cursor.value_ref().len();
        if self.entries >= ENTRIES_MAX || self.bytes >= BYTES_MAX {
            (self.entries, self.bytes) = (0, 0);
            if (self.stops)() {
                return Err(Error::Closed);
            }
        }
        self.cursor.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.cursor.key()
    }

    #[inline]
    fn is_positioned(&self) -> bool {
        self.cursor.is_positioned()
    }

    #[inline]
    fn repeats(&self) -> bool {
        self.cursor.repeats()
    }

    fn follows_other_key(&mut self) -> bool {
        self.cursor.follows_other_key()
    }

    fn note_tombstone(&mut self) {
        self.cursor.note_tombstone();
    }

    #[inline]
    fn value_ref(&self) -> &[u8] {
        self.cursor.value_ref()
    }

    fn value(&self) -> Bytes {
        self.cursor.value()
    }

    fn path(&self) -> PathBuf {
        self.cursor.path()
    }
}
