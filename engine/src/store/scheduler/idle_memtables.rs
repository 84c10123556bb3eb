//! Flushes memtables of an idle store to enlarge the block cache.
//!
//! Conditions: no write to the store for [`IDLE`], active memtables take more than 1/64 of the pool
//! divided by the number of its stores, and the block cache is 7/8 full. The largest memtables are
//! flushed until the others take less. Only workers flush idle memtables.
//!
//! With the default limits and a pool of one store, bursts of writes cause at most eight times the
//! flushes of constant writes. Other memtables are frozen at 1/8 of the pool at the latest.

use std::time::Duration;

use sievedb_format::SequenceNumber;

use crate::{memory::MemoryUse, store::Store};

/// Time without writes after which memtables are idle.
const IDLE: Duration = Duration::from_secs(2);

/// Smallest memtable that is flushed, with its filter: its table would take an eighth of that
/// permanently.
const MEMTABLE_BYTES_MIN: usize = 32 << 10;

/// The cache is full if less than one part in so many of it is free.
const FREE_SHARE: u64 = 8;

/// Time since the last write.
#[derive(Debug, Default)]
pub(super) struct IdleMemtables {
    /// The visible sequence number at the last visit.
    visible: Option<SequenceNumber>,
    since: Duration,
    /// Longest wait of workers until work may be due.
    wait_max: Option<Duration>,
}

impl IdleMemtables {
    /// Returns how long workers may wait for something to do here.
    pub(super) fn wait_max(&self) -> Option<Duration> {
        self.wait_max
    }

    /// Returns the remaining idle time at `now`, with this visible sequence number.
    fn left(&mut self, visible: SequenceNumber, now: Duration) -> Duration {
        if self.visible.replace(visible) != Some(visible) {
            self.since = now;
        }
        IDLE.saturating_sub(now.saturating_sub(self.since))
    }
}

impl Store {
    /// Returns whether active memtables take more than an idle store may keep.
    pub(in crate::store) fn has_idle_excess(&self) -> bool {
        let memory = &self.tables.memory;
        memory.bytes(MemoryUse::Memtables) > memory.idle_memtable_bytes()
    }

    /// Freezes idle memtables if the block cache is full.
    pub(super) fn freeze_idle(&self) {
        let is_excess = || self.has_idle_excess();
        {
            let mut state = self.scheduler.state.lock();
            state.idle_memtables.wait_max = None;
            if !is_excess() {
                return;
            }
            let left = state.idle_memtables.left(self.writer.visible(), self.options.clock.now());
            let (cached, room) =
                (self.tables.cache.memory_bytes(), self.tables.cache.capacity_bytes());
            let is_full = cached > room - room / FREE_SHARE;
            state.idle_memtables.wait_max = Some(if left.is_zero() { IDLE } else { left });
            if !left.is_zero() || !is_full || self.versions.check_writable().is_err() {
                return;
            }
        }
        let _placement = self.writer.placement();
        let mut begun = self.begun_memtables();
        begun.sort_unstable_by_key(|(bytes, _)| *bytes);
        while let Some((bytes, tree)) = begun.pop() {
            if bytes < MEMTABLE_BYTES_MIN || !is_excess() {
                return;
            }
            if tree.freeze() {
                let counters = &self.tables.counters.local().memtables;
                counters.idle_flushed.add(1);
                counters.idle_bytes_flushed.add(bytes as u64);
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

    use std::sync::Arc;

    use super::*;
    use crate::{Db, Options, clock::ManualClock, fs::MemoryFs};

    const BUDGET: u64 = 16 << 20;

    struct Fixture {
        db: Db,
        clock: Arc<ManualClock>,
    }

    impl Fixture {
        fn new() -> Self {
            let clock = Arc::<ManualClock>::default();
            let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
            let options = options.memory_budget(BUDGET).clock(Arc::clone(&clock) as _);
            Self { db: options.open("db").unwrap(), clock }
        }

        fn store(&self) -> &Store {
            self.db.store()
        }

        fn write(&self, keyspace: &str, bytes: usize) {
            let keyspace = self.db.keyspace(keyspace).unwrap();
            for number in 0..bytes / 1_000 {
                keyspace.insert(number.to_be_bytes(), [7; 1_000]).unwrap();
            }
        }

        /// Reads more than the cache holds.
        fn fill_cache(&self) {
            self.write("read", 20 << 20);
            let keyspace = self.db.keyspace("read").unwrap();
            keyspace.flush().unwrap();
            for number in 0..(20 << 20) / 1_000_usize {
                keyspace.get(number.to_be_bytes()).unwrap().unwrap();
            }
        }

        /// Does what a worker does that looks once. Returns how long it would wait for idle
        /// memtables.
        fn look(&self) -> Option<Duration> {
            self.store().freeze_idle();
            while self.store().step() {}
            self.store().scheduler.state.lock().idle_memtables.wait_max()
        }

        fn memtable_bytes(&self) -> u64 {
            self.db.stats().memory.memtable_bytes
        }
    }

    #[test]
    fn idle_memtables_are_flushed_when_the_cache_is_full() {
        let fixture = Fixture::new();
        fixture.fill_cache();
        fixture.write("one", 1 << 20);
        fixture.write("two", 200 << 10);
        let capacity = || fixture.db.stats().memory.block_cache_bytes_max;
        let before = (fixture.memtable_bytes(), capacity());
        assert_eq!(fixture.look(), Some(IDLE));
        fixture.clock.advance(IDLE / 2);
        assert_eq!(fixture.look(), Some(IDLE / 2), "it is not quiet yet");
        fixture.db.insert("key", "value").unwrap();
        fixture.clock.advance(IDLE / 2);
        assert_eq!(fixture.look(), Some(IDLE), "something was written");
        assert!(fixture.memtable_bytes() >= before.0);
        fixture.clock.advance(IDLE);
        fixture.look();
        let moves = fixture.db.stats().moves;
        assert_eq!(moves.idle_memtables_flushed, 1);
        assert!(moves.idle_memtable_bytes_flushed >= 1 << 20, "{moves:?}");
        // The large one is flushed; the small one is no longer worth it.
        assert!(
            (200 << 10..256 << 10).contains(&fixture.memtable_bytes()),
            "{}",
            fixture.memtable_bytes()
        );
        assert!(capacity() >= before.1 + (1 << 20), "the cache has the memory");
        assert_eq!(fixture.look(), None, "no worker wakes for it any more");
    }

    #[test]
    fn idle_memtables_stay_while_the_cache_has_room() {
        let fixture = Fixture::new();
        fixture.write("one", 1 << 20);
        let before = fixture.memtable_bytes();
        assert_eq!(fixture.look(), Some(IDLE));
        for _ in 0..5 {
            fixture.clock.advance(IDLE);
            assert_eq!(fixture.look(), Some(IDLE), "it may become full");
        }
        assert_eq!(fixture.memtable_bytes(), before);
    }

    #[test]
    fn many_small_memtables_stay() {
        let fixture = Fixture::new();
        fixture.fill_cache();
        for number in 0..70 {
            fixture.write(&number.to_string(), 10 << 10);
        }
        fixture.look();
        let begun = || fixture.store().begun_memtables();
        let is_small = |(bytes, _): &(usize, _)| *bytes < MEMTABLE_BYTES_MIN;
        let before = begun().iter().filter(|memtable| is_small(memtable)).count();
        assert!(before > 50, "filters of the first ones are large");
        fixture.clock.advance(IDLE);
        fixture.look();
        assert_eq!(begun().len(), before);
    }
}
