//! A pool of memory: of one store, or of several that share it.
//!
//! Each store has a [`Pool`], which owns its block cache and limits its parts: see
//! [`memory_budget`](crate::memory_budget). A [`MemoryPool`] is one that several stores join.
//!
//! | part        | several stores                                                  |
//! |-------------|-----------------------------------------------------------------|
//! | block cache | one for all                                                     |
//! | memtables   | a store may take what the others leave of 1/4: see [`limits`]   |
//! | filters     | the same of another 1/4                                         |
//! | writing     | 1/8, divided over the workers of all stores                     |
//!
//! Limits are set when the pool is fitted: when workers take memory, and after each flush,
//! compaction and loaded filter. Also when memtables of a store have grown by a step divided by the
//! number of stores. A step is 1/64 of the pool, at most 1 MiB. Stores that grow at the same time
//! can exceed a ceiling by a step and the writes in flight. A write too large for the limit of its
//! store is accepted once the store has flushed its other memtables. The block cache shrinks by all
//! of it.
//!
//! The ceiling of filters falls to 1/8 while indexes and bookkeeping take more than the other parts
//! leave. The ceiling of memtables adapts between 1/16 and 1/4: see [`balance`].

mod balance;
mod limits;
mod member;
mod pool;
mod state;

use std::{mem, sync::Arc};

pub(crate) use self::pool::Pool;
#[cfg(doc)]
use crate::Options;
use crate::{Error, Result, gate::Gate, open_files::Sharers};

/// Memory that several stores of one process share.
///
/// Its bytes are one [budget](Options::memory_budget) for all stores that are opened with
/// [`Options::memory_pool`]. They share one block cache. Memtables of all stores together take at
/// most a quarter, filters another quarter, and buffers of all workers an eighth. A store uses up
/// to what the others leave of each quarter. `1 / (2 * stores)` of each quarter is reserved for
/// each store: other stores flush memtables and drop filters to free it. A store without worker
/// threads does so at its next write. A store opened read-only keeps the filters that it loaded.
/// One that became read-only keeps its memtables.
///
/// If the process has no free file descriptor, the store with the most open table files closes half
/// of them.
///
/// Clones are handles of the same pool. Stores can join and leave at any time.
///
/// ```
/// use sievedb::{MemoryPool, Options};
///
/// # let dir = tempfile::tempdir()?;
/// let pool = MemoryPool::new(64 << 20);
/// let users = Options::new().memory_pool(&pool).open(dir.path().join("users"))?;
/// let events = Options::new().memory_pool(&pool).open(dir.path().join("events"))?;
/// users.insert("anna", "1")?;
/// events.insert("1", "login")?;
/// assert_eq!(pool.stats().stores, 2);
/// assert_eq!(users.stats().memory.budget_bytes, 64 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Rejects calls in a forked child, where another thread may have held a lock of the pool.
    gate: Gate,
    pool: Arc<Pool>,
    /// The stores also share the descriptors of the process.
    sharers: Arc<Sharers>,
}

/// Memory use of all stores of a [`MemoryPool`], in bytes.
///
/// All parts but `pinned_bytes` take at most the budget together.
/// [`MemoryStats`](crate::stats::MemoryStats) has the figures of one store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PoolStats {
    /// The budget of all stores.
    pub budget_bytes: u64,
    /// Number of open stores.
    pub stores: u64,
    /// Memtables with their filters, active and frozen.
    pub memtable_bytes: u64,
    /// Filters of tables.
    pub filter_bytes: u64,
    /// Top indexes of tables.
    pub index_bytes: u64,
    /// Bookkeeping of keyspaces and tables, and fixed buffers.
    pub bookkeeping_bytes: u64,
    /// Buffers of flushes and compactions.
    pub writing_bytes: u64,
    /// Blocks in the cache.
    pub block_cache_bytes: u64,
    /// Limit of the block cache: the part of the budget that the other parts leave.
    pub block_cache_bytes_max: u64,
    /// Memory held only by iterators and values of callers.
    pub pinned_bytes: u64,
}

impl MemoryPool {
    /// Creates a pool of `bytes` bytes.
    ///
    /// The pool requires 8 MiB ([`MEMORY_BUDGET_MIN`](crate::options::MEMORY_BUDGET_MIN)) for each
    /// store, or 4 MiB for each of its worker threads if that is more. Otherwise opening a store
    /// fails with [`Error::BudgetTooSmall`].
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let pool = Arc::new(Pool::new(Some(bytes), bytes));
        Self(Arc::new(Shared { gate: Gate::new(), pool, sharers: Arc::default() }))
    }

    /// Changes the bytes of the pool. The block cache shrinks before the call returns. Workers of
    /// the stores flush memtables and drop filters that exceed their limits. A store without
    /// workers does so at its next write.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`] if `bytes` is less than the open stores require, or does not leave
    /// enough memory besides limits set by hand; [`Error::InvalidOption`] in a forked child. Then
    /// nothing is changed.
    pub fn set_bytes(&self, bytes: u64) -> Result<()> {
        self.accept()?.set_bytes(bytes)
    }

    /// Returns what all stores use. All zero in a forked child.
    ///
    /// Visits all blocks of the cache: 0.1 ms for a thousand.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.accept().map_or_else(|_| PoolStats::default(), |pool| pool.stats())
    }

    /// Returns the pool, for a store that joins it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] in a forked child.
    pub(crate) fn accept(&self) -> Result<&Arc<Pool>> {
        if self.0.gate.is_forked() {
            let allowed = "inherited from the parent of a forked process; create a new pool";
            return Err(Error::InvalidOption { name: "memory_pool", allowed });
        }
        Ok(&self.0.pool)
    }

    /// Returns the group of its stores that close table files for one another.
    pub(crate) fn sharers(&self) -> &Arc<Sharers> {
        &self.0.sharers
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.gate.is_forked() {
            // Freeing it would take locks that threads of the parent may have held.
            mem::forget(Arc::clone(&self.pool));
        }
    }
}
