//! Iterators over a range of keys, from both ends.

mod keys;
mod view_source;

use std::{fmt, iter::FusedIterator, mem};

use bytes::Bytes;

pub use self::keys::Keys;
pub(crate) use self::view_source::ViewSource;
use crate::{
    EntryRef, Error, Result,
    iter::{
        bounds::KeyBounds,
        range::{self, End},
    },
};

/// Iterator over keys and values, ascending from the front and descending from the back
/// ([`next_back`](DoubleEndedIterator::next_back), [`rev`](Iterator::rev)).
///
/// Reads the keyspace at the time of its creation. While the iterator exists, its memtables and
/// tables are kept, but not their filters. The two ends may be mixed and yield no key twice, unless
/// [`seek`](Self::seek) moves back. After an error the range is at its end, until the next seek. A
/// range at its end yields no error, even if the store is closed.
///
/// The iterator yields owned keys and values: a value keeps its block in memory.
/// [`next_ref`](Self::next_ref) borrows them instead, at about half the cost.
pub struct Range(State);

enum State {
    /// Yields its error once.
    Refused(Option<Error>),
    Open(Box<range::Range<ViewSource>>),
}

impl Range {
    pub(crate) fn new(source: ViewSource, bounds: KeyBounds) -> Self {
        let at = source.at;
        Self(State::Open(Box::new(range::Range::new(source, at, bounds))))
    }

    /// Returns a range that yields `error`.
    pub(crate) fn refused(error: Error) -> Self {
        Self(State::Refused(Some(error)))
    }

    /// Sets the maximum read-ahead of a scan: the bytes read in one call, if that is more than a
    /// block.
    ///
    /// Applies to data that is not in the block cache. A scan reads two blocks singly, then two at
    /// once, and doubles the length with each read. It begins with the length that the last two
    /// scans of the table both used, up to 32 KiB. Larger reads save calls. The unused bytes are at
    /// most those that this scan, or the last two scans, used.
    ///
    /// Default 256 KiB. 0 reads single blocks; more than 64 MiB counts as 64 MiB. Set it before the
    /// first step. Later it applies only to an end that has not moved, and after a seek of a range
    /// at its end.
    #[must_use]
    pub fn read_ahead_bytes_max(mut self, bytes: usize) -> Self {
        if let State::Open(range) = &mut self.0 {
            range.source_mut().read_ahead_bytes_max = bytes;
        }
        self
    }

    /// Returns the next entry, borrowed, or `None` at the end. Allocates and copies nothing, except
    /// a value in a blob file, which this call reads. [`keys`](Self::keys) reads no values.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("ant", "6")?;
    /// db.insert("spider", "8")?;
    /// let (mut range, mut legs) = (db.iter(), 0);
    /// while let Some(entry) = range.next_ref()? {
    ///     legs += entry.value()[0] - b'0';
    /// }
    /// assert_eq!(legs, 14);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the iterator. The range is then at its end.
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<EntryRef<'_>>> {
        self.advance(End::Front)
    }

    /// Returns the next entry from the back, borrowed as by [`next_ref`](Self::next_ref).
    ///
    /// # Errors
    ///
    /// As [`next_ref`](Self::next_ref).
    #[inline]
    pub fn next_back_ref(&mut self) -> Result<Option<EntryRef<'_>>> {
        self.advance(End::Back)
    }

    /// Repositions the front at `key`, or at the first key after it. The range is then the same as
    /// a new one from `key` to its upper bound, of the same view. It may yield entries again.
    ///
    /// A `key` out of bounds does not extend the range, as in RocksDB:
    ///
    /// * before the lower bound, the front is at the lower bound;
    /// * after the upper bound, the range is at its end, from both sides, until the next seek.
    ///
    /// Does no I/O. Costs less than a new range: it reuses the cursors and their memory, and moves
    /// no cursor if one end is at `key`. After an error, a seek to a key after the damage continues
    /// the scan: see [what to do about a damaged table][damage].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// for key in ["a", "b", "c", "d"] {
    ///     db.insert(key, "")?;
    /// }
    /// let mut range = db.range("b"..);
    /// range.seek("c");
    /// assert_eq!(range.next().unwrap()?.0, "c");
    /// range.seek_back("c");
    /// assert_eq!(range.next_back().unwrap()?.0, "c");
    /// assert_eq!(range.next_back().unwrap()?.0, "b");
    /// range.seek("a");
    /// assert_eq!(range.next().unwrap()?.0, "b");
    ///
    /// let mut range = db.range("b"..="c");
    /// range.seek("d");
    /// assert!(range.next().is_none() && range.next_back().is_none());
    /// range.seek_back("d");
    /// assert_eq!(range.next_back().unwrap()?.0, "c");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// [damage]: crate::ReadOptions::skip_damaged
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        if let State::Open(range) = &mut self.0 {
            range.seek(End::Front, key.as_ref());
        }
    }

    /// Repositions the back at `key`, or at the last key before it. The range is then the same as a
    /// new one from its lower bound to `key`. After the upper bound, the back is at the upper
    /// bound. Before the lower bound, the range is at its end.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        if let State::Open(range) = &mut self.0 {
            range.seek(End::Back, key.as_ref());
        }
    }

    /// Moves the range to the state of the keyspace at the time of this call. Keeps its bounds and
    /// the positions of both ends. A range at its end stays there until the next seek.
    ///
    /// Releases the memtables and tables that the range held, without I/O. The next step of each
    /// end costs as much as the first step of a new range. Has no effect on a range of a
    /// [`Snapshot`](crate::Snapshot).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("a", "")?;
    /// db.insert("c", "")?;
    /// let mut range = db.iter();
    /// assert_eq!(range.next().unwrap()?.0, "a");
    /// db.insert("b", "")?;
    /// range.refresh()?;
    /// assert_eq!(range.next().unwrap()?.0, "b");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], [`Error::Closed`]: the range is unchanged. If the range was
    /// created with an error that it has not yielded yet, that error.
    pub fn refresh(&mut self) -> Result<()> {
        let range = match &mut self.0 {
            State::Refused(error) => return error.clone().map_or(Ok(()), Err),
            State::Open(range) => range,
        };
        let source = range.source();
        source.open.accept()?;
        if source.is_of_snapshot {
            return Ok(());
        }
        let source = source.present()?;
        let at = source.at;
        range.replace_source(source, at);
        Ok(())
    }

    /// Continues after the key whose merge failed, if that was the last step. Both ends keep their
    /// positions.
    pub(crate) fn resume(&mut self) {
        if let State::Open(range) = &mut self.0 {
            range.resume();
        }
    }

    #[inline]
    fn advance(&mut self, end: End) -> Result<Option<EntryRef<'_>>> {
        match &mut self.0 {
            State::Refused(error) => error.take().map_or(Ok(None), Err),
            State::Open(range) => {
                if let Err(error) = range.source().open.accept() {
                    return if range.stop() { Err(error) } else { Ok(None) };
                }
                Ok(range.advance(end)?.map(EntryRef::new))
            }
        }
    }

    /// Reads no values in blob files, and computes none from merge operands.
    pub(crate) fn set_keys_only(&mut self) {
        if let State::Open(range) = &mut self.0 {
            range.set_keys_only();
        }
    }

    fn item<T>(
        &mut self,
        end: End,
        take: impl FnOnce(&mut range::Range<ViewSource>, End) -> Option<Result<T>>,
    ) -> Option<Result<T>> {
        match &mut self.0 {
            State::Refused(error) => error.take().map(Err),
            State::Open(range) => match range.source().open.accept() {
                Ok(_) => take(range, end),
                Err(error) => range.stop().then_some(Err(error)),
            },
        }
    }

    /// Returns the next key of `end`.
    pub(crate) fn key(&mut self, end: End) -> Option<Result<Bytes>> {
        self.item(end, range::Range::key)
    }

    /// Returns `true` if the range has no key. Reads no value, and no table that its filters
    /// reject: see [`range_filter_bits_per_key`](crate::KeyspaceOptions::range_filter_bits_per_key)
    /// and [`prefix_extractor`](crate::KeyspaceOptions::prefix_extractor).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("2026-11-21", "rain")?;
    /// assert!(!db.range("2026-11-01".."2026-12-01").is_empty()?);
    /// assert!(db.range("2027-01-01"..).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the iterator.
    pub fn is_empty(self) -> Result<bool> {
        let mut range = self;
        range.set_keys_only();
        Ok(range.next_ref()?.is_none())
    }

    /// Returns an iterator over the keys, which reads no values and applies no merge operands.
    #[must_use]
    pub fn keys(self) -> Keys {
        Keys::new(self)
    }
}

impl Iterator for Range {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(End::Front, range::Range::entry)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(End::Back, range::Range::entry)
    }
}

impl FusedIterator for Range {}

impl Drop for Range {
    fn drop(&mut self) {
        if let State::Open(range) = &self.0
            && range.source().open.store().is_forked()
        {
            // A drop of its contents may take a lock held by a thread of the parent.
            let _ = range.source().open.accept();
            mem::forget(mem::replace(&mut self.0, State::Refused(None)));
        }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
