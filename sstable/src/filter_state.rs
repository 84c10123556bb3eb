//! The filter of a table in memory, or why there is none.

use std::{error, fmt, io};

use sievedb_filter::{DecodeError, FilterArena, TableFilter};
use sievedb_format::Corruption;

use crate::{identity::TableIdentity, source::TableSource, stored_filter};

/// Where a filter block lies in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterPlace {
    /// Where it starts, a multiple of 64.
    pub offset: u64,
    /// Its length with its trailer.
    pub bytes: u64,
    /// The checksum at the end of its trailer; it covers the whole block.
    pub checksum: u32,
}

/// What a table's filter can do for a lookup; a [`RangeFilter`](sievedb_filter::RangeFilter) for a
/// scan.
#[derive(Debug)]
pub enum FilterState<F = TableFilter> {
    /// It was read and verified.
    Resident(F),
    /// There is one, and it must not be used: every key may be in the table.
    Unusable(FilterUnusable),
    /// There is one in the file, and memory has no room for it: every key may be in the table.
    NotResident,
    /// The table was built without one: every key may be in the table.
    None,
}

impl FilterState {
    /// Loads the filter at `place` of `source`, the file of the table with this identity, into
    /// `arena`. Never fails: a table is complete without its filter.
    #[must_use]
    pub fn load(
        source: &dyn TableSource,
        identity: &TableIdentity,
        place: Option<FilterPlace>,
        arena: &FilterArena,
    ) -> Self {
        match place.map(|place| load(source, identity, place, arena)) {
            Some(Ok(filter)) => Self::Resident(filter),
            Some(Err(reason)) => Self::Unusable(reason),
            None => Self::None,
        }
    }

    /// The filter, if it can be used.
    #[must_use]
    pub fn resident(&self) -> Option<&TableFilter> {
        match self {
            Self::Resident(filter) => Some(filter),
            Self::Unusable(_) | Self::NotResident | Self::None => None,
        }
    }

    /// Returns `false` only if the table holds no version of a user key with this hash. It knows
    /// nothing of range tombstones: ask these first.
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.resident().is_none_or(|filter| filter.may_contain_hash(hash))
    }

    /// Bytes that the filter keeps in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.resident().map_or(0, TableFilter::memory_bytes)
    }
}

/// Why a filter must not be used.
#[derive(Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum FilterUnusable {
    /// It could not be read.
    Io(io::Error),
    /// The header of its own file is damaged, or that of another file.
    Header(Corruption),
    /// It does not lie within its file, or not at a multiple of 64.
    Misplaced { offset: u64, bytes: u64 },
    /// Its checksum is `found`, and the manifest says `expected`: it is another filter.
    Replaced { expected: u32, found: u32 },
    /// Its bytes break their format, or belong to another table, hash or release.
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
            Self::Header(_) => write!(f, "the header of the filter's file was refused"),
            Self::Misplaced { offset, bytes } => {
                write!(f, "a filter of {bytes} bytes cannot lie at byte {offset}")
            }
            Self::Replaced { expected, found } => {
                write!(f, "the checksum of the filter is {found:#x}, {expected:#x} was expected")
            }
            Self::Refused(_) => write!(f, "the filter was refused"),
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

fn load(
    source: &dyn TableSource,
    identity: &TableIdentity,
    place: FilterPlace,
    arena: &FilterArena,
) -> Result<TableFilter, FilterUnusable> {
    let trailer = stored_filter::read_trailer(source, identity, place)?;
    stored_filter::load(source, place, &trailer, f64::INFINITY, arena)
}

impl FilterPlace {
    /// Length of the block, if it lies within `source` and where a filter may lie.
    pub(crate) fn length_in(&self, source: &dyn TableSource) -> Result<usize, FilterUnusable> {
        let Self { offset, bytes, .. } = *self;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= source.len());
        let is_aligned = offset.is_multiple_of(FILTER_ALIGNMENT);
        let length = usize::try_from(bytes).ok().filter(|_| fits && is_aligned);
        length.ok_or(FilterUnusable::Misplaced { offset, bytes })
    }

    /// Whether a block that ends with these bytes is the one that was meant.
    pub(crate) fn check(&self, tail: &[u8]) -> Result<(), FilterUnusable> {
        let (expected, found) = (self.checksum, stored_checksum(tail));
        if found == Some(expected) {
            return Ok(());
        }
        let found = found.unwrap_or(0);
        Err(FilterUnusable::Replaced { expected, found })
    }
}

/// Filter blocks start at multiples of this, so that a mapped payload has whole cache lines.
pub(crate) const FILTER_ALIGNMENT: u64 = 64;

/// The checksum at the end of a filter block.
pub(crate) fn stored_checksum(block: &[u8]) -> Option<u32> {
    block.last_chunk().copied().map(u32::from_le_bytes)
}
