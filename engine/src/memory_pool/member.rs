//! A store in its pool.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use super::{balance::Reads, limits::Claim};
use crate::{
    level_count::LEVELS,
    memory::{MemoryAccount, Uses},
    memory_budget::{MemoryBudget, MemoryParts},
    stats::Counters,
};

/// A store of the pool. It remains, without claims, until its last charge is released.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) account: Weak<MemoryAccount>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: MemoryBudget,
    pub(super) workers: usize,
    /// `true` if the store can flush memtables.
    pub(super) flushes: bool,
    pub(super) parts: MemoryParts,
    pub(super) is_open: bool,
    /// Current ceiling of its memtables.
    pub(super) memtable_ceiling: u64,
    /// Current ceiling of its filters.
    pub(super) filter_ceiling: u64,
    /// Bytes of its tables at its last compaction.
    pub(super) table_bytes: u64,
}

impl Member {
    pub(super) fn new(
        (account, counters): (&Arc<MemoryAccount>, &Arc<Counters>),
        budget: MemoryBudget,
        workers: usize,
        flushes: bool,
        parts: MemoryParts,
    ) -> Self {
        Self {
            account: Arc::downgrade(account),
            counters: Arc::clone(counters),
            budget,
            workers,
            flushes,
            parts,
            is_open: true,
            memtable_ceiling: parts.memtables,
            filter_ceiling: parts.filters,
            table_bytes: 0,
        }
    }

    /// Returns the number of threads that write tables.
    pub(super) fn writers(&self) -> u64 {
        self.workers.max(1) as u64
    }

    /// Returns `true` if the ceiling of its memtables adapts: neither memtables nor the block cache
    /// were set by hand.
    pub(super) fn adapts(&self) -> bool {
        let MemoryBudget { memtable_bytes_max, block_cache_bytes, .. } = self.budget;
        self.is_open && self.flushes && memtable_bytes_max.or(block_cache_bytes).is_none()
    }

    pub(super) fn add_reads_to(&self, sum: &mut Reads) {
        let lookups = self.counters.lookups();
        sum.lookups += lookups.lookups;
        sum.found += lookups.found_in_memtables;
        sum.bytes += (0..LEVELS).map(|level| self.counters.level(level).bytes_read).sum::<u64>();
    }

    pub(super) fn memtable_claim(&self, uses: &Uses) -> Claim {
        let ceiling = if self.is_open { self.memtable_ceiling } else { 0 };
        Claim { ceiling, used: uses.memtables }
    }

    pub(super) fn filter_claim(&self, uses: &Uses) -> Claim {
        let ceiling = if self.is_open { self.filter_ceiling } else { 0 };
        Claim { ceiling, used: uses.filters_expected }
    }

    pub(super) fn is_of(&self, account: &Arc<MemoryAccount>) -> bool {
        ptr::eq(self.account.as_ptr(), Arc::as_ptr(account))
    }
}
