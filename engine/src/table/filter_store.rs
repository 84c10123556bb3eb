//! The filters of tables in their files: found when a table is opened, written when one is built
//! anew.

use std::{io, sync::Arc};

use sievedb_filter::{RangeFilter, TableFilter};
use sievedb_sstable::{
    FilterUnusable, PrefixFilter, StoredFilter, TableIdentity, TableSource, TableTail,
    write_filter_file, write_range_filter_file,
};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    prefix_extractor::NamedExtractor,
    table::{
        FilterPlace, LiveTable, NewPlace, PrefixFilterPlace, TableFilters, TableMeta,
        scan_filters::{FoundFile, StoredWhole},
        store::TableStore,
        unfinished::{FileSink, Unfinished},
    },
};

/// A filter that was rebuilt.
#[derive(Debug)]
pub(crate) enum BuiltFilter {
    Point(TableFilter),
    Prefix(PrefixFilter),
    Range(RangeFilter),
}

/// A filter that was rebuilt and is in a file.
#[derive(Debug)]
pub(crate) enum StoredAnew {
    Point(FilterPlace, StoredFilter),
    Prefix(PrefixFilterPlace, StoredWhole),
    Range(FilterPlace, StoredWhole),
}

impl BuiltFilter {
    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Point(filter) => filter.memory_bytes(),
            Self::Prefix(prefix) => prefix.filter.memory_bytes(),
            Self::Range(filter) => filter.memory_bytes(),
        }
    }
}

impl StoredAnew {
    /// Where it lies.
    pub(crate) fn new_place(&self) -> NewPlace {
        match self {
            Self::Point(place, _) => NewPlace::Point(Some(*place)),
            Self::Prefix(place, _) => NewPlace::Prefix(Some(place.clone())),
            Self::Range(place, _) => NewPlace::Range(Some(*place)),
        }
    }
}

impl TableStore {
    /// Returns the point filter of a table, which is not in memory yet.
    pub(super) fn open_point_filter(&self, end: &TableTail, meta: &TableMeta) -> TableFilters {
        let point = meta.filter.map(|place| self.open_filter(end, meta, place)).transpose();
        TableFilters::point_not_resident(meta.filter, point, &self.memory)
    }

    /// Finds the filters of a new table that scans ask. None of them is in memory yet. That for
    /// prefixes only if it was built with `extractor`: stored prefixes are of use to the extractor
    /// that found them, and to no other.
    pub(super) fn find_scan_filters(&self, live: &LiveTable, extractor: &NamedExtractor) {
        let (meta, source) = (&live.meta, live.table.source());
        let prefix = self.prefix_file(source, meta, meta.prefix_filter.as_ref(), extractor);
        let range = meta.range_filter.map(|place| self.scan_file(source, meta, place, None));
        live.add_scan_filters(prefix, range);
    }

    /// The point filter of the table `meta` at `place`, in a file of its own. Reads its trailer.
    fn open_filter_file(
        &self,
        meta: &TableMeta,
        place: FilterPlace,
    ) -> Result<StoredFilter, FilterUnusable> {
        let source = self.filter_source(place.file_id)?;
        let (identity, at) = (self.identity(meta), place.into());
        StoredFilter::open_file(source, &identity, place.file_id, at, &self.filter_arena)
    }

    /// The same in the file of the table, whose end was read, or in a file of its own.
    fn open_filter(
        &self,
        end: &TableTail,
        meta: &TableMeta,
        place: FilterPlace,
    ) -> Result<StoredFilter, FilterUnusable> {
        if place.file_id != meta.id {
            return self.open_filter_file(meta, place);
        }
        let identity = self.identity(meta);
        StoredFilter::open_with_tail(end, &identity, place.into(), &self.filter_arena)
    }

    /// A filter that scans ask, at `place`: in the file `source` of the table, or in a file of its
    /// own. Its hashes have this seed, or that of the store. Reads nothing.
    fn scan_file(
        &self,
        source: &Arc<dyn TableSource>,
        meta: &TableMeta,
        place: FilterPlace,
        hash_seed: Option<u64>,
    ) -> Result<StoredWhole, FilterUnusable> {
        let identity = self.identity(meta);
        let hash_seed = hash_seed.unwrap_or(identity.hash_seed);
        let identity = TableIdentity { hash_seed, ..identity };
        let own_file = Some(place.file_id).filter(|&id| id != meta.id);
        let source = match own_file {
            Some(id) => self.filter_source(id)?,
            None => Arc::clone(source),
        };
        Ok(StoredWhole::new(source, identity, place.into(), own_file))
    }

    /// The prefix filter at `place`, if it was built with `extractor`.
    fn prefix_file(
        &self,
        source: &Arc<dyn TableSource>,
        meta: &TableMeta,
        place: Option<&PrefixFilterPlace>,
        extractor: &NamedExtractor,
    ) -> FoundFile {
        let (place, extractor) = place.zip(extractor.present())?;
        if *place.extractor != *extractor.name() {
            return None;
        }
        let hash_seed = extractor.hash_seed(self.hash_seed);
        Some(self.scan_file(source, meta, place.place, Some(hash_seed)))
    }

    fn filter_source(&self, file_id: u64) -> Result<Arc<dyn TableSource>, FilterUnusable> {
        let source = self.files.source(file_id, FileName::Filter(file_id).path(&self.folder));
        source.map_err(|error| FilterUnusable::Io(io::Error::other(error)))
    }

    /// Has the prefix filter of `live` answer for `extractor`, if it was built with it, and for no
    /// other one. It is not in memory then if it was for another one before.
    ///
    /// No change of filters may be in flight, or it would bring the old one back.
    pub(crate) fn fit_extractor(&self, live: &LiveTable, extractor: &NamedExtractor) {
        let filters = live.scan_filters();
        let place = filters.prefix_place.clone();
        let found = self.prefix_file(live.table.source(), &live.meta, place.as_deref(), extractor);
        let wanted = extractor.present().filter(|_| found.is_some());
        if !filters.is_for(wanted.map(|extractor| extractor.hash_seed(self.hash_seed))) {
            live.set_scan_filters(filters.with_prefix_file(live, place, found));
        }
    }

    /// Writes `filter`, of the table `meta`, into a file of its own. The data is durable at return
    /// if `sync` says so, the entry in the folder is not.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. What was written by then is obsolete.
    pub(crate) fn write_filter(
        &self,
        meta: &TableMeta,
        filter: &BuiltFilter,
        sync: bool,
    ) -> Result<NewPlace> {
        let file_id = self.new_file_id();
        let path = FileName::Filter(file_id).path(&self.folder);
        let file = self.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let mut unfinished = Unfinished::new(path, &self.obsolete_files);
        let path = &unfinished.path;
        let (mut sink, identity) = (FileSink(Arc::clone(&file)), self.identity(meta));
        let written = match filter {
            BuiltFilter::Point(filter) => write_filter_file(&mut sink, &identity, file_id, filter),
            BuiltFilter::Prefix(PrefixFilter { filter, hash_seed, .. }) => {
                let identity = TableIdentity { hash_seed: *hash_seed, ..identity };
                write_filter_file(&mut sink, &identity, file_id, filter)
            }
            BuiltFilter::Range(filter) => {
                write_range_filter_file(&mut sink, &identity, file_id, filter)
            }
        };
        let place = written.map_err(|error| Error::io("write", path, error))?;
        if sync {
            file.sync_data().map_err(|error| Error::io(SYNC, path, error))?;
        }
        unfinished.finish();
        let place = FilterPlace::in_file(file_id, place);
        Ok(match filter {
            BuiltFilter::Point(_) => NewPlace::Point(Some(place)),
            BuiltFilter::Prefix(PrefixFilter { extractor, .. }) => {
                NewPlace::Prefix(Some(PrefixFilterPlace { place, extractor: extractor.clone() }))
            }
            BuiltFilter::Range(_) => NewPlace::Range(Some(place)),
        })
    }

    /// The filter that [`write_filter`](Self::write_filter) has just written, read back and found
    /// good. A prefix filter has hashes of this seed. `None` for no place.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub(crate) fn read_back(
        &self,
        live: &LiveTable,
        place: NewPlace,
        prefix_seed: u64,
    ) -> Result<Option<StoredAnew>, FilterUnusable> {
        let (meta, source) = (&live.meta, Arc::clone(live.table.source()));
        Ok(match place {
            NewPlace::Point(Some(place)) => {
                let stored = self.open_filter_file(meta, place)?;
                stored.check()?;
                Some(StoredAnew::Point(place, stored))
            }
            NewPlace::Prefix(Some(prefix)) => {
                let stored = self.scan_file(&source, meta, prefix.place, Some(prefix_seed))?;
                stored.check_prefix()?;
                Some(StoredAnew::Prefix(prefix, stored))
            }
            NewPlace::Range(Some(place)) => {
                let stored = self.scan_file(&source, meta, place, None)?;
                stored.check_range(meta)?;
                Some(StoredAnew::Range(place, stored))
            }
            NewPlace::Point(None) | NewPlace::Prefix(None) | NewPlace::Range(None) => None,
        })
    }
}
