//! The filters of a table as they are in memory.

use std::{error::Error as _, sync::Arc};

use sievedb_filter::TableFilter;
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
    pub(crate) point: FilterState,
    /// Where the point filter lies, as the manifest says; `None` if there is none.
    pub(crate) place: Option<FilterPlace>,
    _charge: Charge,
}

impl TableFilters {
    /// These filters, whose memory is charged to `memory` for as long as they live.
    pub(crate) fn new(
        point: FilterState,
        place: Option<FilterPlace>,
        memory: &Arc<MemoryAccount>,
    ) -> Self {
        let charge = memory.charge(MemoryUse::Filters, point.memory_bytes());
        Self { point, place, _charge: charge }
    }

    /// Asks the processor for the line of the point filter that a test of `hash` will read, so that
    /// the test need not wait.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let FilterState::Resident(filter) = &self.point {
            filter.prefetch(hash);
        }
    }

    /// Why the point filter cannot be used, if it cannot.
    pub(crate) fn unusable(&self) -> Option<String> {
        match &self.point {
            FilterState::Unusable(reason) => Some(with_cause(reason)),
            FilterState::Resident(_) | FilterState::None => None,
        }
    }

    /// Whether there is a point filter that cannot be used.
    pub(crate) fn is_unusable(&self) -> bool {
        matches!(self.point, FilterState::Unusable(_))
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
        self.point.memory_bytes()
    }
}

/// Why a filter cannot be used, with the cause.
pub(crate) fn with_cause(reason: &FilterUnusable) -> String {
    reason.source().map_or_else(|| reason.to_string(), |cause| format!("{reason}: {cause}"))
}
