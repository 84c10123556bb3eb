//! The pool: its stores, and their shared block cache.

use std::sync::Arc;

use sievedb_sstable::BlockCache;

use super::{
    PoolStats,
    balance::Balance,
    member::Member,
    state::{State, sum},
};
use crate::{
    Error, Result,
    memory::{MemoryAccount, MemoryUse},
    memory_budget::{MemoryBudget, MemoryParts},
    stats::{Counters, MemoryMoves, MoveCounter},
    sync::Mutex,
};

/// The memory of one store, or of several that share it.
///
/// Its lock is taken after the locks of a store and before those of the block cache, of filter
/// arenas and of bells. No lock of a store is taken under it.
#[derive(Debug)]
pub(crate) struct Pool {
    cache: Arc<BlockCache>,
    state: Mutex<State>,
}

impl Pool {
    /// Creates a pool of `bytes` bytes, or a pool of one store for `None`. The block cache is built
    /// for `cache_bytes`.
    pub(crate) fn new(bytes: Option<u64>, cache_bytes: u64) -> Self {
        // Shards for the capacity that the other parts usually leave.
        let cache = Arc::new(BlockCache::new(cache_bytes.div_ceil(2)));
        let state = State {
            bytes,
            members: Vec::new(),
            capacity: 0,
            moves: MoveCounter::default(),
            balance: Balance::default(),
            ghost_bytes: 0,
        };
        Self { cache, state: Mutex::new(state) }
    }

    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Returns the budget of all stores; 0 in the pool of one store.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes.unwrap_or(0)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.state.lock().bytes.is_some()
    }

    /// Adds a store. Returns its parts.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`]; the pool is unchanged.
    pub(crate) fn join(
        &self,
        (account, counters): (&Arc<MemoryAccount>, &Arc<Counters>),
        budget: MemoryBudget,
        workers: usize,
        flushes: bool,
    ) -> Result<MemoryParts> {
        let mut state = self.state.lock();
        debug_assert!(state.bytes.is_some() || state.members.is_empty(), "this pool has one store");
        debug_assert!(state.members.iter().all(|member| !member.is_of(account)), "it joins once");
        state.check(state.bytes, Some(workers))?;
        let parts = budget.within(state.bytes).divide(workers)?;
        state.members.push(Member::new((account, counters), budget, workers, flushes, parts));
        state.fit(&self.cache);
        Ok(parts)
    }

    /// Changes the budget of a store. Returns its parts.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`]; the budget is unchanged.
    pub(crate) fn change(
        &self,
        account: &Arc<MemoryAccount>,
        budget: MemoryBudget,
    ) -> Result<MemoryParts> {
        let mut state = self.state.lock();
        let bytes = state.bytes;
        let member = state.member(account).ok_or(Error::Closed)?;
        let parts = budget.within(bytes).divide(member.workers)?;
        (member.budget, member.parts) = (budget, parts);
        state.fit(&self.cache);
        Ok(parts)
    }

    /// Ends the claims of a store. Its charges count until they are released.
    pub(crate) fn leave(&self, account: &Arc<MemoryAccount>) {
        let mut state = self.state.lock();
        if let Some(member) = state.member(account) {
            member.is_open = false;
        }
        state.fit(&self.cache);
    }

    /// Changes the budget of all stores.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`]; the budget is unchanged.
    pub(super) fn set_bytes(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.check(Some(bytes), None)?;
        let open = state.members.iter().filter(|member| member.is_open);
        let parts = open.map(|member| member.budget.within(Some(bytes)).divide(member.workers));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        state.bytes = Some(bytes);
        let open = state.members.iter_mut().filter(|member| member.is_open);
        for (member, parts) in open.zip(parts) {
            member.parts = parts;
        }
        state.fit(&self.cache);
        for account in state.members.iter().filter_map(|member| member.account.upgrade()) {
            if account.memtable_bytes() > account.limit(MemoryUse::Memtables) {
                account.ask();
            }
        }
        Ok(())
    }

    /// Sets the capacity of the block cache to what the stores leave of the pool, in whole steps,
    /// and the limits of each store. Callers call it after a change of memory use; for growing
    /// memtables, when [`is_fit_due`](MemoryAccount::is_fit_due).
    ///
    /// The result depends only on the current memory use, so it cannot oscillate by itself.
    pub(crate) fn fit(&self) {
        self.state.lock().fit(&self.cache);
    }

    /// Requests that the store with the largest memtables freeze one, for the store of `account`.
    /// The largest memtables must exceed their floor and the memtables of that store.
    pub(crate) fn ask_largest(&self, account: &Arc<MemoryAccount>) {
        let mut state = self.state.lock();
        if state.members.len() < 2 {
            return;
        }
        let uses = state.uses();
        let limits = state.limits_of(&uses, Member::memtable_claim);
        let others = state.members.iter().zip(&uses).filter_map(|(member, (other, uses))| {
            let floor = limits.floor(member.memtable_claim(uses));
            let is_over = uses.memtables > floor.max(account.memtable_bytes());
            let can = member.is_open && member.flushes && is_over && !Arc::ptr_eq(other, account);
            can.then_some((uses.memtables, other))
        });
        if let Some((_, largest)) = others.max_by_key(|(memtables, _)| *memtables) {
            largest.ask();
        }
    }

    /// Records a flush of memtables that took `bytes` bytes.
    pub(crate) fn note_flush(&self, account: &Arc<MemoryAccount>, bytes: u64) {
        let mut state = self.state.lock();
        if state.member(account).is_some_and(|member| member.adapts()) {
            state.balance.note_flush(bytes);
        }
    }

    /// Records a compaction that read and wrote `bytes` bytes, in a store with `table_bytes` bytes
    /// of tables.
    pub(crate) fn note_merge(&self, account: &Arc<MemoryAccount>, bytes: u64, table_bytes: u64) {
        let mut state = self.state.lock();
        if let Some(member) = state.member(account).filter(|member| member.adapts()) {
            member.table_bytes = table_bytes;
            state.balance.note_merge(bytes);
        }
    }

    /// Restores the nominal ceiling of memtables, for a write that the current ceiling would delay.
    pub(crate) fn restore_memtables(&self) {
        let mut state = self.state.lock();
        state.balance.restore();
        state.fit(&self.cache);
    }

    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn lower_memtables(&self) {
        let mut state = self.state.lock();
        state.balance.lower_fully();
        state.fit(&self.cache);
    }

    pub(crate) fn moves(&self) -> MemoryMoves {
        let state = self.state.lock();
        let ceiling = state.balance.moves();
        MemoryMoves {
            memtable_limit_lowered: ceiling.lowered,
            memtable_limit_raised: ceiling.raised,
            memtable_limit_restored: ceiling.returned,
            ..state.moves.moves()
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        let mut state = self.state.lock();
        let uses = sum(&state.uses());
        let (bytes, stores) = (state.bytes.unwrap_or(0), state.open().count() as u64);
        // The cache visits each of its blocks.
        drop(state);
        PoolStats {
            budget_bytes: bytes,
            stores,
            memtable_bytes: uses.memtables,
            filter_bytes: uses.filters,
            index_bytes: uses.indexes,
            bookkeeping_bytes: uses.bookkeeping,
            writing_bytes: uses.writing,
            block_cache_bytes: self.cache.memory_bytes(),
            block_cache_bytes_max: self.cache.capacity_bytes(),
            pinned_bytes: uses.pinned + self.cache.pinned_bytes(),
        }
    }
}
