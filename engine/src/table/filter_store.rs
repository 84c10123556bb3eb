//! Finds the filters of tables in their files.

use std::{io, sync::Arc};

use sievedb_sstable::{FilterUnusable, StoredFilter, TableIdentity, TableSource, TableTail};

use crate::{
    FilterRole,
    file_name::FileName,
    prefix_extractor::NamedExtractor,
    table::{
        FilterPlace, LiveTable, PrefixFilterPlace, TableFilters, TableMeta,
        end::end_bytes,
        scan_filters::{FoundFile, StoredWhole},
        store::TableStore,
    },
};

impl TableStore {
    /// Returns the point filter of a table, which is not resident yet.
    pub(super) fn open_point_filter(&self, end: &TableTail, meta: &TableMeta) -> TableFilters {
        let point = meta.filter.map(|place| self.open_filter(end, meta, place)).transpose();
        TableFilters::point_not_resident(meta.filter, point, &self.memory)
    }

    /// Finds prefix and range filter of a new table. Neither is resident yet. A prefix filter must
    /// have been built with `extractor`.
    pub(super) fn find_scan_filters(&self, live: &LiveTable, extractor: &NamedExtractor) {
        let (meta, source) = (&live.meta, live.table.source());
        let prefix = self.prefix_file(source, meta, meta.prefix_filter.as_ref(), extractor);
        let range = meta.range_filter.map(|place| self.scan_file(source, meta, place, None));
        live.add_scan_filters(prefix, range);
    }

    /// Replaces the filters of `live` that `meta` has elsewhere, or not at all: the writer has
    /// rebuilt or removed them. A newly found filter is not resident.
    ///
    /// No change of filters may be in flight, because it would restore the old one.
    pub(crate) fn follow_filters(
        &self,
        live: &LiveTable,
        meta: &TableMeta,
        extractor: &NamedExtractor,
    ) {
        let source = live.table.source();
        let has_moved = |role| live.filter_place(role) != meta.filter_place(role);
        if has_moved(FilterRole::Point) {
            live.set_filters(match TableTail::read(Arc::clone(source), end_bytes(meta)) {
                Ok(end) => self.open_point_filter(&end, meta),
                Err(error) => {
                    let unusable = Err(FilterUnusable::Io(error));
                    TableFilters::point_not_resident(meta.filter, unusable, &self.memory)
                }
            });
        }
        if has_moved(FilterRole::Prefix) {
            let place = meta.prefix_filter.as_ref();
            let found = self.prefix_file(source, meta, place, extractor);
            let place = place.cloned().map(Arc::new);
            live.set_scan_filters(live.scan_filters().with_prefix_file(live, place, found));
        }
        if has_moved(FilterRole::Range) {
            let place = meta.range_filter;
            let found = place.map(|place| self.scan_file(source, meta, place, None));
            live.set_scan_filters(live.scan_filters().with_range_file(live, place, found));
        }
    }

    /// Opens the point filter of the table `meta` in a file of its own. Reads its trailer.
    pub(crate) fn open_filter_file(
        &self,
        meta: &TableMeta,
        place: FilterPlace,
    ) -> Result<StoredFilter, FilterUnusable> {
        let source = self.filter_source(place.file_id)?;
        let (identity, at) = (self.identity(meta), place.into());
        StoredFilter::open_file(source, &identity, place.file_id, at, &self.filter_arena)
    }

    /// Opens the point filter in the file of the table, whose end was read, or in its own file.
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

    /// Finds a prefix or range filter in the file `source` of the table, or in its own file. Its
    /// hashes have this seed, or that of the store. Reads nothing.
    pub(crate) fn scan_file(
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

    /// Finds the prefix filter at `place`, if it was built with `extractor`.
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

    /// Makes scans with `extractor` probe the prefix filter of `live`, if it was built with it, and
    /// no other scans. A newly found filter is not resident.
    ///
    /// No change of filters may be in flight, because it would restore the old one.
    pub(crate) fn fit_extractor(&self, live: &LiveTable, extractor: &NamedExtractor) {
        let filters = live.scan_filters();
        let place = filters.prefix_place.clone();
        let found = self.prefix_file(live.table.source(), &live.meta, place.as_deref(), extractor);
        let found_for = extractor.present().filter(|_| found.is_some());
        if !filters.is_for(found_for.map(|extractor| extractor.hash_seed(self.hash_seed))) {
            live.set_scan_filters(filters.with_prefix_file(live, place, found));
        }
    }
}
