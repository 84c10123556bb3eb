//! The memory of a store in its pool: limits of the block cache, and of a worker's writing.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::sync::Arc;

use sievedb_sstable::BlockCache;

use crate::{
    Options, Result,
    memory::{MemoryAccount, MemoryUse},
    memory_budget::{MemoryBudget, MemoryParts},
    memory_pool::Pool,
    stats::{Counters, MemoryMoves},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Divisor of a share for the part that tables of a compaction leave free: urgent flushes on the
/// same thread take it, and estimates that are too low do not exceed the share.
const FREE_IN_SHARE: u64 = 4;
/// Smaller shares leave none free: their tables would be tiny.
const FREE_SHARE_BYTES_MIN: u64 = 2 << 20;

/// The membership of a store in its pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct CacheRoom {
    pool: Arc<Pool>,
    memory: Arc<MemoryAccount>,
    counters: Arc<Counters>,
    /// The flush that exceeds its share. It holds copies of one entry at a time.
    flush_beyond: Turn,
    /// The other job that does. A compaction of long entries does until it ends, for which no flush
    /// may wait.
    other_beyond: Turn,
}

/// The right to take more than a share for writing, which one worker of the store has at a time.
#[derive(Debug, Default)]
struct Turn {
    state: Mutex<TurnState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    is_taken: bool,
    /// Workers that wait for it.
    waiting: usize,
    /// The store shuts down: its jobs end soon.
    is_closing: bool,
}

impl Turn {
    /// Takes it, once no other worker has it or the store shuts down.
    fn take(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.is_taken && !state.is_closing {
            self.ended.wait(&mut state);
        }
        state.waiting -= 1;
        state.is_taken = true;
    }

    /// Ends all waits: a worker that has the turn may be the one that closes the store.
    fn close(&self) {
        self.state.lock().is_closing = true;
        self.ended.notify_all();
    }

    fn end(&self) {
        self.state.lock().is_taken = false;
        self.ended.notify_all();
    }
}

impl CacheRoom {
    /// Adds a store with these options to its pool, or to a pool of its own.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`](crate::Error::BudgetTooSmall);
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for an inherited pool.
    pub(crate) fn of(options: &Options) -> Result<Arc<Self>> {
        let (budget, workers) = (options.memory, options.worker_threads);
        let pool = match &options.memory_pool {
            Some(pool) => Arc::clone(pool.accept()?),
            None => Arc::new(Pool::new(None, budget.divide(workers)?.block_cache)),
        };
        let (memory, counters) = (Arc::<MemoryAccount>::default(), Arc::<Counters>::default());
        let parts = pool.join((&memory, &counters), budget, workers, !options.read_only)?;
        let (flush_beyond, other_beyond) = Default::default();
        let room = Self { pool, memory, counters, flush_beyond, other_beyond };
        room.memory.begin_filter_plan();
        room.memory.set_limit(MemoryUse::Filters, room.filter_bytes_max(&budget, &parts));
        Ok(Arc::new(room))
    }

    /// Returns the account of the store.
    pub(crate) fn memory(&self) -> &Arc<MemoryAccount> {
        &self.memory
    }

    /// Returns the counters of the store.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the block cache of the pool.
    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        self.pool.cache()
    }

    /// Changes the budget of the store. Returns the bound of its filters.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`](crate::Error::BudgetTooSmall); nothing is changed then.
    pub(crate) fn change(&self, budget: MemoryBudget) -> Result<u64> {
        let parts = self.pool.change(&self.memory, budget)?;
        Ok(self.filter_bytes_max(&budget, &parts))
    }

    /// Returns the store's own bound of its filters, in addition to the limit of its pool.
    fn filter_bytes_max(&self, budget: &MemoryBudget, parts: &MemoryParts) -> u64 {
        let is_shared = self.pool.is_shared();
        if is_shared { budget.filter_bytes_max.unwrap_or(u64::MAX) } else { parts.filters }
    }

    /// Sets the capacity of the block cache to what the other parts leave: see [`Pool::fit`].
    pub(crate) fn fit(&self) {
        self.pool.fit();
    }

    /// Records a flush of memtables that took `bytes` bytes.
    pub(crate) fn note_flush(&self, bytes: u64) {
        self.pool.note_flush(&self.memory, bytes);
    }

    /// Records a compaction that read and wrote `bytes` bytes. The tables of the store take
    /// `table_bytes` bytes.
    pub(crate) fn note_merge(&self, bytes: u64, table_bytes: u64) {
        self.pool.note_merge(&self.memory, bytes, table_bytes);
    }

    /// Restores the nominal ceiling of memtables, for a write that the current ceiling would delay.
    pub(crate) fn restore_memtables(&self) {
        self.pool.restore_memtables();
    }

    /// Lowers the ceiling of memtables to its minimum, for tests.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn lower_memtables(&self) {
        self.pool.lower_memtables();
    }

    /// Returns the changes of the limits of the block cache and of memtables so far.
    pub(crate) fn moves(&self) -> MemoryMoves {
        self.pool.moves()
    }

    /// Requests that the store of the pool with the largest memtables freeze one.
    pub(crate) fn ask_largest(&self) {
        self.pool.ask_largest(&self.memory);
    }

    /// Ends all waits of a store that shuts down. Its jobs may exceed their shares until they end.
    pub(crate) fn shut_down(&self) {
        self.flush_beyond.close();
        self.other_beyond.close();
    }

    /// Ends the claims of the store, which is closed.
    pub(crate) fn leave(&self) {
        self.pool.leave(&self.memory);
    }

    /// Returns whether a worker waits for a job that exceeds its share and is no flush.
    pub(crate) fn is_awaited(&self) -> bool {
        self.other_beyond.state.lock().waiting > 0
    }

    /// Returns the turn of flushes, or of other jobs, to exceed a share. Workers of other stores
    /// have their own: a store must not wait for the files, or the listener, of another.
    fn turn(&self, is_flush: bool) -> &Turn {
        if is_flush { &self.flush_beyond } else { &self.other_beyond }
    }
}

impl Drop for CacheRoom {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Memory that one worker takes for writing at a time: for one flush, compaction or filter.
///
/// Within its share it takes memory freely. Beyond it, for long entries, the block cache shrinks.
/// Only one flush and one other job at a time may exceed their shares; others of their kind wait
/// for them. A compaction of an idle store is interrupted for them. A job that exceeds its share
/// waits for no other job, except a compaction for a flush. So each wait ends. The threads of one
/// job have a share each, and exceed them together.
#[derive(Debug)]
pub(crate) struct WorkerShare {
    bytes_max: u64,
    /// Bytes taken.
    bytes: Mutex<u64>,
    job: Arc<SharesOfJob>,
}

/// The shares of the threads of one job.
#[derive(Debug)]
struct SharesOfJob {
    room: Arc<CacheRoom>,
    is_of_flush: bool,
    /// A thread exceeds its share, until the job ends.
    is_beyond: AtomicBool,
    /// Held while a thread waits for its turn.
    turn_of_threads: Mutex<()>,
}

impl SharesOfJob {
    /// Waits until the job may exceed its shares.
    fn go_beyond(&self) {
        let _turn = self.turn_of_threads.lock();
        if !self.is_beyond.load(Relaxed) {
            self.room.turn(self.is_of_flush).take();
            self.is_beyond.store(true, Relaxed);
        }
    }
}

impl Drop for SharesOfJob {
    fn drop(&mut self) {
        if *self.is_beyond.get_mut() {
            self.room.turn(self.is_of_flush).end();
        }
    }
}

impl WorkerShare {
    /// A share of at most `bytes_max` bytes, for a flush or another job.
    pub(crate) fn new(room: Arc<CacheRoom>, bytes_max: u64, is_of_flush: bool) -> Arc<Self> {
        let (is_beyond, turn_of_threads) = Default::default();
        let job = SharesOfJob { room, is_of_flush, is_beyond, turn_of_threads };
        Arc::new(Self { bytes_max, bytes: Mutex::default(), job: Arc::new(job) })
    }

    /// Returns a share of the same size for another thread of the job.
    pub(crate) fn of_another_thread(&self) -> Arc<Self> {
        let (bytes_max, job) = (self.bytes_max, Arc::clone(&self.job));
        Arc::new(Self { bytes_max, bytes: Mutex::default(), job })
    }

    /// Returns `true` if other threads of the job have shares.
    pub(crate) fn has_other_threads(&self) -> bool {
        Arc::strong_count(&self.job) > 1
    }

    /// Returns the size of the share in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns a share of the bytes that are not taken now, for other work of the same thread.
    ///
    /// A flush has [a part of the share](FREE_IN_SHARE) at least, for tables that are not tiny. If
    /// less is left, it exceeds the share from the beginning.
    pub(crate) fn rest(&self, is_for_flush: bool) -> Arc<Self> {
        let left = self.bytes_max.saturating_sub(self.bytes());
        let least = if is_for_flush { self.bytes_max / FREE_IN_SHARE } else { 0 };
        let rest = Self::new(Arc::clone(&self.job.room), left.max(least), is_for_flush);
        if left < least {
            rest.job.go_beyond();
        }
        rest
    }

    /// Returns the bytes that tables of this share leave free.
    pub(super) fn free_bytes(&self) -> u64 {
        let has_free = !self.job.is_of_flush && self.bytes_max >= FREE_SHARE_BYTES_MIN;
        if has_free { self.bytes_max / FREE_IN_SHARE } else { 0 }
    }

    /// Returns the bytes currently taken.
    pub(crate) fn bytes(&self) -> u64 {
        *self.bytes.lock()
    }

    /// Returns `true` if a thread of the job exceeds its share, or did so before.
    pub(crate) fn is_beyond(&self) -> bool {
        self.job.is_beyond.load(Relaxed)
    }

    /// Takes `bytes` of the share. The amount can be changed, and is released on drop.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> ShareTaken {
        let mut taken = ShareTaken { share: Arc::clone(self), bytes: 0 };
        taken.set(bytes);
        taken
    }

    fn change(&self, from: u64, to: u64) {
        let mut bytes = self.bytes.lock();
        *bytes = *bytes - from + to;
        if to > from && *bytes > self.bytes_max {
            self.job.go_beyond();
        }
        self.job.room.memory.change_writing(from, to);
        if to > from {
            self.job.room.fit();
        }
    }
}

impl Drop for WorkerShare {
    fn drop(&mut self) {
        self.job.room.fit();
    }
}

/// Bytes of a share that are in use.
#[derive(Debug)]
pub(crate) struct ShareTaken {
    share: Arc<WorkerShare>,
    bytes: u64,
}

impl ShareTaken {
    /// Returns the share from which the bytes are taken.
    pub(crate) fn share(&self) -> &Arc<WorkerShare> {
        &self.share
    }

    /// Bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the taken bytes. Call it before the use increases, and after it decreases.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes != self.bytes {
            self.share.change(self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for ShareTaken {
    fn drop(&mut self) {
        self.set(0);
    }
}
