//! What the block cache may take: what the others leave of the pool.

use std::sync::Arc;

use sievedb_filter::FilterArena;
use sievedb_sstable::BlockCache;

use crate::{
    memory::{MemoryAccount, MemoryUse},
    sync::{Condvar, Mutex},
};

/// The capacity changes by so many bytes at a time, or by 1/64 of the pool if that is less. A writer
/// evicts so many for itself, some 250 blocks.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// At least so many steps are in a pool.
const STEPS_MIN: u64 = 64;

/// The room of the block cache, which gives way to all that must be in memory.
#[derive(Debug)]
pub(crate) struct CacheRoom {
    cache: Arc<BlockCache>,
    memory: Arc<MemoryAccount>,
    filter_arena: FilterArena,
    /// The capacity that was set last. Held while it is computed and set: nobody puts an older one back.
    capacity: Mutex<u64>,
    beyond: Mutex<Beyond>,
    within: Condvar,
}

/// Who takes more than its share for writing.
#[derive(Debug, Default)]
struct Beyond {
    /// Whether a worker does.
    is_taken: bool,
    /// Workers that wait to do so.
    waiting: usize,
}

impl CacheRoom {
    /// Creates the room of `cache`, as `memory` and the filters in `filter_arena` leave it.
    pub(crate) fn new(
        cache: Arc<BlockCache>,
        memory: Arc<MemoryAccount>,
        filter_arena: FilterArena,
    ) -> Self {
        let (capacity, beyond, within) = Default::default();
        Self { cache, memory, filter_arena, capacity, beyond, within }
    }

    /// Gives the block cache what the others leave of the pool, in whole steps: they take what they
    /// need, which it goes without. To be called when they, or the pool, have changed; for memtables
    /// that grow, when [`is_fit_due`](MemoryAccount::is_fit_due).
    ///
    /// The capacity follows from what is used at this moment and nothing else, so it cannot
    /// oscillate by itself.
    pub(crate) fn fit(&self) {
        let mut capacity = self.capacity.lock();
        // Before the sum: what memtables grow by meanwhile is noticed.
        let memtable_bytes = self.memory.memtable_bytes();
        let filter_bytes =
            self.filter_arena.stats().bytes as u64 + self.memory.bytes(MemoryUse::Filters);
        let left = self.memory.cache_bytes_left(filter_bytes);
        let ceiling = self.memory.limit(MemoryUse::Indexes);
        let step = (ceiling.min(self.memory.pool_bytes()) / STEPS_MIN).clamp(1, STEP_BYTES_MAX);
        // Where nothing is left it has one step beyond that: with a capacity of 0 it would remember no blocks that it
        // no longer has, even when it has grown again.
        let fitting = (left / step * step).max(step.min(ceiling));
        if fitting != *capacity {
            self.cache.set_capacity_bytes(fitting);
            *capacity = fitting;
        }
        // While nothing is left there is nothing more to give way.
        let slack = if left < step { step } else { left - fitting };
        self.memory.set_memtable_bytes_fitted(memtable_bytes + slack);
    }

    /// Whether a worker waits for the one that takes more than its share.
    pub(crate) fn is_awaited(&self) -> bool {
        self.beyond.lock().waiting > 0
    }
}

/// What one worker takes for writing at a time: one flush, compaction or filter.
///
/// Within its share of the part for writing it asks nobody. What it must have beyond that, for long entries,
/// the block cache gives way to; only one worker at a time may do so, and the others wait for it. A compaction of
/// a store at rest gives way to them.
#[derive(Debug)]
pub(crate) struct WorkerShare {
    room: Arc<CacheRoom>,
    bytes_max: u64,
    state: Mutex<ShareState>,
}

#[derive(Debug, Default)]
struct ShareState {
    bytes: u64,
    /// Whether this is the one that takes more than its share: until its work is done.
    is_beyond: bool,
}

impl WorkerShare {
    /// A share of at most `bytes_max` bytes.
    pub(crate) fn new(room: Arc<CacheRoom>, bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { room, bytes_max, state: Mutex::default() })
    }

    /// The most that it takes without asking.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes taken now.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Takes `bytes` of it, to be changed as they are used, and released by drop.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> ShareTaken {
        let mut taken = ShareTaken { share: Arc::clone(self), bytes: 0 };
        taken.set(bytes);
        taken
    }

    fn change(&self, from: u64, to: u64) {
        let mut state = self.state.lock();
        state.bytes = state.bytes - from + to;
        if to > from && state.bytes > self.bytes_max && !state.is_beyond {
            // Whoever is beyond its share waits for nobody, so it ends.
            let mut beyond = self.room.beyond.lock();
            beyond.waiting += 1;
            while beyond.is_taken {
                self.room.within.wait(&mut beyond);
            }
            beyond.waiting -= 1;
            beyond.is_taken = true;
            state.is_beyond = true;
        }
        self.room.memory.change_writing(from, to);
        if to > from {
            self.room.fit();
        }
    }
}

impl Drop for WorkerShare {
    fn drop(&mut self) {
        if self.state.lock().is_beyond {
            self.room.beyond.lock().is_taken = false;
            self.room.within.notify_all();
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
    /// The share that they are taken of.
    pub(crate) fn share(&self) -> &Arc<WorkerShare> {
        &self.share
    }

    /// Bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes so many from now on. To be called before there are more, and after there are less.
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
    use crate::memory_budget::MemoryParts;

    const MIB: u64 = 1 << 20;

    fn room_of(block_cache: u64) -> Arc<CacheRoom> {
        let memory = Arc::<MemoryAccount>::default();
        memory.set_limits(&MemoryParts {
            memtables: 16 * MIB,
            filters: 16 * MIB,
            writing: 8 * MIB,
            block_cache,
            pool: 64 * MIB,
        });
        let cache = Arc::new(BlockCache::new(64 * MIB));
        let room = CacheRoom::new(cache, memory, FilterArena::heap());
        room.fit();
        Arc::new(room)
    }

    fn room() -> Arc<CacheRoom> {
        room_of(64 * MIB)
    }

    #[test]
    fn the_cache_has_what_the_others_leave() {
        let room = room();
        assert_eq!(room.cache.capacity_bytes(), 61 * MIB, "nothing is taken");
        let uses = [
            MemoryUse::Memtables,
            MemoryUse::FrozenMemtables,
            MemoryUse::PinnedMemtables,
            MemoryUse::Filters,
            MemoryUse::Indexes,
            MemoryUse::Bookkeeping,
        ];
        let charges = uses.map(|what| {
            let before = room.cache.capacity_bytes();
            let charge = room.memory.charge(what, 3 << 20);
            room.fit();
            assert_eq!(before - room.cache.capacity_bytes(), 3 * MIB, "{what:?}");
            charge
        });
        let share = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let other = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let within = other.take(4 * MIB);
        let mut taken = share.take(4 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 35 * MIB, "workers within their shares");
        taken.set(20 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 19 * MIB, "16 beyond");
        let more = share.take(30 * MIB);
        assert_eq!(room.cache.capacity_bytes(), MIB, "one step at least");
        drop((charges, taken, more, share, within, other));
        assert_eq!(room.cache.capacity_bytes(), 61 * MIB, "all is given back");
    }

    #[test]
    fn a_cache_that_was_set_has_a_ceiling_with_the_indexes() {
        let room = room_of(32 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 32 * MIB);
        let memtable = room.memory.charge(MemoryUse::Memtables, 16 << 20);
        let index = room.memory.charge(MemoryUse::Indexes, 2 << 20);
        room.fit();
        assert_eq!(room.cache.capacity_bytes(), 30 * MIB, "of what others do not use");
        let more = room.memory.charge(MemoryUse::Memtables, 24 << 20);
        room.fit();
        assert_eq!(room.cache.capacity_bytes(), 19 * MIB, "the pool has no more");
        drop((memtable, index, more));
    }

    /// A fit is due before memtables take more than the pool has, and not with every write.
    #[test]
    fn memtables_that_grow_ask_for_room_in_steps() {
        let room = room();
        let memtable = room.memory.charge(MemoryUse::Memtables, 0);
        let mut fits = 0;
        for _ in 0..16 << 10 {
            memtable.grow(1 << 10);
            if room.memory.is_fit_due() {
                room.fit();
                fits += 1;
            }
            let used = room.cache.capacity_bytes() + room.memory.memtable_bytes();
            assert!(used <= 64 * MIB, "{used}");
        }
        assert_eq!(fits, 16);
    }

    #[test]
    fn one_worker_at_a_time_is_beyond_its_share() {
        let room = room();
        let first = WorkerShare::new(Arc::clone(&room), MIB);
        let taken = first.take(30 * MIB);
        let second = WorkerShare::new(Arc::clone(&room), MIB);
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
}
