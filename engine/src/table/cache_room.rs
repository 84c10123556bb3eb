//! The memory of a store in its pool: limits of the block cache, and of a worker's writing.

use std::sync::Arc;

use sievedb_sstable::BlockCache;

use crate::{
    Options, Result,
    memory::{MemoryAccount, MemoryUse},
    memory_budget::{MemoryBudget, MemoryParts},
    memory_pool::Pool,
    stats::{Counters, MemoryMoves},
    sync::{Condvar, Mutex},
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
/// waits for no other job, except a compaction for a flush. So each wait ends.
#[derive(Debug)]
pub(crate) struct WorkerShare {
    room: Arc<CacheRoom>,
    bytes_max: u64,
    is_of_flush: bool,
    state: Mutex<ShareState>,
}

#[derive(Debug, Default)]
struct ShareState {
    bytes: u64,
    /// The worker exceeds its share, until its work ends.
    is_beyond: bool,
}

impl WorkerShare {
    /// A share of at most `bytes_max` bytes, for a flush or another job.
    pub(crate) fn new(room: Arc<CacheRoom>, bytes_max: u64, is_of_flush: bool) -> Arc<Self> {
        Arc::new(Self { room, bytes_max, is_of_flush, state: Mutex::default() })
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
        let rest = Self::new(Arc::clone(&self.room), left.max(least), is_for_flush);
        if left < least {
            rest.go_beyond(&mut rest.state.lock());
        }
        rest
    }

    /// Returns the bytes that tables of this share leave free.
    pub(super) fn free_bytes(&self) -> u64 {
        let has_free = !self.is_of_flush && self.bytes_max >= FREE_SHARE_BYTES_MIN;
        if has_free { self.bytes_max / FREE_IN_SHARE } else { 0 }
    }

    /// Returns the bytes currently taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Returns `true` if the worker exceeds its share, or did so before.
    pub(crate) fn is_beyond(&self) -> bool {
        self.state.lock().is_beyond
    }

    /// Takes `bytes` of the share. The amount can be changed, and is released on drop.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> ShareTaken {
        let mut taken = ShareTaken { share: Arc::clone(self), bytes: 0 };
        taken.set(bytes);
        taken
    }

    fn change(&self, from: u64, to: u64) {
        let mut state = self.state.lock();
        state.bytes = state.bytes - from + to;
        if to > from && state.bytes > self.bytes_max {
            self.go_beyond(&mut state);
        }
        self.room.memory.change_writing(from, to);
        if to > from {
            self.room.fit();
        }
    }

    /// Waits until the worker may exceed its share.
    fn go_beyond(&self, state: &mut ShareState) {
        if !state.is_beyond {
            self.room.turn(self.is_of_flush).take();
            state.is_beyond = true;
        }
    }
}

impl Drop for WorkerShare {
    fn drop(&mut self) {
        if self.state.lock().is_beyond {
            self.room.turn(self.is_of_flush).end();
        }
        self.room.fit();
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::stats::CacheMoves;

    const MIB: u64 = 1 << 20;

    fn room_of(block_cache_bytes: Option<u64>) -> Arc<CacheRoom> {
        let options = Options::new().memory_budget(64 * MIB);
        let options = match block_cache_bytes {
            Some(bytes) => options.block_cache_bytes(bytes),
            None => options,
        };
        CacheRoom::of(&options).expect("a valid budget")
    }

    fn room() -> Arc<CacheRoom> {
        room_of(None)
    }

    #[test]
    fn the_cache_has_what_the_others_leave() {
        let room = room();
        assert_eq!(room.cache().capacity_bytes(), 60 * MIB, "nothing is taken");
        let uses = [
            MemoryUse::Memtables,
            MemoryUse::FrozenMemtables,
            MemoryUse::PinnedMemtables,
            MemoryUse::Filters,
            MemoryUse::Indexes,
            MemoryUse::Bookkeeping,
        ];
        let charges = uses.map(|what| {
            let before = room.cache().capacity_bytes();
            let charge = room.memory.charge(what, 3 << 20);
            room.fit();
            assert_eq!(before - room.cache().capacity_bytes(), 3 * MIB, "{what:?}");
            charge
        });
        let share = WorkerShare::new(Arc::clone(&room), 4 * MIB, false);
        let other = WorkerShare::new(Arc::clone(&room), 4 * MIB, false);
        let within = other.take(4 * MIB);
        let mut taken = share.take(4 * MIB);
        assert_eq!(room.cache().capacity_bytes(), 34 * MIB, "workers within their shares");
        taken.set(20 * MIB);
        assert_eq!(room.cache().capacity_bytes(), 18 * MIB, "16 beyond");
        let more = share.take(30 * MIB);
        assert_eq!(room.cache().capacity_bytes(), MIB, "one step at least");
        drop((charges, taken, more, share, within, other));
        assert_eq!(room.cache().capacity_bytes(), 60 * MIB, "all is given back");
    }

    /// So many tables take no more than the pool has, and a plan is due for each change.
    #[test]
    fn filters_give_way_to_the_bookkeeping_of_many_tables() {
        let room = room();
        let memory = &room.memory;
        let filters = memory.charge(MemoryUse::Filters, 16 << 20);
        let tables = memory.charge(MemoryUse::Bookkeeping, 0);
        let mut held = 0;
        for (bytes, want, is_due) in [
            (24, 16, false),
            (30, 10, true),
            (31, 9, true),
            (60, 8, true),
            (31, 9, false),
            (28, 12, true),
            (24, 16, true),
            (0, 16, false),
        ] {
            tables.grow(bytes << 20);
            tables.shrink(held << 20);
            held = bytes;
            room.fit();
            assert_eq!(memory.filter_bytes_max(), want * MIB, "{bytes} MiB");
            assert_eq!(memory.filters_are_due(), is_due, "{bytes} MiB");
            memory.begin_filter_plan();
        }
        drop((filters, tables));
    }

    #[test]
    fn moves_are_counted_for_the_part_that_grew_or_shrank() {
        let room = room();
        assert_eq!(room.moves(), MemoryMoves::default(), "the first capacity is no move");
        let small = room.memory.charge(MemoryUse::Bookkeeping, 100);
        room.fit();
        let index = room.memory.charge(MemoryUse::Indexes, 2 << 20);
        room.fit();
        let memtable = room.memory.charge(MemoryUse::Memtables, 5 << 20);
        room.fit();
        room.fit();
        memtable.move_to(MemoryUse::FrozenMemtables);
        room.fit();
        memtable.move_to(MemoryUse::PinnedMemtables);
        room.fit();
        drop(memtable);
        room.fit();
        drop(WorkerShare::new(Arc::clone(&room), 4 * MIB, false).take(4 * MIB));
        let smaller = Options::new().memory_budget(32 * MIB).memory;
        room.change(smaller).expect("a valid budget");
        let moves = room.moves();
        let once = |taken: u64, returned: u64| CacheMoves {
            takes: u64::from(taken > 0),
            bytes_taken: taken * MIB,
            returns: u64::from(returned > 0),
            bytes_returned: returned * MIB,
        };
        // The 100 bytes cost a whole step, for the part that grew.
        assert_eq!(moves.bookkeeping, once(1, 0));
        assert_eq!(moves.indexes, once(2, 0));
        assert_eq!(moves.memtables, once(5, 5));
        assert_eq!(moves.writing, once(4, 4));
        assert_eq!((moves.budget.takes, moves.budget.returns), (1, 0));
        assert_eq!(moves.filters, CacheMoves::default());
        drop((small, index));
    }

    #[test]
    fn a_cache_that_was_set_has_a_ceiling_with_the_indexes() {
        let room = room_of(Some(16 * MIB));
        assert_eq!(room.cache().capacity_bytes(), 16 * MIB);
        let memtable = room.memory.charge(MemoryUse::Memtables, 16 << 20);
        let index = room.memory.charge(MemoryUse::Indexes, 2 << 20);
        room.fit();
        assert_eq!(room.cache().capacity_bytes(), 14 * MIB, "of what others do not use");
        let more = room.memory.charge(MemoryUse::Memtables, 34 << 20);
        room.fit();
        assert_eq!(room.cache().capacity_bytes(), 8 * MIB, "the pool has no more");
        drop((memtable, index, more));
    }

    /// A fit is due before memtables exceed the memory of the pool, and not with every write.
    #[test]
    fn memtables_that_grow_ask_for_room_in_steps() {
        for block_cache_bytes in [None, Some(0), Some(10 * MIB), Some(10 * MIB + 1)] {
            let room = room_of(block_cache_bytes);
            room.fit();
            let memtable = room.memory.charge(MemoryUse::Memtables, 0);
            let mut fits = 0;
            for _ in 0..16 << 10 {
                memtable.grow(1 << 10);
                if room.memory.is_fit_due() {
                    room.fit();
                    fits += 1;
                }
                let used = room.cache().capacity_bytes() + room.memory.memtable_bytes();
                assert!(used <= 64 * MIB, "{used}");
            }
            assert!((15..=16).contains(&fits), "{fits} with {block_cache_bytes:?}");
        }
    }

    #[test]
    fn one_flush_and_one_other_job_at_a_time_exceed_their_shares() {
        let room = room();
        let share_of = |is_flush| WorkerShare::new(Arc::clone(&room), MIB, is_flush);
        let (first, second) = (share_of(false), share_of(false));
        let taken = first.take(30 * MIB);
        drop(share_of(true).take(2 * MIB));
        assert!(!room.is_awaited());
        let waiting = thread::spawn(move || drop(second.take(30 * MIB)));
        while !room.is_awaited() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        assert_eq!(room.memory.bytes(MemoryUse::Writing), 30 * MIB);
        drop((taken, first));
        waiting.join().expect("it only waited");
        assert!(!room.is_awaited());
        assert_eq!(room.memory.bytes(MemoryUse::Writing), 0);
    }

    #[test]
    fn a_shutdown_ends_the_waits_for_a_turn() {
        let room = room();
        let [first, second] = [(); 2].map(|()| WorkerShare::new(Arc::clone(&room), MIB, false));
        let _taken = first.take(30 * MIB);
        let waiting = thread::spawn(move || drop(second.take(30 * MIB)));
        while !room.is_awaited() {
            thread::yield_now();
        }
        room.shut_down();
        waiting.join().expect("it only waited");
    }

    #[test]
    fn a_flush_within_another_job_has_a_quarter_of_its_share() {
        let room = room();
        let share = WorkerShare::new(Arc::clone(&room), 8 * MIB, false);
        let mut taken = share.take(MIB);
        for (bytes, of_flush, is_beyond, of_other) in
            [(1, 7, false, 7), (6, 2, false, 2), (7, 2, true, 1), (9, 2, true, 0)]
        {
            taken.set(bytes * MIB);
            let rest = share.rest(true);
            assert_eq!((rest.bytes_max(), rest.is_beyond()), (of_flush * MIB, is_beyond));
            assert_eq!(share.rest(false).bytes_max(), of_other * MIB, "{bytes} MiB are taken");
        }
    }
}
