//! A simulation: the memory of a store through phases of loads, reads, mixed work and scans.
//!
//! One thread, files in memory, and a clock that each operation moves by a millisecond, so that
//! every run is the same.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{ops::Range, sync::Arc, time::Duration};

use crate::{
    Db, Keyspace, Options, clock::ManualClock, fs::MemoryFs, memory::in_pool::allocator_bytes,
    stats::MemoryStats,
};

const BUDGET: u64 = 32 << 20;

/// The capacity of the cache changes by so many bytes at a time.
const STEP_BYTES: u64 = BUDGET / 64;

/// Long values, so that filters and indexes of the data are small against the budget.
const VALUE_BYTES: usize = 4_000;

/// Entries of the data: 1.25 times the budget.
const ENTRIES: u64 = BUDGET / 4 * 5 / VALUE_BYTES as u64;

/// Reads of a phase: two for each entry fill the cache, and idle memtables are flushed 2 s later.
const READS: u64 = 20_000;

struct Simulation {
    db: Db,
    clock: Arc<ManualClock>,
    random: u64,
    /// Capacities of the cache in this phase, in the order in which they were seen; equal ones once.
    capacities: Vec<u64>,
    memtable_bytes_max: u64,
    ticks: u64,
}

impl Simulation {
    fn new() -> Self {
        let clock = Arc::<ManualClock>::default();
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let options = options.memory_budget(BUDGET).clock(Arc::clone(&clock) as _);
        let db = options.open("db").unwrap();
        Self { db, clock, random: 1, capacities: Vec::new(), memtable_bytes_max: 0, ticks: 0 }
    }

    fn memory(&self) -> MemoryStats {
        self.db.stats().memory
    }

    /// Begins a phase.
    fn begin(&mut self) {
        self.capacities.clear();
        self.memtable_bytes_max = 0;
    }

    /// Returns how often the capacity rose after it had fallen, or fell after it had risen.
    fn turns(&self) -> usize {
        let rises: Vec<bool> = self.capacities.windows(2).map(|pair| pair[1] > pair[0]).collect();
        rises.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    fn flushes_and_compactions(&self) -> u64 {
        let stats = self.db.stats().background;
        stats.flushes + stats.compactions
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    /// What workers do between two operations, a millisecond later.
    fn tick(&mut self) {
        self.clock.advance(Duration::from_millis(1));
        let store = self.db.open_store().store();
        store.freeze_idle();
        while store.step() {}
        let capacity = store.tables.cache.capacity_bytes();
        if self.capacities.last() != Some(&capacity) {
            self.capacities.push(capacity);
        }
        let memtable_bytes = store.tables.memory.memtable_bytes();
        self.memtable_bytes_max = self.memtable_bytes_max.max(memtable_bytes);
        self.ticks += 1;
        // It looks at each block of the cache.
        if self.ticks.is_multiple_of(16) {
            self.assert_budget_holds();
        }
    }

    fn assert_budget_holds(&self) {
        let memory = self.memory();
        let others = memory.memtable_bytes
            + memory.filter_bytes
            + memory.index_bytes
            + memory.bookkeeping_bytes
            + memory.writing_bytes
            + allocator_bytes(BUDGET);
        let capacity = memory.block_cache_bytes_max;
        assert!(memory.block_cache_bytes <= capacity, "{memory:?}");
        assert!(others + capacity <= BUDGET, "the budget holds: {memory:?}");
        // Memtables may shrink by a step before anybody notices.
        assert!(others + capacity + 2 * STEP_BYTES > BUDGET, "the cache has the rest: {memory:?}");
    }

    fn write(&mut self, keyspace: &Keyspace, number: u64) {
        let value = [number as u8; VALUE_BYTES];
        keyspace.insert((number % ENTRIES).to_be_bytes(), value).unwrap();
        self.tick();
    }

    fn load(&mut self, numbers: Range<u64>) {
        let keyspace = Keyspace::clone(&self.db);
        numbers.for_each(|number| self.write(&keyspace, number));
    }

    /// Reads random entries.
    fn read(&mut self, reads: u64) {
        for _ in 0..reads {
            let number = self.random() % ENTRIES;
            self.db.get(number.to_be_bytes()).unwrap().unwrap();
            self.tick();
        }
    }

    /// Checks what a phase of reads leaves: the cache has the budget, and kept growing until then.
    fn assert_cache_has_the_budget(&self, phase: &str) {
        let memory = self.memory();
        assert!(memory.block_cache_bytes * 100 >= BUDGET * 85, "{phase}: {memory:?}");
        assert!(memory.memtable_bytes <= BUDGET / 64, "{phase}: {memory:?}");
        assert!(self.turns() <= 2, "{phase}: {:?}", self.capacities);
    }
}

#[test]
fn the_cache_follows_the_phases_of_a_store() {
    let mut simulation = Simulation::new();
    simulation.begin();
    simulation.load(0..ENTRIES);
    let work = simulation.flushes_and_compactions();
    assert!(simulation.turns() as u64 <= 2 * work + 2, "{work}: {:?}", simulation.capacities);

    simulation.begin();
    simulation.read(READS);
    simulation.assert_cache_has_the_budget("reads");

    // A burst has memtables of their full size at once: half of their ceiling, then one is flushed.
    simulation.begin();
    simulation.load(0..ENTRIES / 4);
    let burst = simulation.memtable_bytes_max;
    assert!(burst > BUDGET / 8 * 9 / 10, "{burst}");

    simulation.begin();
    let before = simulation.flushes_and_compactions();
    for number in 0..ENTRIES / 2 {
        simulation.read(1);
        simulation.load(number..number + 1);
    }
    let work = simulation.flushes_and_compactions() - before;
    assert!(simulation.turns() as u64 <= 2 * work + 2, "{work}: {:?}", simulation.capacities);

    simulation.begin();
    simulation.read(READS);
    simulation.assert_cache_has_the_budget("reads after mixed work");

    // Scans that follow each other change nothing.
    simulation.begin();
    for _ in 0..3 {
        let db = simulation.db.clone();
        for entry in db.iter() {
            entry.unwrap();
            simulation.tick();
        }
    }
    simulation.assert_cache_has_the_budget("scans");
    assert_eq!(simulation.capacities.len(), 1, "{:?}", simulation.capacities);

    // Many small memtables become tables.
    for name in 0..100 {
        let keyspace = simulation.db.keyspace(&format!("keyspace {name}")).unwrap();
        (0..12).for_each(|number| simulation.write(&keyspace, number));
    }
    simulation.begin();
    simulation.read(READS);
    simulation.assert_cache_has_the_budget("reads after many keyspaces");
}
