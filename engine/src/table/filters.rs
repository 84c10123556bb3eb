//! The filters of a table as they are in memory.

use std::{ops::Deref, sync::Arc};

use sievedb_filter::{
    RangeFilter, TableFilter,
    many::{self, Asked},
};
use sievedb_sstable::{FilterState, FilterUnusable};

use crate::memory::{Charge, MemoryAccount, MemoryUse};

/// The filters of a table as they are in memory. Never changed: others take their place, and these
/// are freed when the last lookup that began with them is done.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// Knows the user key of every entry.
    pub(crate) point: ChargedFilter,
    /// Knows the prefix of every user key that has one, by the extractor that the keyspace has now.
    pub(crate) prefix: Arc<ChargedFilter>,
    /// Answers for ranges of user keys.
    pub(crate) range: Arc<ChargedFilter<RangeFilter>>,
}

/// A filter whose memory is charged for as long as it lives.
#[derive(Debug)]
pub(crate) struct ChargedFilter<F = TableFilter> {
    state: FilterState<F>,
    _charge: Charge,
}

impl ChargedFilter {
    pub(crate) fn new(state: FilterState, memory: &Arc<MemoryAccount>) -> Self {
        let charge = memory.charge(MemoryUse::Filters, state.memory_bytes());
        Self { state, _charge: charge }
    }
}

impl ChargedFilter<RangeFilter> {
    pub(crate) fn of_ranges(state: FilterState<RangeFilter>, memory: &Arc<MemoryAccount>) -> Self {
        let charge = memory.charge(MemoryUse::Filters, state.range_memory_bytes());
        Self { state, _charge: charge }
    }
}

impl<F> Deref for ChargedFilter<F> {
    type Target = FilterState<F>;

    fn deref(&self) -> &FilterState<F> {
        &self.state
    }
}

impl TableFilters {
    /// Asks the processor for the lines of the point filter that a test will read, so that the test
    /// need not wait.
    #[inline]
    pub(crate) fn prefetch(&self, asked: Asked) {
        if let FilterState::Resident(filter) = &*self.point {
            many::prefetch(filter, asked);
        }
    }

    /// Why a filter cannot be used, if one cannot.
    pub(crate) fn unusable(&self) -> Option<String> {
        let reason = reason(&self.point).or(reason(&self.prefix)).or(reason(&self.range));
        reason.map(FilterUnusable::to_string)
    }

    /// Bytes of memory that the filters take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.point.memory_bytes() + self.prefix.memory_bytes() + self.range.range_memory_bytes()
    }
}

/// Why a filter cannot be used, if it cannot.
fn reason<F>(filter: &FilterState<F>) -> Option<&FilterUnusable> {
    match filter {
        FilterState::Unusable(reason) => Some(reason),
        FilterState::Resident(_) | FilterState::None => None,
    }
}
