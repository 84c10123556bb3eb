//! Replaces a filter by a rebuilt one.

use std::sync::Arc;

use super::{Filters, Held, build::StoredFilterFile, memory};
use crate::{
    FilterRole,
    read::tree::Tree,
    sync::atomic::Ordering::SeqCst,
    table::{LiveTable, ScanFilters, TableFilters, scan_filters::ScanRoles, store::TableStore},
};

/// A filter of a table that is ready to replace another. No other change of filters starts
/// meanwhile, because it would restore the old one.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    filters: NewFilters,
    live: &'a LiveTable,
    _held: Held<'a>,
}

/// The filters of a table, with the rebuilt one.
#[derive(Debug)]
enum NewFilters {
    Point(Box<TableFilters>),
    Scan(ScanFilters),
}

impl Filters {
    /// Prepares the filter `new` of `live` for `role`, or none. Loads it if there is room; the
    /// background job loads what the plan adds.
    ///
    /// Must come before the manifest is locked: see [`hold`](Self::hold).
    pub(super) fn prepare<'a>(
        &'a self,
        store: &TableStore,
        tree: &Tree,
        live: &'a LiveTable,
        role: FilterRole,
        new: Option<StoredFilterFile>,
    ) -> Replacement<'a> {
        let held = self.hold();
        let bytes_max = store.memory.filter_bytes_max();
        let has_room = |bytes| {
            tree.filter_policy().memory_bytes_max.is_none()
                && memory::has_room(store, bytes, bytes_max)
        };
        let (filters, scan_filters) = (live.filters(), live.scan_filters());
        let scan = |rebuilt: ScanFilters| {
            // Loads only the rebuilt filter; the background job loads others.
            let loaded = rebuilt.loaded(live, ScanRoles::only(role), has_room).0;
            NewFilters::Scan(loaded.unwrap_or(rebuilt))
        };
        let filters = match (role, new) {
            (_, Some(StoredFilterFile::Point(place, stored))) => {
                let fits = has_room(stored.memory_bytes(f64::INFINITY));
                let rebuilt = filters.rebuilt(place, stored);
                let loaded = if fits { rebuilt.loaded(f64::INFINITY) } else { None };
                NewFilters::Point(Box::new(loaded.unwrap_or(rebuilt)))
            }
            (_, Some(StoredFilterFile::Prefix(place, stored))) => {
                let place = Some(Arc::new(place));
                scan(scan_filters.with_prefix_file(live, place, Some(Ok(stored))))
            }
            (_, Some(StoredFilterFile::Range(place, stored))) => {
                scan(scan_filters.with_range_file(live, Some(place), Some(Ok(stored))))
            }
            (FilterRole::Point, None) => NewFilters::Point(Box::new(filters.without_point())),
            (FilterRole::Prefix, None) => scan(scan_filters.with_prefix_file(live, None, None)),
            (FilterRole::Range, None) => scan(scan_filters.with_range_file(live, None, None)),
        };
        Replacement { filters, live, _held: held }
    }

    /// Makes lookups and scans of `tree` probe the new filter.
    pub(super) fn replace(&self, tree: &Tree, replacement: Replacement<'_>) {
        let Replacement { filters, live, _held } = replacement;
        debug_assert!(!tree.is_dropped(), "the manifest names its tables");
        match filters {
            NewFilters::Point(filters) => {
                debug_assert!(filters.place != live.filters().place, "in another file");
                live.set_filters(*filters);
                tree.refresh_filters();
            }
            NewFilters::Scan(filters) => live.set_scan_filters(filters),
        }
        self.is_due.store(true, SeqCst);
    }
}
