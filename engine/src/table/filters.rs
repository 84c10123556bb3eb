//! The filters of a table as they are in memory.

use std::sync::Arc;

use sievedb_filter::many::{self, Asked};
use sievedb_sstable::FilterState;

use crate::memory::{Charge, MemoryAccount, MemoryUse};

/// The filters of a table as they are in memory. Never changed: others take their place, and these
/// are freed when the last lookup that began with them is done.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// Knows the user key of every entry.
    pub(crate) point: FilterState,
    _charge: Charge,
}

impl TableFilters {
    /// These filters, whose memory is charged to `memory` for as long as they live.
    pub(crate) fn new(point: FilterState, memory: &Arc<MemoryAccount>) -> Self {
        let charge = memory.charge(MemoryUse::Filters, point.memory_bytes());
        Self { point, _charge: charge }
    }

    /// Asks the processor for the lines of the point filter that a test will read, so that the test
    /// need not wait.
    #[inline]
    pub(crate) fn prefetch(&self, asked: Asked) {
        if let FilterState::Resident(filter) = &self.point {
            many::prefetch(filter, asked);
        }
    }

    /// Why the point filter cannot be used, if it cannot.
    pub(crate) fn unusable(&self) -> Option<String> {
        match &self.point {
            FilterState::Unusable(reason) => Some(reason.to_string()),
            FilterState::Resident(_) | FilterState::None => None,
        }
    }

    /// Bytes of memory that the filters take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.point.memory_bytes()
    }
}
