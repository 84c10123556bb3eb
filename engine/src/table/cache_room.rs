//! What the block cache may take: its part of the budget, less what comes first.

use std::sync::Arc;

use sievedb_sstable::BlockCache;

use crate::{
    memory::{MemoryAccount, MemoryUse},
    sync::{Condvar, Mutex},
};

/// The room of the block cache, which gives way to all that must be in memory.
#[derive(Debug)]
pub(crate) struct CacheRoom {
    cache: Arc<BlockCache>,
    memory: Arc<MemoryAccount>,
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
    /// The room of `cache`, as `memory` leaves it.
    pub(crate) fn new(cache: Arc<BlockCache>, memory: Arc<MemoryAccount>) -> Self {
        let (capacity, beyond, within) = Default::default();
        Self { cache, memory, capacity, beyond, within }
    }

    /// Gives the block cache what the others leave of their common part: they are resident and take
    /// what they need, which it goes without. To be called when they, or the part, have changed.
    pub(crate) fn fit(&self) {
        /// Changes of a smaller share are not passed on, but rounded down.
        const STEPS: u64 = 64;

        let mut capacity = self.capacity.lock();
        let part = self.memory.limit(MemoryUse::Indexes);
        let left = part.saturating_sub(self.memory.before_cache_bytes());
        let step = (part / STEPS).max(1);
        // Where nothing is left it has one step beyond that: with a capacity of 0 it would remember no blocks that it
        // no longer has, even when it has grown again.
        let fitting = (left / step * step).max(step.min(part));
        if fitting != *capacity {
            self.cache.set_capacity_bytes(fitting);
            *capacity = fitting;
        }
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
        let memory = &self.room.memory;
        memory.change_writing(from, to);
        // Be it within its share: another worker may have taken some of that, too.
        if to > from && memory.bytes(MemoryUse::Writing) > memory.limit(MemoryUse::Writing) {
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
        // It may have given way to this one within its share.
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

    const MIB: u64 = 1 << 20;

    fn room() -> Arc<CacheRoom> {
        let memory = Arc::<MemoryAccount>::default();
        memory.set_limit(MemoryUse::Indexes, 64 * MIB);
        memory.set_limit(MemoryUse::Writing, 8 * MIB);
        memory.set_limit(MemoryUse::Bookkeeping, 0);
        let room = CacheRoom::new(Arc::new(BlockCache::new(64 * MIB)), memory);
        room.fit();
        Arc::new(room)
    }

    #[test]
    fn the_cache_gives_way_to_what_is_beyond_a_share() {
        let room = room();
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "nothing is taken");
        let share = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let other = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let _within = other.take(4 * MIB);
        let mut taken = share.take(4 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "within the part for writing");
        taken.set(20 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 48 * MIB, "16 beyond");
        let more = share.take(10 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 38 * MIB, "26 beyond");
        let index = room.memory.charge(MemoryUse::Bookkeeping, 8 << 20);
        room.fit();
        assert_eq!(room.cache.capacity_bytes(), 30 * MIB, "8 of bookkeeping");
        room.memory.set_limit(MemoryUse::Bookkeeping, 20 * MIB);
        room.fit();
        assert_eq!(room.cache.capacity_bytes(), 50 * MIB, "so much is spare");
        drop((index, taken, more, share));
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "all is given back");
    }

    #[test]
    fn the_cache_gives_way_to_the_others_within_their_shares() {
        let room = room();
        let first = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let beyond = first.take(8 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "the second has taken nothing");
        let second = WorkerShare::new(Arc::clone(&room), 4 * MIB);
        let within = second.take(4 * MIB);
        assert_eq!(room.cache.capacity_bytes(), 60 * MIB, "what the first has of it");
        drop((within, second));
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "the second has ended");
        drop((beyond, first));
        assert_eq!(room.cache.capacity_bytes(), 64 * MIB, "all is given back");
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
