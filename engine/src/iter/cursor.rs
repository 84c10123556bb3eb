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
/// A new cursor is unpositioned. So is one that stepped over either end, whose search found nothing
/// or that failed; any of the four searches positions it again. Entries added to a memtable during
/// a scan may or may not be met: they are newer than the reader.
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

    /// Prefetches from the file for this step of a [`seek`](Self::seek), which follows. Does not
    /// wait. Before the first step it may leave the current entry.
    #[inline]
    fn advise_seek_step(&mut self, step: usize) {
        let _ = step;
    }

    /// Prefetches from the file for a [`seek_before`](Self::seek_before) of `target`, which
    /// follows. Does not wait. Leaves the current entry.
    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        let _ = target;
    }

    /// Returns whether the last search, or a step since, read from a file, or the next step of a
    /// [`seek`](Self::seek) probably does.
    fn has_missed_cache(&self) -> bool {
        false
    }

    /// Moves forward over entries that a range tombstone hides, beginning with the current one. May
    /// stay. The last move was forward.
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

    /// Returns whether there is a current entry.
    fn is_positioned(&self) -> bool {
        self.key().is_some()
    }

    /// Returns whether the last move was a [`next`](Self::next), in the direction before, that led
    /// to an older version of the same user key. Only when positioned.
    ///
    /// So readers that skip versions neither copy nor compare keys.
    fn is_older_version(&self) -> bool;

    /// Returns whether the entry before the current one is known to have another user key. May be
    /// `false` if that is not known. Only when positioned.
    fn is_newest_version(&mut self) -> bool;

    /// Returns the current value where it lies. Only when positioned.
    fn value_ref(&self) -> &[u8];

    /// Counts the current entry, a tombstone that a reader skips.
    fn note_tombstone(&mut self) {}

    /// Returns the current value, without a copy. Only when positioned.
    fn value(&self) -> Bytes;

    /// Returns the place of the value of the current entry, a blob reference. Only when positioned.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the stored value is no reference to a file of its table.
    fn blob(&self) -> Result<Blob> {
        Err(Error::corrupt(self.path(), 0, Refused::BLOB.into()))
    }

    /// Returns the file of the current entry for error messages; the directory of the store for an
    /// entry in memory. Only when positioned.
    fn path(&self) -> PathBuf;
}

/// Implements [`Cursor`] but `note_tombstone`, `blob` and `path`, which are given, by another
/// cursor: `$call!(self, method(arguments))` calls a method that cannot fail, `$moves!` one that
/// can.
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

/// Returns the error for a cursor that stepped back where it must step on.
///
/// Checked where keys are compared anyway, so that a table that is out of order ends a scan with an
/// error instead of an endless loop.
pub(crate) fn out_of_order(cursor: &impl Cursor) -> Error {
    Error::corrupt(cursor.path(), 0, Corruption::Order { what: "an entry" })
}
