//! The state of a table's filter in memory.

use std::{error, fmt, io, ops::Bound};

use sievedb_filter::{DecodeError, FilterArena, RangeFilter, TableFilter, filter_block::Trailer};
use sievedb_format::Corruption;

use crate::{
    block::common_prefix, filter_file::check_header, metadata::TableIdentity, source::TableSource,
    stored_filter,
};

/// Location of a filter block in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterHandle {
    /// Offset in the file, in bytes; a multiple of 64.
    pub offset: u64,
    /// Length including the trailer, in bytes.
    pub bytes: u64,
    /// Checksum at the end of the trailer, which covers the whole block.
    pub checksum: u32,
}

/// State of a table's filter. `F` is a [`TableFilter`] for lookups or a [`RangeFilter`] for scans.
///
/// In all states but [`Resident`](Self::Resident) every key may be in the table.
#[derive(Debug)]
pub enum FilterState<F = TableFilter> {
    /// The filter is in memory, verified.
    Resident(F),
    /// The filter is damaged, unreadable or of another table.
    Unusable(FilterUnusable),
    /// The filter exceeds the memory limit and is only in the file.
    NotResident,
    /// The table was built without a filter.
    None,
}

impl<F> FilterState<F> {
    fn from_load(filter: Result<F, FilterUnusable>) -> Self {
        filter.map_or_else(Self::Unusable, Self::Resident)
    }

    /// Returns the filter, if it is resident.
    #[inline]
    #[must_use]
    pub fn resident(&self) -> Option<&F> {
        match self {
            Self::Resident(filter) => Some(filter),
            Self::Unusable(_) | Self::NotResident | Self::None => None,
        }
    }
}

impl FilterState {
    /// Loads the filter at `handle` of `source`, for the table `identity`, into `arena`. `source`
    /// is the filter file with the id `own_file`; with `None`, the file of the table. Returns
    /// [`Unusable`](Self::Unusable) instead of an error, because lookups work without a filter.
    #[must_use]
    pub fn load(
        source: &dyn TableSource,
        identity: &TableIdentity,
        own_file: Option<u64>,
        handle: FilterHandle,
        arena: &FilterArena,
    ) -> Self {
        let trailer = read_trailer(source, identity, own_file, handle);
        Self::from_load(trailer.and_then(|trailer| {
            stored_filter::load(source, handle, &trailer, f64::INFINITY, arena)
        }))
    }

    /// Returns `false` only if the table holds no version of a user key with this hash. Does not
    /// cover range tombstones; apply these first.
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.resident().is_none_or(|filter| filter.may_contain_hash(hash))
    }

    /// Returns the memory of the filter, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.resident().map_or(0, TableFilter::memory_bytes)
    }
}

impl FilterState<RangeFilter> {
    /// Loads the range filter at `handle` of `source`, for the table with this identity and bounds,
    /// into `arena`. Otherwise as [`load`](FilterState::load).
    ///
    /// Refuses a filter that omits a longer key prefix than the bounds share, because such a filter
    /// belongs to another table.
    #[must_use]
    pub fn load_range(
        source: &dyn TableSource,
        identity: &TableIdentity,
        own_file: Option<u64>,
        handle: FilterHandle,
        (smallest, largest): (&[u8], &[u8]),
        arena: &FilterArena,
    ) -> Self {
        let trailer = read_trailer(source, identity, own_file, handle);
        Self::from_load(trailer.and_then(|trailer| {
            let filter = stored_filter::load_range(source, handle, &trailer, arena)?;
            let value = filter.prefix_bytes();
            if value > common_prefix(smallest, largest) as u64 {
                let what = "prefix_bytes of the range filter";
                return Err(FilterUnusable::Refused(DecodeError::OutOfRange { what, value }));
            }
            Ok(filter)
        }))
    }

    /// Returns `false` only if the table holds no version of a user key from `lower` to `upper`.
    /// `bound` is one of the table's bounds. Does not cover range tombstones.
    #[must_use]
    pub fn may_contain_keys(&self, bound: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
        let filter = self.resident();
        filter.is_none_or(|filter| filter.may_contain_keys(bound, lower, upper))
    }

    /// Returns the memory of the range filter, in bytes.
    #[must_use]
    pub fn range_memory_bytes(&self) -> usize {
        self.resident().map_or(0, RangeFilter::memory_bytes)
    }
}

/// Reason why a filter cannot be used.
#[derive(Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum FilterUnusable {
    /// The source failed.
    Io(io::Error),
    /// The header of the filter file is damaged or of another file.
    Header(Corruption),
    /// The location exceeds the file, or is not a multiple of 64.
    Misplaced { offset: u64, bytes: u64 },
    /// The checksum is `found`, but the manifest records `expected`: it is another filter.
    Replaced { expected: u32, found: u32 },
    /// The bytes violate the format, or belong to another table, hash or release.
    Refused(DecodeError),
}

impl From<DecodeError> for FilterUnusable {
    fn from(reason: DecodeError) -> Self {
        Self::Refused(reason)
    }
}

impl fmt::Display for FilterUnusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => write!(f, "cannot read the filter"),
            Self::Header(_) => write!(f, "the header of the filter file is invalid"),
            Self::Misplaced { offset, bytes } => {
                write!(
                    f,
                    "a filter of {bytes} bytes at byte {offset} exceeds its file or is unaligned"
                )
            }
            Self::Replaced { expected, found } => {
                write!(f, "the checksum of the filter is {found:#x}, expected {expected:#x}")
            }
            Self::Refused(_) => write!(f, "the filter is damaged or of another table"),
        }
    }
}

impl error::Error for FilterUnusable {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::Header(source) => Some(source),
            Self::Refused(source) => Some(source),
            Self::Misplaced { .. } | Self::Replaced { .. } => None,
        }
    }
}

fn read_trailer(
    source: &dyn TableSource,
    identity: &TableIdentity,
    own_file: Option<u64>,
    handle: FilterHandle,
) -> Result<Trailer, FilterUnusable> {
    if let Some(file_id) = own_file {
        check_header(source, identity.store_id, file_id)?;
    }
    stored_filter::read_trailer(source, identity, handle)
}

impl FilterHandle {
    /// Returns the length of the block if it is aligned and within `source`.
    pub(crate) fn length_in(&self, source: &dyn TableSource) -> Result<usize, FilterUnusable> {
        let Self { offset, bytes, .. } = *self;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= source.len());
        let is_aligned = offset.is_multiple_of(FILTER_ALIGNMENT);
        let length = usize::try_from(bytes).ok().filter(|_| fits && is_aligned);
        length.ok_or(FilterUnusable::Misplaced { offset, bytes })
    }

    /// Checks that a block that ends with `tail` is the recorded block.
    pub(crate) fn check(&self, tail: &[u8]) -> Result<(), FilterUnusable> {
        let (expected, found) = (self.checksum, stored_checksum(tail));
        if found == Some(expected) {
            return Ok(());
        }
        let found = found.unwrap_or(0);
        Err(FilterUnusable::Replaced { expected, found })
    }
}

/// Alignment of filter blocks, in bytes: whole cache lines in a memory map.
pub(crate) const FILTER_ALIGNMENT: u64 = 64;

/// Returns the checksum at the end of a filter block.
pub(crate) fn stored_checksum(block: &[u8]) -> Option<u32> {
    block.last_chunk().copied().map(u32::from_le_bytes)
}
