//! What the manifest knows of a table.

use sievedb_format::SequenceNumber;
use sievedb_sstable::TableIdentity;

/// What the manifest knows of a table: enough to check the file and to choose it without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// Number in the file's name.
    pub(crate) id: u64,
    /// Level of the sorted run that holds the table; 0 for flushed tables.
    pub(crate) level: u8,
    /// The sorted run within the level; of two runs of level 0 the larger number is the newer.
    pub(crate) run: u64,
    /// Length of the file, in bytes.
    pub(crate) bytes: u64,
    /// xxh3_64 of the whole file.
    pub(crate) checksum: u64,
    /// Random number that every block checksum of the table covers.
    pub(crate) salt: u64,
    /// Where the point filter lies; `None` if the table has none.
    pub(crate) filter: Option<FilterPlace>,
    /// Where the prefix filter lies; `None` if the table has none.
    pub(crate) prefix_filter: Option<FilterPlace>,
    /// Where the range filter lies; `None` if the table has none.
    pub(crate) range_filter: Option<FilterPlace>,
    /// Sequence number of every entry of an ingested table.
    pub(crate) global_sequence: Option<SequenceNumber>,
    /// Smallest user key, range tombstones included.
    pub(crate) smallest: Box<[u8]>,
    /// Largest user key, range tombstones included. All versions of it are in this table.
    pub(crate) largest: Box<[u8]>,
    /// Number of entries, tombstones included.
    pub(crate) entries: u64,
    /// Number of tombstones.
    pub(crate) tombstones: u64,
    /// Smallest sequence number.
    pub(crate) smallest_sequence: SequenceNumber,
    /// Largest sequence number.
    pub(crate) largest_sequence: SequenceNumber,
    /// Earliest expiry of an entry, in milliseconds of the store clock.
    pub(crate) oldest_expiry_ms: Option<u64>,
    /// Blob files that entries refer to.
    pub(crate) blob_files: Vec<u64>,
}

impl TableMeta {
    /// What the bytes of the table, and of its filters, must repeat.
    pub(crate) fn identity(&self, store_id: u128, hash_seed: u64) -> TableIdentity {
        TableIdentity { store_id, file_id: self.id, salt: self.salt, hash_seed }
    }
}

/// Where a filter lies. It may be rebuilt in a file of its own, so the table does not fix it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterPlace {
    /// The file: the table's own, or one that holds only this filter.
    pub(crate) file_id: u64,
    /// Where the filter block starts, a multiple of 64.
    pub(crate) offset: u64,
    /// Length of the filter block with its trailer.
    pub(crate) bytes: u64,
    /// Checksum stored at the end of the filter's trailer; it covers the whole block.
    pub(crate) checksum: u32,
}

impl FilterPlace {
    /// The place of a filter in the file `file_id`.
    pub(crate) fn in_file(file_id: u64, place: sievedb_sstable::FilterPlace) -> Self {
        let sievedb_sstable::FilterPlace { offset, bytes, checksum, .. } = place;
        Self { file_id, offset, bytes, checksum }
    }
}

impl From<FilterPlace> for sievedb_sstable::FilterPlace {
    fn from(place: FilterPlace) -> Self {
        Self { offset: place.offset, bytes: place.bytes, checksum: place.checksum }
    }
}
