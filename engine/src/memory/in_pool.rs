//! Memory use of a store, and its limits in its pool.

use super::{MemoryAccount, MemoryUse};
use crate::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Overhead of the allocator: with glibc and three threads 3 to 5 MiB at small budgets, and 9 MiB
/// at 256 MiB, where workers have larger buffers. The program itself also uses the 8 MiB that a
/// process may take beyond the budget.
const ALLOCATOR_BYTES_MIN: u64 = 3 << 20;

const ALLOCATOR_BYTES_MAX: u64 = 8 << 20;

/// Divisor of a pool for the allocator's part in addition to [`ALLOCATOR_BYTES_MIN`].
const ALLOCATOR_SHARE: u64 = 64;

/// Divisor of a small pool for the maximum part of the allocator.
const ALLOCATOR_SHARE_MAX: u64 = 8;

/// Returns the bytes of a pool that are reserved for the allocator.
pub(crate) fn allocator_bytes(pool_bytes: u64) -> u64 {
    let bytes = ALLOCATOR_BYTES_MIN + pool_bytes / ALLOCATOR_SHARE;
    bytes.min(ALLOCATOR_BYTES_MAX).min(pool_bytes / ALLOCATOR_SHARE_MAX)
}

/// Current limits of a store in its pool, in bytes. Set by [`MemoryAccount::allow`].
#[derive(Debug)]
pub(super) struct Allowed {
    pool_bytes: AtomicU64,
    idle_memtable_bytes: AtomicU64,
    memtable_ceiling: AtomicU64,
    is_memtable_ceiling_lowered: AtomicBool,
    filter_bytes: AtomicU64,
}

impl Default for Allowed {
    fn default() -> Self {
        let unlimited = || AtomicU64::new(u64::MAX);
        Self {
            pool_bytes: unlimited(),
            idle_memtable_bytes: unlimited(),
            memtable_ceiling: unlimited(),
            is_memtable_ceiling_lowered: AtomicBool::new(false),
            filter_bytes: unlimited(),
        }
    }
}

/// Limits of a store in its pool, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Limit of all uses of all stores.
    pub(crate) pool: u64,
    pub(crate) memtables: u64,
    /// Maximum of `memtables`.
    pub(crate) memtable_ceiling: u64,
    /// The block cache currently uses a part of the ceiling.
    pub(crate) is_memtable_ceiling_lowered: bool,
    /// Active memtables that an idle store keeps.
    pub(crate) idle_memtables: u64,
    pub(crate) filters: u64,
    pub(crate) writing: u64,
    /// Limit of the block cache of the pool with all indexes.
    pub(crate) block_cache: u64,
}

/// Memory use of a store, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// Bytes of active and frozen memtables.
    pub(crate) memtables: u64,
    pub(crate) filters: u64,
    /// `filters`, or those about to be loaded.
    pub(crate) filters_expected: u64,
    pub(crate) indexes: u64,
    pub(crate) bookkeeping: u64,
    pub(crate) writing: u64,
    /// Bytes of memtables held only by readers.
    pub(crate) pinned: u64,
}

impl Uses {
    pub(crate) fn add(&mut self, other: &Self) {
        self.memtables += other.memtables;
        self.filters += other.filters;
        self.filters_expected += other.filters_expected;
        self.indexes += other.indexes;
        self.bookkeeping += other.bookkeeping;
        self.writing += other.writing;
        self.pinned += other.pinned;
    }

    /// Returns the limit of the block cache in a pool of `pool` bytes, with a ceiling that it
    /// shares with the indexes.
    pub(crate) fn cache_bytes_left(&self, pool: u64, ceiling: u64) -> u64 {
        let Self { memtables, filters_expected, indexes, bookkeeping, writing, pinned, .. } = self;
        let all = memtables + filters_expected + indexes + bookkeeping + writing + pinned;
        let left = pool.saturating_sub(all + allocator_bytes(pool));
        left.min(ceiling.saturating_sub(*indexes))
    }
}

impl MemoryAccount {
    /// Returns the limit of all uses and the block cache of the pool together.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.allowed.pool_bytes.load(Relaxed)
    }

    /// Returns the bytes of active memtables that an idle store keeps.
    pub(crate) fn idle_memtable_bytes(&self) -> u64 {
        self.allowed.idle_memtable_bytes.load(Relaxed)
    }

    /// Returns the limit of memtables for a write of `bytes` bytes. A write that exceeds the
    /// current limit needs room below the ceiling of the store: twice its size.
    pub(crate) fn memtable_limit_for(&self, bytes: u64) -> u64 {
        let limit = self.limit(MemoryUse::Memtables);
        if bytes <= limit / 2 {
            return limit;
        }
        bytes.saturating_mul(2).min(self.memtable_ceiling()).max(limit)
    }

    /// Returns the maximum of the limit of memtables. Only a change of the budget moves it.
    pub(crate) fn memtable_ceiling(&self) -> u64 {
        self.allowed.memtable_ceiling.load(Relaxed)
    }

    pub(crate) fn is_memtable_ceiling_lowered(&self) -> bool {
        self.allowed.is_memtable_ceiling_lowered.load(Relaxed)
    }

    /// Returns the limit of filters: that of the store, or of the pool if that is less.
    pub(crate) fn filter_bytes_max(&self) -> u64 {
        self.limit(MemoryUse::Filters).min(self.filter_bytes_allowed())
    }

    /// Returns the limit of the pool for filters.
    pub(crate) fn filter_bytes_allowed(&self) -> u64 {
        self.allowed.filter_bytes.load(Relaxed)
    }

    /// Sets the limits of the pool, while filters take `filter_bytes` bytes.
    pub(crate) fn allow(&self, allowed: &Allowance, filter_bytes: u64) {
        debug_assert!(allowed.memtables <= allowed.memtable_ceiling, "{allowed:?}");
        debug_assert!(allowed.block_cache <= allowed.pool, "{allowed:?}");
        self.set_limit(MemoryUse::Memtables, allowed.memtables);
        self.set_limit(MemoryUse::Indexes, allowed.block_cache);
        self.set_limit(MemoryUse::Writing, allowed.writing);
        let Allowed {
            pool_bytes,
            idle_memtable_bytes,
            memtable_ceiling,
            is_memtable_ceiling_lowered,
            filter_bytes: filters,
        } = &self.allowed;
        pool_bytes.store(allowed.pool, Relaxed);
        idle_memtable_bytes.store(allowed.idle_memtables, Relaxed);
        memtable_ceiling.store(allowed.memtable_ceiling, Relaxed);
        is_memtable_ceiling_lowered.store(allowed.is_memtable_ceiling_lowered, Relaxed);
        filters.store(allowed.filters, Relaxed);
        let (now, planned) = (self.filter_bytes_max(), self.filter_bytes_planned.load(Relaxed));
        let is_due = now < planned && now < filter_bytes || now / 8 > planned / 7;
        if is_due && !self.filters_are_due.swap(true, Relaxed) {
            self.ring();
        }
    }

    /// Records that filters are planned for the current limit.
    pub(crate) fn begin_filter_plan(&self) {
        self.filters_are_due.store(false, Relaxed);
        self.filter_bytes_planned.store(self.filter_bytes_max(), Relaxed);
    }

    /// Returns `true` if the limit of filters has changed since their last plan.
    pub(crate) fn filters_are_due(&self) -> bool {
        self.filters_are_due.load(Relaxed)
    }

    /// Announces that filters of `bytes` bytes are about to be loaded; 0 once they are loaded.
    /// Takes effect at the next fit of the pool.
    pub(crate) fn expect_filters(&self, bytes: u64) {
        self.filter_bytes_expected.store(bytes, Relaxed);
    }

    /// Requests that the store freeze its largest memtable, for another store of the pool.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Relaxed);
        self.ring();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Relaxed)
    }

    /// Returns `true` if another store [requested memory](Self::ask) since the last call.
    pub(crate) fn take_asked(&self) -> bool {
        self.is_asked.swap(false, Relaxed)
    }

    /// Records that reads made a memtable or a table due, and notifies workers.
    pub(crate) fn note_long_merges(&self) {
        // Release: the worker sees what is due.
        self.has_long_merges.store(true, Release);
        self.ring();
    }

    /// Returns `true` if [`note_long_merges`](Self::note_long_merges) was called since the last
    /// call.
    pub(crate) fn take_long_merges(&self) -> bool {
        self.has_long_merges.load(Relaxed) && self.has_long_merges.swap(false, Acquire)
    }

    /// Notifies the workers: they have work that is not due to a write.
    pub(crate) fn ring(&self) {
        if let Some(freer) = self.freer.get() {
            freer.ring();
        }
    }

    pub(crate) fn uses(&self) -> Uses {
        // Read first, so that later growth of memtables is detected.
        let memtables = self.memtable_bytes();
        let filters = self.filter_arena.stats().bytes as u64 + self.bytes(MemoryUse::Filters);
        Uses {
            memtables,
            filters,
            filters_expected: filters.max(self.filter_bytes_expected.load(Relaxed)),
            indexes: self.bytes(MemoryUse::Indexes),
            bookkeeping: self.bytes(MemoryUse::Bookkeeping),
            writing: self.bytes(MemoryUse::Writing),
            pinned: self.bytes(MemoryUse::PinnedMemtables),
        }
    }

    /// Sets the size of memtables at which the block cache must shrink.
    pub(crate) fn set_memtable_bytes_fitted(&self, bytes: u64) {
        self.memtable_bytes_fitted.store(bytes, Relaxed);
    }

    /// Returns `true` if the block cache must shrink for memtables.
    pub(crate) fn is_fit_due(&self) -> bool {
        self.memtable_bytes() > self.memtable_bytes_fitted.load(Relaxed)
    }
}
