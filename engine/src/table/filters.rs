//! The filters of a table as they are in memory.

use std::{error::Error as _, ops::Deref, sync::Arc};

use sievedb_filter::{
    RangeFilter, TableFilter,
    many::{self, Asked},
};
use sievedb_sstable::{FilterState, FilterUnusable};

use crate::{
    filter_plan::StoredFilter,
    memory::{Charge, MemoryAccount, MemoryUse},
    table::FilterPlace,
};

/// The filters of a table as they are in memory. Never changed: others take their place, and these
/// are freed when the last lookup that began with them is done.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// Knows the user key of every entry.
    pub(crate) point: ChargedFilter,
    /// Where the point filter lies, as the manifest says; `None` if there is none.
    pub(crate) place: Option<FilterPlace>,
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
    /// The same with the point filter at `place`.
    pub(crate) fn with_point(&self, point: ChargedFilter, place: Option<FilterPlace>) -> Self {
        let (prefix, range) = (Arc::clone(&self.prefix), Arc::clone(&self.range));
        Self { point, place, prefix, range }
    }

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
        reason.map(with_cause)
    }

    /// Whether there is a point filter that cannot be used.
    pub(crate) fn is_point_unusable(&self) -> bool {
        matches!(*self.point, FilterState::Unusable(_))
    }

    /// The point filter as its file has it; `None` if it is not in memory.
    pub(crate) fn stored(&self) -> Option<StoredFilter> {
        let filter = self.point.resident()?;
        let columns = match filter {
            TableFilter::Ribbon(ribbon) => ribbon.columns(),
            _ => 0.0,
        };
        Some(StoredFilter { kind: filter.kind(), columns, whole_bytes: self.place?.bytes })
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

/// Why a filter cannot be used, with the cause.
pub(crate) fn with_cause(reason: &FilterUnusable) -> String {
    reason.source().map_or_else(|| reason.to_string(), |cause| format!("{reason}: {cause}"))
}
