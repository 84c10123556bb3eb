//! Memtables and tables as cursors of a merge.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, TableBounds};
use sievedb_memtable::MemtableCursor;
use sievedb_sstable::{CursorOptions, Table, TableCursor};

use crate::{
    Result,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        cursor::{Cursor, forward_cursor},
        range_tombstone_sources::HiddenRange,
        run::{RunCursor, SortedRun, tables_within},
    },
    read::scan_probe::ScanProbe,
    read::view::PlacedMemtable,
    stats::ThreadCounters,
    table::LiveTable,
    table::blobs::Blob,
    version::Run,
};

/// Receives the tombstones that scans skip, when a scan leaves a table or memtable.
pub(crate) trait SkippedTombstones: Debug + Send + Sync {
    /// A scan skipped `tombstones` tombstones of a table.
    fn in_table(&self, live: &LiveTable, tombstones: u64);

    /// A scan skipped `tombstones` tombstones of a memtable.
    fn in_memtable(&self, placed: &PlacedMemtable, tombstones: u64);
}

/// A source of sorted entries: a memtable or a sorted run.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "sources are few and do not move; a box would cost each step a load"
)]
pub(crate) enum Source {
    Memtable(MemtableSource),
    Run(RunCursor<TableRun>),
}

/// Options of a scan of tables.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions {
    /// Cache and read-ahead; the bounds are those of `bounds` where a table crosses them.
    pub(crate) cursor: CursorOptions,
    pub(crate) bounds: Arc<KeyBounds>,
    /// Receives the tombstones that the scan skips.
    pub(crate) skipped: Option<Arc<dyn SkippedTombstones>>,
}

impl ScanOptions {
    /// Options of a flush or a compaction, which reads all entries once.
    pub(crate) fn once(cursor: CursorOptions) -> Self {
        Self { cursor, bounds: Arc::new(KeyBounds::ALL), skipped: None }
    }
}

impl Source {
    /// Returns the entries of a memtable of the store in `directory`, within the bounds. `rank` is
    /// the position of the source in its view, the newest first.
    pub(crate) fn memtable(
        placed: &Arc<PlacedMemtable>,
        rank: usize,
        directory: &Arc<Path>,
        scan: &ScanOptions,
    ) -> Self {
        Self::Memtable(MemtableSource::new(placed, rank, directory, scan))
    }

    /// Returns the entries of a sorted run within the bounds. Returns `None` if bounds and filters
    /// exclude all tables.
    pub(crate) fn run(
        run: &Run,
        rank: usize,
        scan: &ScanOptions,
        probe: ScanProbe<'_>,
        counters: &ThreadCounters,
    ) -> Option<Self> {
        let tables = TableRun { tables: Arc::clone(run.tables()), rank, scan: scan.clone() };
        let window = probe.narrow(run, tables_within(&tables, &scan.bounds), counters);
        (!window.is_empty()).then(|| Self::Run(RunCursor::over(tables, window)))
    }

    /// Returns the entries of tables in key order, within the bounds of `scan`.
    pub(crate) fn tables(tables: Vec<Arc<LiveTable>>, scan: &ScanOptions) -> Self {
        let run = TableRun { tables: tables.into(), rank: 0, scan: scan.clone() };
        Self::Run(RunCursor::new(run, &scan.bounds))
    }
}

/// Calls a method of the cursor of a memtable or of a run.
macro_rules! of_source {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        match $self {
            Self::Memtable(cursor) => cursor.$method($($argument),*),
            Self::Run(cursor) => cursor.$method($($argument),*),
        }
    };
}

forward_cursor!(Source, of_source, of_source, {
    fn skip_up(&mut self, hidden: &HiddenRange) -> Result<()> {
        of_source!(self, skip_up(hidden))
    }

    fn skip_down(&mut self, hidden: &HiddenRange) -> Result<()> {
        of_source!(self, skip_down(hidden))
    }

    fn note_tombstone(&mut self) {
        of_source!(self, note_tombstone());
    }

    fn blob(&self) -> Result<Blob> {
        of_source!(self, blob())
    }

    fn path(&self) -> PathBuf {
        of_source!(self, path())
    }
});

/// The tables of a sorted run.
#[derive(Debug)]
pub(crate) struct TableRun {
    tables: Arc<[Arc<LiveTable>]>,
    rank: usize,
    scan: ScanOptions,
}

impl SortedRun for TableRun {
    type Cursor = LiveTableCursor;

    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn bounds(&self, index: usize) -> &TableBounds {
        &self.tables[index].meta.bounds
    }

    fn is_hidden(&self, index: usize, hidden: &HiddenRange) -> bool {
        hidden.hides(self.rank, self.tables[index].meta.largest_sequence)
    }

    fn cursor(&self, index: usize) -> Result<LiveTableCursor> {
        let live = Arc::clone(&self.tables[index]);
        let mut options = self.scan.cursor.clone();
        // Most tables of a long scan are within the bounds, and compare no key with them.
        let (start, end) = self.scan.bounds.as_slices();
        if !is_above(&live.meta.bounds.smallest, start) {
            options.start = self.scan.bounds.start.clone();
        }
        if !live.meta.bounds.stays_below(end) {
            options.end = self.scan.bounds.end.clone();
        }
        let cursor = Table::cursor(Arc::clone(&live.table), options);
        let skipped = self.scan.skipped.clone();
        Ok(LiveTableCursor { live, cursor, skipped, tombstones: 0 })
    }
}

/// A cursor of a table that keeps the file open, and adds its path to errors.
#[derive(Debug)]
pub(crate) struct LiveTableCursor {
    live: Arc<LiveTable>,
    cursor: TableCursor,
    /// Receives the skipped tombstones at the end.
    skipped: Option<Arc<dyn SkippedTombstones>>,
    tombstones: u64,
}

/// Calls a fallible method of the cursor.
macro_rules! move_table {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        $self.cursor.$method($($argument),*).map_err(|error| $self.live.error(error))
    };
}

macro_rules! of_table {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        $self.cursor.$method($($argument),*)
    };
}

forward_cursor!(LiveTableCursor, move_table, of_table, {
    fn note_tombstone(&mut self) {
        self.tombstones += 1;
    }

    fn blob(&self) -> Result<Blob> {
        self.live.blob(self.cursor.value_ref())
    }

    fn path(&self) -> PathBuf {
        self.live.path.to_path_buf()
    }
});

impl Drop for LiveTableCursor {
    fn drop(&mut self) {
        if let Some(skipped) = self.skipped.as_ref().filter(|_| self.tombstones > 0) {
            skipped.in_table(&self.live, self.tombstones);
        }
    }
}

/// The entries of a memtable within bounds. Unpositioned after a move over a bound.
#[derive(Debug)]
pub(crate) struct MemtableSource {
    /// Dropped before `placed`, whose drop lets a worker free the memtable.
    cursor: MemtableCursor,
    placed: Arc<PlacedMemtable>,
    rank: usize,
    bounds: Arc<KeyBounds>,
    is_beyond: bool,
    /// Directory of the store, for error messages.
    directory: Arc<Path>,
    skipped: Option<Arc<dyn SkippedTombstones>>,
    tombstones: u64,
}

impl MemtableSource {
    pub(crate) fn new(
        placed: &Arc<PlacedMemtable>,
        rank: usize,
        directory: &Arc<Path>,
        scan: &ScanOptions,
    ) -> Self {
        Self {
            placed: Arc::clone(placed),
            rank,
            cursor: Arc::clone(&placed.memtable).cursor(),
            bounds: Arc::clone(&scan.bounds),
            is_beyond: false,
            directory: Arc::clone(directory),
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

    /// Returns `true` if the current entry, and all others of the memtable in the range, are
    /// hidden.
    fn is_hidden(&self, hidden: &HiddenRange) -> bool {
        // Visible entries were placed before, and the reader sees that placement too.
        let newest = self.placed.last_sequence();
        self.key().is_some_and(|key| hidden.contains(key.user_key))
            && hidden.hides(self.rank, newest)
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

    fn skip_up(&mut self, hidden: &HiddenRange) -> Result<()> {
        if !self.is_hidden(hidden) {
            return Ok(());
        }
        if hidden.end.is_empty() {
            self.is_beyond = true;
            return Ok(());
        }
        self.seek(InternalKey::seek(&hidden.end, SEQUENCE_MAX))
    }

    fn skip_down(&mut self, hidden: &HiddenRange) -> Result<()> {
        if !self.is_hidden(hidden) {
            return Ok(());
        }
        self.seek_before(InternalKey::seek(&hidden.start, SEQUENCE_MAX))
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.cursor.key().filter(|_| !self.is_beyond)
    }

    #[inline]
    fn is_older_version(&self) -> bool {
        self.cursor.is_older_version()
    }

    /// Unknown: a memtable steps back by a search.
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
        self.directory.to_path_buf()
    }
}

impl Drop for MemtableSource {
    fn drop(&mut self) {
        if let Some(skipped) = self.skipped.as_ref().filter(|_| self.tombstones > 0) {
            skipped.in_memtable(&self.placed, self.tombstones);
        }
    }
}
