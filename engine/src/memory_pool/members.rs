//! The pool: its stores, their shared block cache, and their limits.

use std::{mem, sync::Arc};

use sievedb_sstable::BlockCache;

use super::{
    PoolStats,
    balance::{Balance, Observed, Reads},
    limits::{Claim, Limits},
    member::Member,
};
use crate::{
    Error, Result,
    memory::{Allowance, MemoryAccount, MemoryUse, Uses},
    memory_budget::{MEMORY_BUDGET_MIN, MEMORY_BUDGET_PER_WORKER_MIN, MemoryBudget, MemoryParts},
    stats::{CacheRivals, Counters, MemoryMoves, MoveCounter},
    sync::Mutex,
    text,
};

/// Granularity of the capacity of the block cache, or 1/64 of the pool if that is less. A writer
/// evicts one step, about 250 blocks, by itself.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// Minimum number of steps in a pool.
const STEPS_MIN: u64 = 64;

/// Divisor of a pool for active memtables of idle stores.
const IDLE_SHARE: u64 = 64;

/// Divisor of the ceiling of memtables for the ghost list of the block cache.
const GHOST_SHARE: u64 = 4;

/// The memory of one store, or of several that share it.
///
/// Its lock is taken after the locks of a store and before those of the block cache, of filter
/// arenas and of bells. No lock of a store is taken under it.
#[derive(Debug)]
pub(crate) struct Pool {
    cache: Arc<BlockCache>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The budget of all stores. `None` in the pool of one store, which has a budget.
    bytes: Option<u64>,
    members: Vec<Member>,
    /// Last capacity of the block cache.
    capacity: u64,
    moves: MoveCounter,
    balance: Balance,
    /// Size that the ghost list of the block cache stands for.
    ghost_bytes: u64,
}

impl Pool {
    /// Creates a pool of `bytes` bytes; `None` for one store. The block cache is built for
    /// `cache_bytes`.
    pub(crate) fn new(bytes: Option<u64>, cache_bytes: u64) -> Self {
        // It has as many shards as it needs while the others take their parts.
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
    /// The result depends only on the present memory use, so it cannot oscillate by itself.
    pub(crate) fn fit(&self) {
        self.state.lock().fit(&self.cache);
    }

    /// Requests that the store with the largest memtables freeze one, for the store of `account`:
    /// if they are above its floor, and larger than those of that store.
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

    /// Restores the nominal ceiling of memtables, for a write that the present one would delay.
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
        // The cache looks at each of its blocks.
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

impl State {
    fn open(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_open)
    }

    /// Sets the present ceilings of memtables, from writes and reads since the last call.
    fn balance(&mut self, uses: &[(Arc<MemoryAccount>, Uses)], cache: &BlockCache) {
        let adapting = self.members.iter().zip(uses).filter(|(member, _)| member.adapts());
        let nominal = adapting.clone().map(|(member, _)| member.parts.memtables).max();
        let nominal = nominal.unwrap_or(0);
        let memtables: u64 = adapting.clone().map(|(_, (_, uses))| uses.memtables).sum();
        let table_bytes = adapting.clone().map(|(member, _)| member.table_bytes).sum();
        let reads = || {
            let mut reads = Reads::default();
            adapting.for_each(|(member, _)| member.add_reads_to(&mut reads));
            reads
        };
        if self.ghost_bytes != nominal / GHOST_SHARE {
            self.ghost_bytes = nominal / GHOST_SHARE;
            cache.set_ghost_bytes(self.ghost_bytes);
        }
        if self.balance.is_epoch_over(nominal, memtables) {
            self.balance.end_epoch(&Observed {
                nominal,
                spared: cache.ghost_stats(),
                reads: reads(),
                ghost_bytes: self.ghost_bytes,
                table_bytes,
            });
        }
        for member in &mut self.members {
            let nominal = member.parts.memtables;
            let adapts = member.adapts();
            member.memtable_ceiling = if adapts { self.balance.ceiling(nominal) } else { nominal };
        }
    }

    fn member(&mut self, account: &Arc<MemoryAccount>) -> Option<&mut Member> {
        let account = Arc::downgrade(account);
        self.members.iter_mut().find(|member| member.account.ptr_eq(&account))
    }

    /// Checks that a shared pool of `bytes` bytes has room for all stores, and for one that joins
    /// with this number of workers.
    fn check(&self, bytes: Option<u64>, joining: Option<usize>) -> Result<()> {
        let Some(bytes) = bytes else { return Ok(()) };
        let least =
            |workers: usize| MEMORY_BUDGET_MIN.max(workers as u64 * MEMORY_BUDGET_PER_WORKER_MIN);
        let workers = self.open().map(|member| member.workers).chain(joining);
        let bytes_min = workers.map(least).sum::<u64>().max(MEMORY_BUDGET_MIN);
        if bytes >= bytes_min {
            return Ok(());
        }
        let (each, worker) =
            (text::bytes(MEMORY_BUDGET_MIN), text::bytes(MEMORY_BUDGET_PER_WORKER_MIN));
        let made_of = format!("{each} for each store, or {worker} for each of its worker_threads");
        Err(Error::BudgetTooSmall { what: "a memory_pool", bytes, bytes_min, made_of })
    }

    /// Removes stores whose last charge was released. Returns the uses of the others, in order.
    fn uses(&mut self) -> Vec<(Arc<MemoryAccount>, Uses)> {
        let mut uses = Vec::with_capacity(self.members.len());
        self.members.retain(|member| {
            let account = member.account.upgrade();
            uses.extend(account.map(|account| {
                let of_account = account.uses();
                (account, of_account)
            }));
            uses.last().is_some_and(|(account, _)| member.is_of(account))
        });
        uses
    }

    fn limits_of(
        &self,
        uses: &[(Arc<MemoryAccount>, Uses)],
        claim: fn(&Member, &Uses) -> Claim,
    ) -> Limits {
        let claims = self.members.iter().zip(uses).map(|(member, (_, uses))| claim(member, uses));
        Limits::new(claims, self.open().count())
    }

    fn fit(&mut self, cache: &BlockCache) {
        let uses = self.uses();
        self.balance(&uses, cache);
        let Some(first) = self.open().next() else { return };
        let pool = self.bytes.unwrap_or(first.parts.pool);
        let ceiling = self.bytes.unwrap_or(first.parts.block_cache);
        let sum = sum(&uses);
        let left = sum.cache_bytes_left(pool, ceiling);
        let step = (ceiling.min(pool) / STEPS_MIN).clamp(1, STEP_BYTES_MAX);
        // Where nothing is left it has one step beyond that: with a capacity of 0 it would remember
        // no blocks that it no longer has, even when it has grown again.
        let fitting = (left / step * step).max(step.min(ceiling));
        debug_assert!(fitting <= ceiling && ceiling <= pool, "{fitting} of {ceiling} of {pool}");
        debug_assert_eq!(uses.len(), self.members.len());
        if fitting != self.capacity {
            cache.set_capacity_bytes(fitting);
            let from = mem::replace(&mut self.capacity, fitting);
            self.moves.note(from, fitting, rivals(&sum, pool, ceiling));
        }
        // Memtables may take what the ceiling of the cache leaves, too. While nothing is left there
        // is nothing more to give way.
        let pool_left = sum.cache_bytes_left(pool, u64::MAX);
        let slack = if pool_left < step { step } else { pool_left - fitting };
        let slack = slack.min(STEP_BYTES_MAX);
        let memtables = self.limits_of(&uses, Member::memtable_claim);
        let filters = self.limits_of(&uses, Member::filter_claim);
        let stores = self.open().count() as u64;
        let workers: u64 = self.open().map(Member::writers).sum();
        for (member, (account, uses)) in self.members.iter().zip(&uses) {
            if !member.is_open {
                continue;
            }
            let writing = u128::from(member.parts.writing) * u128::from(member.writers());
            let allowance = Allowance {
                pool,
                memtables: memtables.limit(member.memtable_claim(uses)),
                memtable_ceiling: member.parts.memtables,
                is_memtable_ceiling_lowered: member.memtable_ceiling < member.parts.memtables,
                idle_memtables: pool / IDLE_SHARE / stores,
                // The filters of one store follow its budget once they are within it.
                filters: self.bytes.map_or(u64::MAX, |_| filters.limit(member.filter_claim(uses))),
                writing: (writing / u128::from(workers)) as u64,
                block_cache: ceiling,
            };
            account.allow(&allowance, uses.filters);
            account.set_memtable_bytes_fitted(uses.memtables + slack / stores);
        }
    }
}

const fn rivals(uses: &Uses, pool: u64, ceiling: u64) -> CacheRivals {
    CacheRivals {
        memtables: uses.memtables + uses.pinned,
        filters: uses.filters_expected,
        indexes: uses.indexes,
        bookkeeping: uses.bookkeeping,
        writing: uses.writing,
        pool,
        ceiling,
    }
}

fn sum(uses: &[(Arc<MemoryAccount>, Uses)]) -> Uses {
    let mut sum = Uses::default();
    uses.iter().for_each(|(_, uses)| sum.add(uses));
    sum
}
