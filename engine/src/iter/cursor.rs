//! The interface of sorted sources.

use std::path::PathBuf;

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey};
use sievedb_sstable::TableCursor;

use super::range_tombstone_sources::HiddenRange;
use crate::{Error, Result, resolve::Refused, table::blobs::Blob};

/// Steps of a seek.
pub(crate) const SEEK_STEPS: usize = TableCursor::SEEK_STEPS;

/// A position in entries with strictly ascending internal keys.
///
/// A new cursor is unpositioned. So is a cursor after a step over either end, a search without a
/// result, or an error. Any of the four searches positions it again. A scan may or may not see
/// entries added to a memtable meanwhile: they are newer than the reader.
///
/// # Errors
///
/// Moves return the errors of reading the source.
pub(crate) trait Cursor {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;

    /// Moves to the first entry at or after `target`.
    fn seek(&mut self, target: InternalKey<'_>) -> Result<()>;

    /// Takes one step of a [`seek`](Self::seek). The steps are 0 to [`SEEK_STEPS`] - 1, in order,
    /// with one `target`. Unpositioned in between.
    ///
    /// A merge takes each step with all its cursors, so that they wait for memory together.
    #[inline]
    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        if step == 0 { self.seek(target) } else { Ok(()) }
    }

    /// Moves to the last entry before `target`.
    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()>;

    /// Prefetches from the file for this step of a [`seek`](Self::seek), which must follow. Does
    /// not block. May leave the current entry before the first step.
    #[inline]
    fn advise_seek_step(&mut self, step: usize) {
        let _ = step;
    }

    /// Prefetches from the file for a [`seek_before`](Self::seek_before) of `target`, which must
    /// follow. Does not block. May leave the current entry.
    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        let _ = target;
    }

    /// Returns `true` if the last search or a later step read from a file, or the next step of a
    /// [`seek`](Self::seek) probably does.
    fn has_missed_cache(&self) -> bool {
        false
    }

    /// Moves forward over entries that a range tombstone hides, beginning with the current one. May
    /// stay at the current entry. Requires that the last move was forward.
    fn skip_up(&mut self, hidden: &HiddenRange) -> Result<()> {
        let _ = hidden;
        Ok(())
    }

    /// As [`skip_up`](Self::skip_up), backward.
    fn skip_down(&mut self, hidden: &HiddenRange) -> Result<()> {
        let _ = hidden;
        Ok(())
    }

    /// Moves to the next entry. Only when positioned.
    fn next(&mut self) -> Result<()>;

    /// Moves to the previous entry. Only when positioned.
    fn prev(&mut self) -> Result<()>;

    /// Returns the current internal key; `None` when unpositioned.
    fn key(&self) -> Option<InternalKey<'_>>;

    /// Returns `true` if there is a current entry.
    fn is_positioned(&self) -> bool {
        self.key().is_some()
    }

    /// Returns `true` if the last move was a [`next`](Self::next), in the same direction as the
    /// move before, to an older version of the same user key. Only when positioned.
    ///
    /// Readers that skip versions use it to avoid copies and comparisons of keys.
    fn is_older_version(&self) -> bool;

    /// Returns `true` if the previous entry is known to have another user key. May return `false`
    /// if that is unknown. Only when positioned.
    fn is_newest_version(&mut self) -> bool;

    /// Returns a reference to the current value. Only when positioned.
    fn value_ref(&self) -> &[u8];

    /// Counts the current entry, a skipped tombstone.
    fn note_tombstone(&mut self) {}

    /// Returns the current value, without a copy. Only when positioned.
    fn value(&self) -> Bytes;

    /// Returns the location of the current value, a blob reference. Only when positioned.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the stored value is no reference to a file of its table.
    fn blob(&self) -> Result<Blob> {
        Err(Error::corrupt(self.path(), 0, Refused::BLOB.into()))
    }

    /// Returns the file of the current entry for error messages, or the directory of the store for
    /// an entry in memory. Only when positioned.
    fn path(&self) -> PathBuf;
}

/// Implements [`Cursor`] by another cursor, except for `note_tombstone`, `blob` and `path`, which
/// are given. `$call!(self, method(arguments))` calls an infallible method, `$moves!` a fallible
/// one.
macro_rules! forward_cursor {
    ($type:ty, $moves:ident, $call:ident, { $($rest:item)* }) => {
        impl $crate::iter::cursor::Cursor for $type {
            $($rest)*

            fn seek_to_first(&mut self) -> Result<()> {
                $moves!(self, seek_to_first())
            }

            fn seek_to_last(&mut self) -> Result<()> {
                $moves!(self, seek_to_last())
            }

            fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
                $moves!(self, seek(target))
            }

            #[inline]
            fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
                $moves!(self, seek_step(step, target))
            }

            fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
                $moves!(self, seek_before(target))
            }

            #[inline]
            fn next(&mut self) -> Result<()> {
                $moves!(self, next())
            }

            #[inline]
            fn prev(&mut self) -> Result<()> {
                $moves!(self, prev())
            }

            #[inline]
            fn advise_seek_step(&mut self, step: usize) {
                $call!(self, advise_seek_step(step));
            }

            fn advise_seek_before(&mut self, target: InternalKey<'_>) {
                $call!(self, advise_seek_before(target));
            }

            #[inline]
            fn has_missed_cache(&self) -> bool {
                $call!(self, has_missed_cache())
            }

            #[inline]
            fn key(&self) -> Option<InternalKey<'_>> {
                $call!(self, key())
            }

            #[inline]
            fn is_positioned(&self) -> bool {
                $call!(self, is_positioned())
            }

            #[inline]
            fn is_older_version(&self) -> bool {
                $call!(self, is_older_version())
            }

            #[inline]
            fn is_newest_version(&mut self) -> bool {
                $call!(self, is_newest_version())
            }

            #[inline]
            fn value_ref(&self) -> &[u8] {
                $call!(self, value_ref())
            }

            fn value(&self) -> Bytes {
                $call!(self, value())
            }
        }
    };
}

pub(crate) use forward_cursor;

/// Returns the error for a cursor that stepped backward instead of forward.
///
/// Checked where keys are compared anyway, so that an unordered table ends a scan with an error
/// instead of an endless loop.
pub(crate) fn out_of_order(cursor: &impl Cursor) -> Error {
    Error::corrupt(cursor.path(), 0, Corruption::Order { what: "an entry" })
}
