//! An open table, and the deletion of its file when nobody reads it any more.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use sievedb_format::{RangeTombstoneSource, SequenceNumber};
use sievedb_sstable::{ReadError, Table};

use super::{TableFilters, TableMeta, obsolete::ObsoleteFiles};
use crate::{
    Error,
    file_name::FileName,
    memory::{Charge, MemoryAccount, MemoryUse},
};

/// A table that belongs to a version, or did.
#[derive(Debug)]
pub(crate) struct LiveTable {
    /// What the manifest knows; `level` and `run` are as they were when the table was opened.
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) table: Arc<Table>,
    pub(crate) path: PathBuf,
    filters: ArcSwap<TableFilters>,
    obsolete: AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
    _charge: Charge,
}

impl LiveTable {
    pub(crate) fn new(
        meta: Arc<TableMeta>,
        table: Table,
        filters: TableFilters,
        path: PathBuf,
        obsolete_files: Arc<ObsoleteFiles>,
        memory: &Arc<MemoryAccount>,
    ) -> Self {
        let obsolete = AtomicBool::new(false);
        let charge = memory.charge(MemoryUse::Indexes, table.memory_bytes());
        let (table, filters) = (Arc::new(table), ArcSwap::from_pointee(filters));
        Self { meta, table, path, filters, obsolete, obsolete_files, _charge: charge }
    }

    /// Adds the file to what the table reported.
    pub(crate) fn error(&self, error: ReadError) -> Error {
        table_error(&self.path, error)
    }

    /// The filters at present. Lookups find them in their view, which costs less.
    pub(crate) fn filters(&self) -> Arc<TableFilters> {
        self.filters.load_full()
    }

    /// Puts other filters of this table in place. Lookups use them from the next view on: see
    /// [`Tree::refresh_filters`](crate::read::tree::Tree::refresh_filters).
    pub(crate) fn set_filters(&self, filters: TableFilters) {
        self.filters.store(Arc::new(filters));
    }

    /// The table is part of no version any more: an iterator that keeps it needs no filters.
    pub(crate) fn let_go_of_filters(&self) {
        self.set_filters(self.filters().all_dropped());
    }

    /// The file with the point filter, if it is not the table's.
    pub(crate) fn filter_path(&self) -> Option<PathBuf> {
        let place = self.filters().place.filter(|place| place.file_id != self.meta.id)?;
        let folder = self.path.parent().expect("a table lies in a folder");
        Some(FileName::Filter(place.file_id).path(folder))
    }

    /// The files are to be unlinked once the last reader lets go of the table.
    ///
    /// Called only when the manifest that drops the table is durable.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

/// Adds the file to what the table in it reported.
pub(crate) fn table_error(path: &Path, error: ReadError) -> Error {
    match error {
        ReadError::Io(source) => Error::io("read", path, source),
        ReadError::Corrupt { offset, source } => Error::corrupt(path, offset, source),
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            // The last reader may be a lookup: it must not pay for the unlink.
            if let Some(path) = self.filter_path() {
                self.obsolete_files.push(path);
            }
            self.obsolete_files.push(std::mem::take(&mut self.path));
        }
    }
}

impl RangeTombstoneSource for LiveTable {
    fn is_empty(&self) -> bool {
        self.table.range_tombstones().is_empty()
    }

    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        self.table.range_tombstones().newest_cover(user_key, at)
    }
}
