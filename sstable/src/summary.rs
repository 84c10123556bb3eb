//! A finished table, for the manifest.

use sievedb_format::{SequenceNumber, TableBounds};

use crate::filter_state::FilterPlace;

/// What the manifest needs to know of a finished table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableSummary {
    /// Length of the file.
    pub bytes: u64,
    /// xxh3_64 of the whole file.
    pub checksum: u64,
    /// Where the point filter lies; `None` if the table has none.
    pub filter: Option<FilterPlace>,
    /// Where the prefix filter lies; `None` if the table has none.
    pub prefix_filter: Option<FilterPlace>,
    /// Name of the extractor of the prefix filter; `None` if the table has none.
    pub prefix_extractor: Option<Box<str>>,
    /// Where the range filter lies; `None` if the table has none.
    pub range_filter: Option<FilterPlace>,
    /// Range of the user keys, range tombstones included; empty keys in a table without entries.
    pub bounds: TableBounds,
    /// Number of entries, tombstones and range tombstones included.
    pub entries: u64,
    /// Number of tombstones, range tombstones included.
    pub tombstones: u64,
    /// Smallest sequence number; 0 in a table without entries.
    pub smallest_sequence: SequenceNumber,
    /// Largest sequence number; 0 in a table without entries.
    pub largest_sequence: SequenceNumber,
    /// Earliest expiry of an entry, in milliseconds of the store clock.
    pub oldest_expiry_ms: Option<u64>,
}
