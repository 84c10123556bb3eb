//! What must be known of each table besides its index and its filters, in bytes.

use std::path::Path;

use sievedb_filter::filter_block::PIECE_BYTES;

use super::{ChargedFilter, LiveTable, PrefixFilterPlace, ScanFilters, TableFilters, TableMeta};
use crate::log::BUFFER_BYTES_MAX;

/// Buffers of the log, of the segment that follows it, and of the manifest, and the piece of a
/// filter that is on its way from its file.
pub(crate) const BUFFERS_BYTES: usize = 3 * BUFFER_BYTES_MAX + PIECE_BYTES as usize;

/// The length of a table's entry in a manifest that is restarted, without its bounds. All of them
/// are encoded together.
pub(crate) const ENCODED_BYTES: usize = 192;

/// Reference counts of an `Arc`.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// A table's number and entry in the manifest's map, whose nodes may be half empty.
const IN_MANIFEST_BYTES: usize = 2 * (size_of::<u64>() + 2 * size_of::<usize>());

/// What a view has for each table: itself, its filters, and the heads of its bounds.
const IN_VIEW_BYTES: usize = 2 * size_of::<usize>() + 2 * size_of::<u64>();

/// Views that are in memory at a time: the present one, the next one, and one that is still read.
const VIEWS: usize = 3;

/// What it takes to choose among all tables, for compactions and for filters, each on a thread of
/// their own, by a copy of what is known of the table.
const IN_CHOICES_BYTES: usize = 2 * (size_of::<TableMeta>() + 2 * size_of::<usize>());

/// The table's file: its path, the list of open files, and what is kept of the file's end.
const FILE_BYTES: usize = 256;

/// A filter in its file.
const STORED_BYTES: usize = 192;

/// Filters are changed by new ones beside the old ones.
const FILTER_SETS: usize = 2;

/// Bytes of what is known of a table, apart from bounds, path and filters for scans.
const TABLE_BYTES: usize = COUNTS_BYTES * 8
    + size_of::<LiveTable>()
    + size_of::<TableMeta>()
    + FILTER_SETS * size_of::<TableFilters>()
    + IN_MANIFEST_BYTES
    + VIEWS * IN_VIEW_BYTES
    + IN_CHOICES_BYTES
    + FILE_BYTES
    + STORED_BYTES
    + ENCODED_BYTES;

/// Bytes of a table's filters for scans besides their memory, if it has any.
const SCAN_FILTERS_BYTES: usize = FILTER_SETS
    * (size_of::<ScanFilters>() + 2 * size_of::<ChargedFilter>() + COUNTS_BYTES * 3)
    + 2 * (size_of::<PrefixFilterPlace>() + STORED_BYTES);

/// Bytes of what is known of a table with these bounds, apart from its index and its filters: what
/// stays, and what is made of all tables at a time.
pub(super) fn table_bytes(meta: &TableMeta, path: &Path) -> usize {
    // As they are known, and encoded for a new manifest.
    let bounds = 2 * meta.bounds.memory_bytes();
    let extractor = meta.prefix_filter.as_ref().map_or(0, |prefix| 4 * prefix.extractor.len());
    let has_scan_filters = meta.prefix_filter.is_some() || meta.range_filter.is_some();
    let scan_filters = if has_scan_filters { SCAN_FILTERS_BYTES } else { 0 };
    TABLE_BYTES + bounds + extractor + scan_filters + 2 * path.as_os_str().len()
}
