//! Sorted versions of keys from logs and tables.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{Error, Result},
    file,
    internal_key::ValueType,
    manifest::TableFile,
    table::{Table, TableCursor},
    wal::{LogEntry, Memtable},
};

/// Directory and order of the tables of a column family.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) comparator: String,
}

impl Place {
    pub(crate) fn open(&self, table: &TableFile) -> Result<Table> {
        let path = file::numbered(&self.directory, table.number, "sst");
        match Table::open(&path, table, &self.comparator) {
            Err(Error::Io { source, .. })
                if table.path_id != 0 && source.kind() == std::io::ErrorKind::NotFound =>
            {
                let feature = format!(
                    "the table is in the directory number {} of `db_paths`; copy all tables into \
                     the directory of the database",
                    table.path_id
                );
                Err(Error::unsupported(&path, feature))
            }
            opened => opened,
        }
    }
}

/// Versions of keys in order, from the logs or from tables with disjoint key ranges.
#[derive(Debug)]
pub(crate) enum Run {
    Log(LogRun),
    Tables(Box<TableRun>),
}

/// Entries of the logs.
#[derive(Debug)]
pub(crate) struct LogRun {
    memtable: Arc<Memtable>,
    /// Number of the next entry.
    next: usize,
    /// Directory of the logs, for errors.
    directory: PathBuf,
}

/// Entries of tables in key order. Keeps one table open.
#[derive(Debug)]
pub(crate) struct TableRun {
    place: Place,
    later: VecDeque<TableFile>,
    cursor: TableCursor,
}

impl Run {
    /// Returns the entries of the logs, or `None` if there are none.
    pub(crate) fn of_logs(memtable: Arc<Memtable>, directory: &Path) -> Option<Self> {
        let has_entries = !memtable.entries.is_empty();
        let run = LogRun { memtable, next: 1, directory: directory.to_owned() };
        has_entries.then_some(Self::Log(run))
    }

    /// Returns the entries of the tables, or `None` if they have none.
    pub(crate) fn of_tables(place: Place, tables: Vec<TableFile>) -> Result<Option<Self>> {
        let mut later = VecDeque::from(tables);
        let Some(first) = later.pop_front() else { return Ok(None) };
        let cursor = TableCursor::new(place.open(&first)?)?;
        let mut run = Self::Tables(Box::new(TableRun { place, later, cursor }));
        Ok(run.advance()?.then_some(run))
    }

    /// Moves to the next version. Returns `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Log(run) => {
                run.next += 1;
                Ok(run.next <= run.memtable.entries.len())
            }
            Self::Tables(run) => {
                while !run.cursor.advance()? {
                    let Some(next) = run.later.pop_front() else { return Ok(false) };
                    run.cursor = TableCursor::new(run.place.open(&next)?)?;
                }
                Ok(true)
            }
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Log(run) => &run.entry().key,
            Self::Tables(run) => run.cursor.key(),
        }
    }

    pub(crate) fn sequence(&self) -> u64 {
        match self {
            Self::Log(run) => run.entry().sequence,
            Self::Tables(run) => run.cursor.sequence(),
        }
    }

    pub(crate) fn value_type(&self) -> ValueType {
        match self {
            Self::Log(run) => run.entry().value_type,
            Self::Tables(run) => run.cursor.value_type(),
        }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Self::Log(run) => &run.entry().value,
            Self::Tables(run) => run.cursor.value(),
        }
    }

    /// Returns the path of the table, or the directory of the logs.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Log(run) => &run.directory,
            Self::Tables(run) => run.cursor.path(),
        }
    }

    /// Returns the offset of the block, 0 for a log.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Log(_) => 0,
            Self::Tables(run) => run.cursor.offset(),
        }
    }
}

impl LogRun {
    fn entry(&self) -> &LogEntry {
        &self.memtable.entries[self.next - 1]
    }
}
