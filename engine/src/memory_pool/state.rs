//! The stores of a pool, and their limits.

use std::{mem, sync::Arc};

use sievedb_sstable::BlockCache;

use super::{
    balance::{Balance, Observed, Reads},
    limits::{Claim, Limits},
    member::Member,
};
use crate::{
    Error, Result,
    memory::{Allowance, MemoryAccount, Uses},
    memory_budget::{MEMORY_BUDGET_MIN, MEMORY_BUDGET_PER_WORKER_MIN, MemoryParts},
    stats::{CacheRivals, MoveCounter},
    text,
};

/// Maximum granularity of the capacity of the block cache, or 1/64 of the pool if that is less. A
/// writer evicts one step, about 250 blocks, itself.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// Minimum number of steps in a pool.
const STEPS_MIN: u64 = 64;

/// Divisor of a pool for active memtables of idle stores.
const IDLE_SHARE: u64 = 64;

/// Divisor of the ceiling of memtables for the ghost list of the block cache.
const GHOST_SHARE: u64 = 4;

#[derive(Debug)]
pub(super) struct State {
    /// The budget of all stores. `None` in the pool of one store, which has a budget.
    pub(super) bytes: Option<u64>,
    pub(super) members: Vec<Member>,
    /// Last capacity of the block cache.
    pub(super) capacity: u64,
    pub(super) moves: MoveCounter,
    pub(super) balance: Balance,
    /// Size that the ghost list of the block cache simulates.
    pub(super) ghost_bytes: u64,
}

impl State {
    pub(super) fn open(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_open)
    }

    /// Sets the current ceilings of memtables, from writes and reads since the last call.
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

    /// Sets the current ceilings of filters. They give way, by a half at most, to the indexes and
    /// the bookkeeping of so many tables that the parts would exceed the pool.
    fn set_filter_ceilings(&mut self, uses: &Uses, pool: u64, step: u64) {
        let part = |of: fn(&MemoryParts) -> u64| self.open().map(|it| of(&it.parts)).max();
        let others = [part(|parts| parts.memtables), part(|parts| parts.writing)];
        let others = others.into_iter().flatten().sum::<u64>() + uses.indexes + uses.bookkeeping;
        let left = pool.saturating_sub(others) / step * step;
        for member in &mut self.members {
            let filters = member.parts.filters;
            member.filter_ceiling = left.clamp(filters / 2, filters);
        }
    }

    pub(super) fn member(&mut self, account: &Arc<MemoryAccount>) -> Option<&mut Member> {
        let account = Arc::downgrade(account);
        self.members.iter_mut().find(|member| member.account.ptr_eq(&account))
    }

    /// Checks that a shared pool of `bytes` bytes has room for all stores, and for a joining store
    /// with this number of workers.
    pub(super) fn check(&self, bytes: Option<u64>, joining: Option<usize>) -> Result<()> {
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
    pub(super) fn uses(&mut self) -> Vec<(Arc<MemoryAccount>, Uses)> {
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

    pub(super) fn limits_of(
        &self,
        uses: &[(Arc<MemoryAccount>, Uses)],
        claim: fn(&Member, &Uses) -> Claim,
    ) -> Limits {
        let claims = self.members.iter().zip(uses).map(|(member, (_, uses))| claim(member, uses));
        Limits::new(claims, self.open().count())
    }

    pub(super) fn fit(&mut self, cache: &BlockCache) {
        let uses = self.uses();
        self.balance(&uses, cache);
        let Some(first) = self.open().next() else { return };
        let pool = self.bytes.unwrap_or(first.parts.pool);
        let ceiling = self.bytes.unwrap_or(first.parts.block_cache);
        let sum = sum(&uses);
        let left = sum.cache_bytes_left(pool, ceiling);
        let step = (ceiling.min(pool) / STEPS_MIN).clamp(1, STEP_BYTES_MAX);
        // At least one step: with a capacity of 0 its ghost list would stay empty.
        let fitting = (left / step * step).max(step.min(ceiling));
        debug_assert!(fitting <= ceiling && ceiling <= pool, "{fitting} of {ceiling} of {pool}");
        debug_assert_eq!(uses.len(), self.members.len());
        if fitting != self.capacity {
            cache.set_capacity_bytes(fitting);
            let from = mem::replace(&mut self.capacity, fitting);
            self.moves.note(from, fitting, rivals(&sum, pool, ceiling));
        }
        // Memtables may also take the part that the ceiling of the cache leaves.
        let pool_left = sum.cache_bytes_left(pool, u64::MAX);
        let slack = if pool_left < step { step } else { pool_left - fitting };
        let slack = slack.min(STEP_BYTES_MAX);
        self.set_filter_ceilings(&sum, pool, step);
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
                filters: match self.bytes {
                    None if member.filter_ceiling == member.parts.filters => u64::MAX,
                    _ => filters.limit(member.filter_claim(uses)),
                },
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

pub(super) fn sum(uses: &[(Arc<MemoryAccount>, Uses)]) -> Uses {
    let mut sum = Uses::default();
    uses.iter().for_each(|(_, uses)| sum.add(uses));
    sum
}
