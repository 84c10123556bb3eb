//! A memtable as one of the cursors that a merge takes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::InternalKey;
use sievedb_memtable::MemtableCursor;

use crate::{
    Result,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        cursor::Cursor,
    },
    read::scan_question::ScanOptions,
    read::skipped::SkippedTombstones,
    read::view::PlacedMemtable,
};

/// The entries of a memtable within bounds: a move that leads beyond the bound on its way leaves
/// the cursor without a place.
#[derive(Debug)]
pub(crate) struct MemtableSource {
    /// Dropped before `placed`, whose drop lets a worker free the memtable.
    cursor: MemtableCursor,
    placed: Arc<PlacedMemtable>,
    bounds: Arc<KeyBounds>,
    is_beyond: bool,
    /// Of the store, for error messages.
    folder: Arc<Path>,
    skipped: Option<Arc<dyn SkippedTombstones>>,
    tombstones: u64,
}

impl MemtableSource {
    /// The entries of `placed`, in the store in `folder`.
    pub(crate) fn new(
        placed: &Arc<PlacedMemtable>,
        folder: &Arc<Path>,
        scan: &ScanOptions,
    ) -> Self {
        Self {
            placed: Arc::clone(placed),
            cursor: Arc::clone(&placed.memtable).cursor(),
            bounds: Arc::clone(&scan.bounds),
            is_beyond: false,
            folder: Arc::clone(folder),
            skipped: scan.skipped.clone(),
            tombstones: 0,
        }
    }

    #[inline]
    fn went_up(&mut self) -> Result<()> {
        let end = self.bounds.as_slices().1;
        self.is_beyond = self.cursor.key().is_some_and(|key| !is_below(key.user_key, end));
        Ok(())
    }

    fn went_down(&mut self) -> Result<()> {
        let start = self.bounds.as_slices().0;
        self.is_beyond = self.cursor.key().is_some_and(|key| !is_above(key.user_key, start));
        Ok(())
    }
}

impl Cursor for MemtableSource {
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first();
        self.went_up()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last();
        self.went_down()
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.cursor.seek(target);
        self.went_up()
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        self.cursor.seek_before(target);
        self.went_down()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next();
        self.went_up()
    }

    fn prev(&mut self) -> Result<()> {
        self.cursor.prev();
        self.went_down()
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.cursor.key().filter(|_| !self.is_beyond)
    }

    #[inline]
    fn is_older_version(&self) -> bool {
        self.cursor.is_older_version()
    }

    /// Not known: a step back is a search, and so would be a look.
    fn is_newest_version(&mut self) -> bool {
        false
    }

    fn value_ref(&self) -> &[u8] {
        self.cursor.value_ref()
    }

    fn value(&self) -> Bytes {
        self.cursor.value()
    }

    fn note_tombstone(&mut self) {
        self.tombstones += 1;
    }

    fn path(&self) -> PathBuf {
        self.folder.to_path_buf()
    }
}

impl Drop for MemtableSource {
    fn drop(&mut self) {
        if let Some(skipped) = self.skipped.as_ref().filter(|_| self.tombstones > 0) {
            skipped.in_memtable(&self.placed, self.tombstones);
        }
    }
}
