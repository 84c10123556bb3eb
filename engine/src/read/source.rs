//! Memtables and tables as the cursors that a merge takes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, TableBounds};
use sievedb_sstable::{CursorOptions, ReadError, Table, TableCursor};

use crate::{
    Result,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        cursor::Cursor,
        run::{RunCursor, SortedRun, tables_within},
    },
    read::memtable_source::MemtableSource,
    read::scan_question::{ScanOptions, ScanQuestion},
    read::skipped::SkippedTombstones,
    read::view::PlacedMemtable,
    stats::ThreadCounters,
    table::LiveTable,
    version::Run,
};

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

impl Source {
    /// The entries of a memtable of the store in `folder`, within the bounds of the scan.
    pub(crate) fn memtable(
        placed: &Arc<PlacedMemtable>,
        folder: &Arc<Path>,
        scan: &ScanOptions,
    ) -> Self {
        Self::Memtable(MemtableSource::new(placed, folder, scan))
    }

    /// The entries of a sorted run within the bounds of the scan. `None` if there are no tables
    /// with any, as far as bounds and filters tell.
    pub(crate) fn run(
        run: &Run,
        scan: &ScanOptions,
        question: ScanQuestion<'_>,
        counters: &ThreadCounters,
    ) -> Option<Self> {
        let tables = TableRun { tables: Arc::clone(run.tables()), scan: scan.clone() };
        let window = question.narrow(run, tables_within(&tables, &scan.bounds), counters);
        (!window.is_empty()).then(|| Self::Run(RunCursor::over(tables, window)))
    }

    /// The entries of tables in key order, which are read once: they do not displace what lookups
    /// keep in the cache.
    pub(crate) fn tables_once(tables: Vec<Arc<LiveTable>>, cursor: CursorOptions) -> Self {
        let run = TableRun { tables: tables.into(), scan: ScanOptions::once(cursor) };
        Self::Run(RunCursor::new(run, &KeyBounds::ALL))
    }
}

/// Forwards to the cursor of a memtable or of a run.
macro_rules! forward {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        match $self {
            Self::Memtable(cursor) => cursor.$method($($argument),*),
            Self::Run(cursor) => cursor.$method($($argument),*),
        }
    };
}

impl Cursor for Source {
    fn seek_to_first(&mut self) -> Result<()> {
        forward!(self, seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        forward!(self, seek_to_last())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        forward!(self, seek(target))
    }

    #[inline]
    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        forward!(self, seek_step(step, target))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        forward!(self, seek_before(target))
    }

    #[inline]
    fn advise_seek_step(&mut self, step: usize) {
        forward!(self, advise_seek_step(step));
    }

    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        forward!(self, advise_seek_before(target));
    }

    #[inline]
    fn has_missed_cache(&self) -> bool {
        forward!(self, has_missed_cache())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        forward!(self, next())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        forward!(self, prev())
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        forward!(self, key())
    }

    #[inline]
    fn is_positioned(&self) -> bool {
        forward!(self, is_positioned())
    }

    #[inline]
    fn is_older_version(&self) -> bool {
        forward!(self, is_older_version())
    }

    #[inline]
    fn is_newest_version(&mut self) -> bool {
        forward!(self, is_newest_version())
    }

    #[inline]
    fn value_ref(&self) -> &[u8] {
        forward!(self, value_ref())
    }

    fn value(&self) -> Bytes {
        forward!(self, value())
    }

    fn note_tombstone(&mut self) {
        forward!(self, note_tombstone());
    }

    fn path(&self) -> PathBuf {
        forward!(self, path())
    }
}

/// The tables of a sorted run.
#[derive(Debug)]
pub(crate) struct TableRun {
    tables: Arc<[Arc<LiveTable>]>,
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

    fn cursor(&self, index: usize) -> Result<LiveTableCursor> {
        let live = Arc::clone(&self.tables[index]);
        let mut options = self.scan.cursor.clone();
        // Most tables of a long scan lie within the bounds, and compare no key with them.
        let (start, end) = self.scan.bounds.as_slices();
        if !is_above(&live.meta.bounds.smallest, start) {
            options.start = self.scan.bounds.start.clone();
        }
        if !is_below(&live.meta.bounds.largest, end) {
            options.end = self.scan.bounds.end.clone();
        }
        let cursor = Table::cursor(Arc::clone(&live.table), options);
        let skipped = self.scan.skipped.clone();
        Ok(LiveTableCursor { live, cursor, skipped, tombstones: 0 })
    }
}

/// A table's cursor that adds the file to its errors, and keeps the file.
#[derive(Debug)]
pub(crate) struct LiveTableCursor {
    live: Arc<LiveTable>,
    cursor: TableCursor,
    /// Told at the end of the tombstones that were stepped over.
    skipped: Option<Arc<dyn SkippedTombstones>>,
    tombstones: u64,
}

impl LiveTableCursor {
    #[inline]
    fn moved(&self, result: Result<(), ReadError>) -> Result<()> {
        result.map_err(|error| self.live.error(error))
    }
}

impl Cursor for LiveTableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        let result = self.cursor.seek_to_first();
        self.moved(result)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let result = self.cursor.seek_to_last();
        self.moved(result)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<()> {
        let result = self.cursor.seek(target);
        self.moved(result)
    }

    fn seek_step(&mut self, step: usize, target: InternalKey<'_>) -> Result<()> {
        let result = self.cursor.seek_step(step, target);
        self.moved(result)
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        let result = self.cursor.seek_before(target);
        self.moved(result)
    }

    fn advise_seek_step(&mut self, step: usize) {
        self.cursor.advise_seek_step(step);
    }

    fn advise_seek_before(&mut self, target: InternalKey<'_>) {
        self.cursor.advise_seek_before(target);
    }

    #[inline]
    fn has_missed_cache(&self) -> bool {
        self.cursor.has_missed_cache()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let result = self.cursor.next();
        self.moved(result)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let result = self.cursor.prev();
        self.moved(result)
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
    fn is_older_version(&self) -> bool {
        self.cursor.is_older_version()
    }

    #[inline]
    fn is_newest_version(&mut self) -> bool {
        self.cursor.is_newest_version()
    }

    #[inline]
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
        self.live.path.to_path_buf()
    }
}

impl Drop for LiveTableCursor {
    fn drop(&mut self) {
        if let Some(skipped) = self.skipped.as_ref().filter(|_| self.tombstones > 0) {
            skipped.in_table(&self.live, self.tombstones);
        }
    }
}
