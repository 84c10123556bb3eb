//! Metadata of a table in the manifest.

use sievedb_format::{SequenceNumber, TableBounds};
use sievedb_sstable::{BlobUse, TableExpiry, TableIdentity};

use crate::FilterRole;

/// Level and run of a new table in its keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub(crate) level: u8,
    pub(crate) run: u64,
}

/// Metadata of a table: enough to verify the file and to choose it without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// Number in the file name.
    pub(crate) id: u64,
    /// Level of the sorted run; 0 for flushed tables.
    pub(crate) level: u8,
    /// The sorted run within the level; the larger of two runs on level 0 is newer.
    pub(crate) run: u64,
    /// Length of the file, in bytes.
    pub(crate) bytes: u64,
    /// xxh3_64 of the whole file.
    pub(crate) checksum: u64,
    /// Random number that every block checksum of the table covers.
    pub(crate) salt: u64,
    pub(crate) filter: Option<FilterPlace>,
    pub(crate) prefix_filter: Option<PrefixFilterPlace>,
    pub(crate) range_filter: Option<FilterPlace>,
    /// Sequence number of every entry of an ingested table.
    pub(crate) global_sequence: Option<SequenceNumber>,
    /// Range of the user keys, including range tombstones. All versions of a key of a run are in
    /// one table.
    pub(crate) bounds: TableBounds,
    /// Number of entries, including tombstones.
    pub(crate) entries: u64,
    /// Number of tombstones, including range tombstones.
    pub(crate) tombstones: u64,
    pub(crate) range_tombstones: u64,
    pub(crate) smallest_sequence: SequenceNumber,
    pub(crate) largest_sequence: SequenceNumber,
    /// The entries that expire; `None` if there are none.
    pub(crate) expiry: Option<Box<TableExpiry>>,
    /// Blob files to which entries refer, ascending.
    pub(crate) blob_files: Vec<BlobUse>,
    /// Largest number of blob files whose values alternate in key order: see
    /// [`blob_spans`](super::blob_spans).
    pub(crate) blob_depth: u64,
    /// Time after which no entry was written, in milliseconds of the store clock. `None` for a
    /// table of an earlier release or of a repair.
    pub(crate) written_ms: Option<u64>,
}

impl TableMeta {
    /// Returns the fields that the table and its filters must repeat.
    pub(crate) fn identity(&self, store_id: u128, hash_seed: u64) -> TableIdentity {
        TableIdentity { store_id, file_id: self.id, salt: self.salt, hash_seed }
    }

    /// Returns the ids of the blob files to which entries refer, ascending.
    pub(crate) fn blob_file_ids(&self) -> impl Iterator<Item = u64> {
        self.blob_files.iter().map(|used| used.file_id)
    }

    /// Returns the bytes of the table and of the blob files that were written with it.
    pub(crate) fn written_bytes(&self) -> u64 {
        let own = self.blob_files.iter().filter(|used| used.file_id > self.id);
        self.bytes + own.map(|used| used.bytes).sum::<u64>()
    }

    /// Returns the ids of the blob files that were written with the table: their ids are larger.
    /// Those of other tables are older than it.
    pub(crate) fn own_blob_files(&self) -> impl Iterator<Item = u64> {
        self.blob_file_ids().filter(|&id| id > self.id)
    }

    /// Returns `false` if the table has only range tombstones. It then has no filter either.
    #[inline]
    pub(crate) fn has_points(&self) -> bool {
        self.entries > self.range_tombstones
    }

    pub(crate) fn filter_place(&self, role: FilterRole) -> Option<FilterPlace> {
        match role {
            FilterRole::Point => self.filter,
            FilterRole::Prefix => self.prefix_filter.as_ref().map(|prefix| prefix.place),
            FilterRole::Range => self.range_filter,
        }
    }

    /// Returns the files of the filters, possibly including the table's own.
    pub(crate) fn filter_files(&self) -> impl Iterator<Item = u64> {
        let roles = [FilterRole::Point, FilterRole::Prefix, FilterRole::Range];
        roles.into_iter().filter_map(|role| self.filter_place(role)).map(|place| place.file_id)
    }

    pub(crate) fn replace_filter(&mut self, new: NewPlace) {
        match new {
            NewPlace::Point(place) => self.filter = place,
            NewPlace::Prefix(place) => self.prefix_filter = place,
            NewPlace::Range(place) => self.range_filter = place,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrefixFilterPlace {
    pub(crate) place: FilterPlace,
    /// Name of the extractor of the prefixes; probes need the same one.
    pub(crate) extractor: Box<str>,
}

/// New place of a filter of a table; `None` removes the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewPlace {
    Point(Option<FilterPlace>),
    Prefix(Option<PrefixFilterPlace>),
    Range(Option<FilterPlace>),
}

impl NewPlace {
    pub(crate) const fn none(role: FilterRole) -> Self {
        match role {
            FilterRole::Point => Self::Point(None),
            FilterRole::Prefix => Self::Prefix(None),
            FilterRole::Range => Self::Range(None),
        }
    }

    pub(crate) fn place(&self) -> Option<FilterPlace> {
        match self {
            Self::Point(place) | Self::Range(place) => *place,
            Self::Prefix(prefix) => prefix.as_ref().map(|prefix| prefix.place),
        }
    }
}

/// Location of a filter. A filter may be rebuilt in a file of its own, so the table does not
/// determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterPlace {
    /// The table's file, or one that holds only this filter.
    pub(crate) file_id: u64,
    /// Start of the filter block, a multiple of 64.
    pub(crate) offset: u64,
    /// Length of the filter block with its trailer.
    pub(crate) bytes: u64,
    /// Stored at the end of the filter's trailer; covers the whole block.
    pub(crate) checksum: u32,
}

impl FilterPlace {
    pub(crate) fn in_file(file_id: u64, place: sievedb_sstable::FilterHandle) -> Self {
        let sievedb_sstable::FilterHandle { offset, bytes, checksum, .. } = place;
        Self { file_id, offset, bytes, checksum }
    }
}

impl From<FilterPlace> for sievedb_sstable::FilterHandle {
    fn from(place: FilterPlace) -> Self {
        Self { offset: place.offset, bytes: place.bytes, checksum: place.checksum }
    }
}
