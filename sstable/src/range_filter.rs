//! The range filter of a table in memory.

use std::ops::Bound;

use sievedb_filter::{DecodeError, FilterArena, RangeFilter};

use crate::{
    filter_state::{FilterPlace, FilterState, FilterUnusable},
    identity::TableIdentity,
    source::TableSource,
    stored_filter,
};

impl FilterState<RangeFilter> {
    /// Loads the range filter at `place` of `source`, the file of the table with this identity and
    /// these bounds, into `arena`. Never fails: a table is complete without its filter.
    ///
    /// The filter leaves out the prefix that all keys of the table have in common. If the bounds
    /// have less in common, it cannot be that of the table, and is refused.
    #[must_use]
    pub fn load_range(
        source: &dyn TableSource,
        identity: &TableIdentity,
        place: Option<FilterPlace>,
        bounds: (&[u8], &[u8]),
        arena: &FilterArena,
    ) -> Self {
        match place.map(|place| load(source, identity, place, bounds, arena)) {
            Some(Ok(filter)) => Self::Resident(filter),
            Some(Err(reason)) => Self::Unusable(reason),
            None => Self::None,
        }
    }

    /// The filter, if it can be used.
    #[must_use]
    pub fn resident_range(&self) -> Option<&RangeFilter> {
        match self {
            Self::Resident(filter) => Some(filter),
            Self::Unusable(_) | Self::NotResident | Self::None => None,
        }
    }

    /// Returns `false` only if the table, one of whose bounds is `bound`, holds no version of a
    /// user key from `lower` to `upper`. It knows nothing of range tombstones: ask these apart.
    #[must_use]
    pub fn may_contain_keys(&self, bound: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
        let filter = self.resident_range();
        filter.is_none_or(|filter| filter.may_contain_keys(bound, lower, upper))
    }

    /// Bytes that the range filter keeps in memory.
    #[must_use]
    pub fn range_memory_bytes(&self) -> usize {
        self.resident_range().map_or(0, RangeFilter::memory_bytes)
    }
}

fn load(
    source: &dyn TableSource,
    identity: &TableIdentity,
    place: FilterPlace,
    (smallest, largest): (&[u8], &[u8]),
    arena: &FilterArena,
) -> Result<RangeFilter, FilterUnusable> {
    let trailer = stored_filter::read_trailer(source, identity, place)?;
    let filter = stored_filter::load_range(source, place, &trailer, arena)?;
    let value = filter.prefix_bytes();
    let common = smallest.iter().zip(largest).take_while(|(a, b)| a == b).count();
    if value > common as u64 {
        let what = "prefix_bytes of the range filter";
        return Err(FilterUnusable::Refused(DecodeError::OutOfRange { what, value }));
    }
    Ok(filter)
}
