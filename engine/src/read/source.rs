//! Memtables and tables as the cursors that a merge takes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::InternalKey;
use sievedb_memtable::MemtableCursor;
use sievedb_sstable::{CacheUse, ReadError, Table, TableCursor};

use crate::{
    Result,
    iter::{
        bounds::KeyBounds,
        cursor::Cursor,
        run::{RunCursor, SortedRun, tables_within},
    },
    read::scan_question::ScanQuestion,
    read::view::PlacedMemtable,
    stats::ThreadCounters,
    table::LiveTable,
    version::Run,
};

/// A source of sorted entries: a memtable or a sorted run.
#[derive(Debug)]
pub(crate) enum Source {
    Memtable(MemtableCursor, Arc<Path>),
    Run(RunCursor<TableRun>),
}

impl Source {
    /// The entries of a memtable of the store in `folder`.
    pub(crate) fn memtable(placed: &PlacedMemtable, folder: &Arc<Path>) -> Self {
        Self::Memtable(Arc::clone(&placed.memtable).cursor(), Arc::clone(folder))
    }

    /// The entries of a sorted run, from the tables that may have keys within `bounds`. `None` if there
    /// are no such tables, as far as bounds and filters tell.
    pub(crate) fn run(
        run: &Run,
        bounds: &KeyBounds,
        question: ScanQuestion<'_>,
        cache_use: CacheUse,
        counters: &ThreadCounters,
    ) -> Option<Self> {
        let tables = TableRun { tables: Arc::clone(run.tables()), cache_use };
        let window = question.narrow(run, tables_within(&tables, bounds), counters);
        (!window.is_empty()).then(|| Self::Run(RunCursor::over(tables, window)))
    }

    /// The entries of tables in key order, which are read once: they do not displace what lookups
    /// keep in the cache.
    pub(crate) fn tables_once(tables: Vec<Arc<LiveTable>>) -> Self {
        let run = TableRun { tables: tables.into(), cache_use: CacheUse::Bypass };
        Self::Run(RunCursor::new(run, &KeyBounds::ALL))
    }
}

/// Forwards to the memtable's cursor, which cannot fail, or to the run's.
macro_rules! forward {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        match $self {
            Self::Memtable(cursor, _) => {
                cursor.$method($($argument),*);
                Ok(())
            }
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

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        forward!(self, seek_before(target))
    }

    fn next(&mut self) -> Result<()> {
        forward!(self, next())
    }

    fn prev(&mut self) -> Result<()> {
        forward!(self, prev())
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        match self {
            Self::Memtable(cursor, _) => cursor.key(),
            Self::Run(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> Bytes {
        match self {
            Self::Memtable(cursor, _) => cursor.value(),
            Self::Run(cursor) => cursor.value(),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Memtable(_, folder) => folder.to_path_buf(),
            Self::Run(cursor) => cursor.path(),
        }
    }
}

/// The tables of a sorted run.
#[derive(Debug)]
pub(crate) struct TableRun {
    tables: Arc<[Arc<LiveTable>]>,
    cache_use: CacheUse,
}

impl SortedRun for TableRun {
    type Cursor = LiveTableCursor;

    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn smallest(&self, index: usize) -> &[u8] {
        &self.tables[index].meta.smallest
    }

    fn largest(&self, index: usize) -> &[u8] {
        &self.tables[index].meta.largest
    }

    fn cursor(&self, index: usize) -> Result<LiveTableCursor> {
        let live = Arc::clone(&self.tables[index]);
        let cursor = Table::cursor(Arc::clone(&live.table), self.cache_use);
        Ok(LiveTableCursor { live, cursor })
    }
}

/// A table's cursor that adds the file to its errors, and keeps the file.
#[derive(Debug)]
pub(crate) struct LiveTableCursor {
    live: Arc<LiveTable>,
    cursor: TableCursor,
}

impl LiveTableCursor {
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

    fn seek_before(&mut self, target: InternalKey<'_>) -> Result<()> {
        let result = self.cursor.seek_before(target);
        self.moved(result)
    }

    fn next(&mut self) -> Result<()> {
        let result = self.cursor.next();
        self.moved(result)
    }

    fn prev(&mut self) -> Result<()> {
        let result = self.cursor.prev();
        self.moved(result)
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        self.cursor.key()
    }

    fn value(&self) -> Bytes {
        self.cursor.value()
    }

    fn path(&self) -> PathBuf {
        self.live.path.clone()
    }
}
