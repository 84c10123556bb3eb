//! Length of the first read of a table. Pure.

use sievedb_filter::filter_block::TRAILER_BYTES_MAX;

use super::{TableMeta, room::in_memory};

/// The top index, before the filters of most tables.
const TOP_INDEX_BYTES: u64 = 4 << 10;
/// Properties and footer, after the filters.
const BEHIND_FILTERS_BYTES: u64 = 2 << 10;
/// Maximum length of an end that is read at once. A longer one is read in parts, some of which are
/// not needed.
const END_BYTES_MAX: u64 = 32 << 10;

/// Returns the bytes at the end of the table that one read should load. They begin at the top index
/// if the filters are small, otherwise at the trailer of the point filter, otherwise after all
/// filters.
pub(super) fn end_bytes(meta: &TableMeta) -> usize {
    let prefix = meta.prefix_filter.as_ref().map(|prefix| prefix.place);
    let places = [meta.filter, prefix, meta.range_filter].into_iter().flatten();
    let in_table = places.filter(|place| place.file_id == meta.id);
    let first = in_table.map(|place| place.offset).min();
    let point = meta.filter.filter(|place| place.file_id == meta.id);
    let trailer = point.map(|place| {
        let end = place.offset.saturating_add(place.bytes);
        end.saturating_sub(TRAILER_BYTES_MAX as u64)
    });
    let starts = [first.map(|first| first.saturating_sub(TOP_INDEX_BYTES)), trailer];
    let bytes = starts.into_iter().flatten().map(|start| meta.bytes.saturating_sub(start));
    let bytes = bytes.filter(|bytes| (BEHIND_FILTERS_BYTES..=END_BYTES_MAX).contains(bytes)).max();
    let without_filters = if first.is_none() { TOP_INDEX_BYTES } else { 0 };
    let bytes = bytes.unwrap_or(BEHIND_FILTERS_BYTES + without_filters).min(meta.bytes);
    in_memory(bytes)
}
