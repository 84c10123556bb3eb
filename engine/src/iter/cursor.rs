//! How every sorted source is moved.

use std::path::PathBuf;

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey};
use sievedb_sstable::TableCursor;

use crate::{Error, Result};

/// Steps of a search, of whatever takes it in steps.
pub(crate) const SEEK_STEPS: usize = TableCursor::SEEK_STEPS;

/// A place in a sequence of entries with strictly ascending internal keys, or no place at all.
///
/// A new cursor is unpositioned. Stepping over either end, a search without a hit and an error
/// leave it unpositioned; any of the four searches positions it again. Entries that are added to a
/// memtable while a cursor stands in it may or may not be met: they are newer than what its reader
/// may see.
pub(crate) trait Cursor {
    /// Moves to the first entry.
    ///
    /// # Errors
    ///
    /// This and every other move: whatever reading the source fails with.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;

    /// Moves to the first entry at or after `target`.
    fn seek(&mut self, target: InternalKey<'_>) -> Result<()>;

    /// Takes one step of a [`seek`](Self::seek), which may be taken in [`SEEK_STEPS`] of them in
    /// their order: 0 and up, with one `target`. Unpositioned in between.
    ///
    /// Whoever moves several cursors takes each step with all of them: they wait for memory
    /// together then.
    #[inline]
    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        if step == 0 { self.seek(target) } else { Ok(()) }
    }

    /// Moves to the last entry before `target`.
    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()>;

    /// This step of a [`seek`](Self::seek) follows: whoever has to read for it begins to fetch
    /// that, and does not wait. Before the first step it may lead away from the current entry.
    #[inline]
    fn advise_seek_step(&mut self, step: usize) {
        let _ = step;
    }

    /// A [`seek_before`](Self::seek_before) of `target` follows: as with
    /// [`advise_seek_step`](Self::advise_seek_step). Leads away from the current entry.
    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        let _ = target;
    }

    /// Whether the last search, or a step since, had to read from a file, as far as that is known;
    /// and whether the next step of a [`seek`](Self::seek) has to, probably.
    fn has_missed_cache(&self) -> bool {
        false
    }

    /// Moves to the next entry. Only when positioned.
    fn next(&mut self) -> Result<()>;

    /// Moves to the previous entry. Only when positioned.
    fn prev(&mut self) -> Result<()>;

    /// The current internal key; `None` when unpositioned.
    fn key(&self) -> Option<InternalKey<'_>>;

    /// Whether there is a current entry.
    fn is_positioned(&self) -> bool {
        self.key().is_some()
    }

    /// Whether the current entry is another version of the user key that the last move, a
    /// [`next`](Self::next) that did not change the direction, has left. Only when positioned.
    ///
    /// So who steps over versions neither copies nor compares keys.
    fn is_older_version(&self) -> bool;

    /// Whether the entry before the current one, if there is one, is known to be of another user
    /// key. May be `false` for want of knowledge. Only when positioned.
    fn is_newest_version(&mut self) -> bool;

    /// The current value where it lies. Only when positioned.
    fn value_ref(&self) -> &[u8];

    /// Notes that the current entry was a tombstone, which a reader stepped over.
    fn note_tombstone(&mut self) {}

    /// The current value, without a copy. Only when positioned.
    fn value(&self) -> Bytes;

    /// The file that holds the current entry, for error messages; the folder of the store for an
    /// entry in memory. Only when positioned.
    fn path(&self) -> PathBuf;
}

/// What a cursor met that steps back where it must step on.
///
/// Checked where a comparison is made anyway: a table that is out of order then ends a scan with an
/// error, and never makes it run in circles.
pub(crate) fn out_of_order(cursor: &impl Cursor) -> Error {
    Error::corrupt(cursor.path(), 0, Corruption::Order { what: "an entry" })
}
