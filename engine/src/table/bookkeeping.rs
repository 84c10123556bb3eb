//! Memory of the metadata of a table, besides its index and its filters.

use std::path::Path;

use sievedb_filter::filter_block::PIECE_BYTES;
use sievedb_sstable::{BlobUse, TableExpiry};

use super::{ChargedFilter, PrefixFilterPlace, ScanFilters, TableFilters, TableMeta};
use crate::log::BUFFER_BYTES_MAX;

/// Buffers of the log, of the next segment, and of the manifest, and the piece of a filter being
/// loaded.
pub(crate) const BUFFERS_BYTES: usize = 3 * BUFFER_BYTES_MAX + PIECE_BYTES as usize;

/// Length of a table's entry in a new manifest, without its bounds. All entries are encoded
/// together.
pub(crate) const ENCODED_BYTES: usize = 192;

/// Reference counts of an `Arc`.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// A table's number and entry in the manifest's map, whose nodes may be half empty.
const IN_MANIFEST_BYTES: usize = 2 * (size_of::<u64>() + 2 * size_of::<usize>());

/// The table, its filters, and the heads of its bounds.
const IN_VIEW_BYTES: usize = 2 * size_of::<usize>() + 2 * size_of::<u64>();

/// Views in memory: the current one, the next one, and one being read.
const VIEWS: usize = 3;

/// A copy of the metadata for each of two threads that choose compactions and filters.
const IN_CHOICES_BYTES: usize = 2 * (size_of::<TableMeta>() + 2 * size_of::<usize>());

/// Path of the file, its entry in the list of open files, and the cached end of the file.
const FILE_BYTES: usize = 256;

const STORED_BYTES: usize = 192;

/// New filters are built beside the old ones.
const FILTER_SETS: usize = 2;

/// Without the open table, bounds, path and filters for scans.
const TABLE_BYTES: usize = COUNTS_BYTES * 8
    + size_of::<TableMeta>()
    + FILTER_SETS * size_of::<TableFilters>()
    + IN_MANIFEST_BYTES
    + VIEWS * IN_VIEW_BYTES
    + IN_CHOICES_BYTES
    + FILE_BYTES
    + STORED_BYTES
    + ENCODED_BYTES;

/// Metadata of a table's filters for scans.
const SCAN_FILTERS_BYTES: usize = FILTER_SETS
    * (size_of::<ScanFilters>() + 2 * size_of::<ChargedFilter>() + COUNTS_BYTES * 3)
    + 2 * (size_of::<PrefixFilterPlace>() + STORED_BYTES);

/// Returns the bytes of a table's metadata with these bounds: the resident part, and the part
/// copied for all tables at a time.
pub(super) fn table_bytes(meta: &TableMeta, path: &Path) -> usize {
    // The decoded bounds, and those encoded for a new manifest.
    let bounds = 2 * meta.bounds.memory_bytes();
    let extractor = meta.prefix_filter.as_ref().map_or(0, |prefix| 4 * prefix.extractor.len());
    let has_scan_filters = meta.prefix_filter.is_some() || meta.range_filter.is_some();
    let scan_filters = if has_scan_filters { SCAN_FILTERS_BYTES } else { 0 };
    // In the properties, the version, and the two copies of a choice.
    let expiry = meta.expiry.as_ref().map_or(0, |_| 4 * size_of::<TableExpiry>());
    let blobs = 6 * meta.blob_files.len() * size_of::<BlobUse>();
    TABLE_BYTES + bounds + extractor + scan_filters + expiry + blobs + 2 * path.as_os_str().len()
}
