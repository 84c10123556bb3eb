//! The filters of a table as they are in memory.

use std::{ops::Deref, sync::Arc};

use sievedb_sstable::FilterState;

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
    pub(crate) range: Arc<ChargedFilter>,
}

/// A filter whose memory is charged for as long as it lives.
#[derive(Debug)]
pub(crate) struct ChargedFilter {
    state: FilterState,
    _charge: Charge,
}

impl ChargedFilter {
    pub(crate) fn new(state: FilterState, memory: &Arc<MemoryAccount>) -> Self {
        let charge = memory.charge(MemoryUse::Filters, state.memory_bytes());
        Self { state, _charge: charge }
    }
}

impl Deref for ChargedFilter {
    type Target = FilterState;

    fn deref(&self) -> &FilterState {
        &self.state
    }
}

impl TableFilters {
    /// Asks the processor for the line of the point filter that a test of `hash` will read, so that
    /// the test need not wait.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let FilterState::Resident(filter) = &*self.point {
            filter.prefetch(hash);
        }
    }

    /// Why a filter cannot be used, if one cannot.
    pub(crate) fn unusable(&self) -> Option<String> {
        self.all().into_iter().find_map(|filter| match filter {
            FilterState::Unusable(reason) => Some(reason.to_string()),
            FilterState::Resident(_) | FilterState::None => None,
        })
    }

    /// Bytes of memory that the filters take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.all().into_iter().map(FilterState::memory_bytes).sum()
    }

    fn all(&self) -> [&FilterState; 3] {
        [&self.point, &self.prefix, &self.range]
    }
}
