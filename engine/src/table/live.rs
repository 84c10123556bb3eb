//! An open table, and the removal of its file after its last reader.

use std::{
    borrow::Cow,
    error::Error as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use sievedb_format::SequenceNumber;
use sievedb_sstable::{ReadError, Table};

use super::{
    FilterPlace, ScanFilters, TableFilters, TableMeta,
    blobs::{Blob, BlobFile, find_blob},
    bookkeeping::table_bytes,
    files::table_error,
    obsolete::ObsoleteFiles,
    quarantine::Quarantine,
    scan_filters::{FoundFile, PresentScanFilters, ScanRoles},
};
use crate::{
    Error, FilterRole, QuarantinedTable, Result,
    file_name::FileName,
    listener::{Event, EventListener, notify},
    memory::{Charge, MemoryAccount, MemoryUse},
};

/// A table that belongs to a version, or did.
#[derive(Debug)]
pub(crate) struct LiveTable {
    /// Metadata. `level` and `run` are those at the open of the table.
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) table: Arc<Table>,
    /// Shared with the open file.
    pub(crate) path: Arc<Path>,
    filters: ArcSwap<TableFilters>,
    /// `None` without prefix and range filters.
    scan_filters: ArcSwapOption<ScanFilters>,
    /// Tombstones that scans skipped.
    skipped: AtomicU64,
    /// They may make a compaction due, and no worker has searched for it.
    may_be_due: AtomicBool,
    pub(crate) quarantine: Quarantine,
    /// Files of the values that entries refer to.
    pub(crate) blobs: Box<[Arc<BlobFile>]>,
    obsolete: AtomicBool,
    /// Another table shares its files.
    replaced: AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
    _index: Charge,
    _bookkeeping: Charge,
}

impl LiveTable {
    pub(crate) fn new(
        meta: Arc<TableMeta>,
        table: Arc<Table>,
        filters: Arc<TableFilters>,
        blobs: Box<[Arc<BlobFile>]>,
        path: Arc<Path>,
        obsolete_files: Arc<ObsoleteFiles>,
        memory: &Arc<MemoryAccount>,
    ) -> Self {
        memory.begin_table();
        let index = memory.charge(MemoryUse::Indexes, table.memory_bytes());
        let bytes = size_of::<Self>() + table_bytes(&meta, &path);
        let bookkeeping = memory.charge(MemoryUse::Bookkeeping, bytes);
        Self {
            meta,
            table,
            path,
            filters: ArcSwap::new(filters),
            scan_filters: ArcSwapOption::empty(),
            skipped: AtomicU64::new(0),
            may_be_due: AtomicBool::new(false),
            quarantine: Quarantine::default(),
            blobs,
            obsolete: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            obsolete_files,
            _index: index,
            _bookkeeping: bookkeeping,
        }
    }

    /// Returns the table with the global sequence number `sequence`, before any of its blocks is
    /// read. Shares the open file and the filters, and takes over the decision which files stay.
    pub(crate) fn ingested_at(&self, sequence: SequenceNumber) -> Self {
        let meta = TableMeta {
            global_sequence: Some(sequence),
            smallest_sequence: sequence,
            largest_sequence: sequence,
            ..TableMeta::clone(&self.meta)
        };
        self.table.set_global_sequence(sequence);
        self.replaced.store(true, Ordering::SeqCst);
        let same = Self::new(
            Arc::new(meta),
            Arc::clone(&self.table),
            self.filters(),
            self.blobs.clone(),
            Arc::clone(&self.path),
            Arc::clone(&self.obsolete_files),
            self.memory(),
        );
        same.scan_filters.store(self.scan_filters.load_full());
        same
    }

    /// Notifies `listener` if the point filter is unusable.
    pub(crate) fn report(&self, keyspace: &str, listener: Option<&dyn EventListener>) {
        if let (Some(reason), Some(listener)) = (self.filters().unusable(), listener) {
            let (keyspace, table_id) = (keyspace.to_owned(), self.meta.id);
            notify(listener, &Event::FilterUnusable { keyspace, table_id, reason });
        }
    }

    pub(crate) fn error(&self, error: ReadError) -> Error {
        table_error(&self.path, error)
    }

    /// Returns the location of the value to which an entry refers.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the stored value is no reference to a file of the table.
    pub(crate) fn blob(&self, stored: &[u8]) -> Result<Blob> {
        find_blob(&self.blobs, stored).map_err(|source| Error::corrupt(&*self.path, 0, source))
    }

    /// Returns the current point filter. Lookups use that of their view, which costs less.
    pub(crate) fn filters(&self) -> Arc<TableFilters> {
        self.filters.load_full()
    }

    /// Replaces the point filter. Lookups use it from the next view on: see
    /// [`Tree::refresh_filters`](crate::read::tree::Tree::refresh_filters).
    pub(crate) fn set_filters(&self, filters: TableFilters) {
        self.filters.store(Arc::new(filters));
        self.keep_no_filters_if_obsolete();
    }

    /// Returns the current filters for scans.
    pub(crate) fn scan_filters(&self) -> PresentScanFilters {
        PresentScanFilters(self.scan_filters.load_full())
    }

    /// Adds the filters for scans that the metadata names, right after [`new`](Self::new). None is
    /// resident yet.
    pub(super) fn add_scan_filters(&self, prefix: FoundFile, range: FoundFile) {
        self.store_scan_filters(ScanFilters::not_resident(self, prefix, range));
    }

    fn store_scan_filters(&self, filters: ScanFilters) {
        self.scan_filters.store((!filters.is_none()).then(|| Arc::new(filters)));
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryAccount> {
        self._index.account()
    }

    /// Replaces the filters for scans.
    pub(crate) fn set_scan_filters(&self, filters: ScanFilters) {
        self.store_scan_filters(filters);
        self.keep_no_filters_if_obsolete();
    }

    /// Returns the tombstones that scans skipped since the table was opened.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Counts tombstones that a scan skipped, or merge operands that a read applied. Returns `true`
    /// if a compaction may be due: if `makes_due` is true of their number before, the added number
    /// and that of all entries.
    pub(crate) fn add_skipped(
        &self,
        tombstones: u64,
        makes_due: impl FnOnce(u64, u64, u64) -> bool,
    ) -> bool {
        let before = self.skipped.fetch_add(tombstones, Ordering::Relaxed);
        let may_be_due = makes_due(before, tombstones, self.meta.entries);
        if may_be_due {
            self.may_be_due.store(true, Ordering::Relaxed);
        }
        may_be_due
    }

    /// Returns whether [`add_skipped`](Self::add_skipped) has returned `true` since the last call.
    pub(crate) fn take_may_be_due(&self) -> bool {
        self.may_be_due.load(Ordering::Relaxed) && self.may_be_due.swap(false, Ordering::Relaxed)
    }

    /// Drops the filters, and cached blocks of a map after the last reader: the table is part of no
    /// version, and iterators need no filters.
    pub(crate) fn let_go_of_memory(&self) {
        self.table.evict_when_dropped();
        self.filters.store(Arc::new(self.filters().dropped()));
        if let Some(without) = self.scan_filters().without_others(ScanRoles::NONE) {
            self.store_scan_filters(without);
        }
    }

    /// Drops filters that were set while the table left its version. One of the two threads sees
    /// the change of the other.
    fn keep_no_filters_if_obsolete(&self) {
        if self.obsolete.load(Ordering::SeqCst) {
            self.let_go_of_memory();
        }
    }

    /// Returns the current metadata of the table in this run.
    pub(crate) fn present_meta(&self, level: u8, run: u64) -> Cow<'_, TableMeta> {
        let (meta, filter, scan_filters) = (&*self.meta, self.filters().place, self.scan_filters());
        let (prefix_filter, range_filter) =
            (scan_filters.prefix_place.as_deref(), scan_filters.range_place);
        let is_as_opened = (meta.level, meta.run, meta.filter) == (level, run, filter)
            && (meta.prefix_filter.as_ref(), meta.range_filter) == (prefix_filter, range_filter);
        if is_as_opened {
            return Cow::Borrowed(meta);
        }
        let prefix_filter = prefix_filter.cloned();
        Cow::Owned(TableMeta { level, run, filter, prefix_filter, range_filter, ..meta.clone() })
    }

    /// Returns the current location of the filter for this role; `None` without one.
    pub(crate) fn filter_place(&self, role: FilterRole) -> Option<FilterPlace> {
        match role {
            FilterRole::Point => self.filters().place,
            FilterRole::Prefix => {
                self.scan_filters().prefix_place.as_ref().map(|prefix| prefix.place)
            }
            FilterRole::Range => self.scan_filters().range_place,
        }
    }

    /// Returns the bytes of all filters if they were fully resident.
    pub(crate) fn filter_bytes_whole(&self) -> u64 {
        self.filters().memory_bytes_at(f64::INFINITY) + self.scan_filters().bytes_of(ScanRoles::ALL)
    }

    /// Returns the filters that are unusable in whole or in part.
    pub(crate) fn unusable_filters(&self) -> Vec<FilterRole> {
        let (filters, scan_filters) = (self.filters(), self.scan_filters());
        let all = [
            (FilterRole::Point, filters.is_point_unusable()),
            (FilterRole::Prefix, scan_filters.is_prefix_unusable()),
            (FilterRole::Range, scan_filters.is_range_unusable()),
        ];
        all.into_iter().filter_map(|(role, is_unusable)| is_unusable.then_some(role)).collect()
    }

    /// Describes the table on `level` of `keyspace`; `None` if it is not quarantined.
    pub(crate) fn quarantined(&self, keyspace: &str, level: u8) -> Option<QuarantinedTable> {
        let present = self.quarantine.present()?;
        let error: &Error = &present.error;
        let reason = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        Some(QuarantinedTable {
            keyspace: keyspace.to_owned(),
            table_id: self.meta.id,
            path: self.path.to_path_buf(),
            level,
            bytes: self.meta.bytes,
            reason,
        })
    }

    /// Returns the file of the filter for this role, if it is not the table's file.
    pub(crate) fn filter_path(&self, role: FilterRole) -> Option<PathBuf> {
        let place = self.filter_place(role).filter(|place| place.file_id != self.meta.id)?;
        let folder = self.path.parent().expect("a table lies in a folder");
        Some(FileName::Filter(place.file_id).path(folder))
    }

    /// Removes the files after the last reader, and frees the filters after the last lookup.
    ///
    /// Requires that no manifest names the table, durably.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::SeqCst);
        self.obsolete_files.retire(self.meta.id);
        self.let_go_of_memory();
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        self.memory().end_table();
        if !*self.obsolete.get_mut() && !*self.replaced.get_mut() {
            self.blobs.iter().for_each(|file| file.keep());
        }
        if *self.obsolete.get_mut() {
            // The last reader may be a lookup, which must not pay for the unlink.
            for role in FilterRole::ALL {
                if let Some(path) = self.filter_path(role) {
                    self.obsolete_files.push(path);
                }
            }
            let path = self.path.to_path_buf();
            self.obsolete_files.push_part_of_version(path, self.meta.bytes);
        }
    }
}
