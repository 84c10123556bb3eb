//! A simulation: the memory of a store through phases of loads, reads, mixed work and scans.
//!
//! One thread, files in memory, and a clock that each operation moves by a millisecond, so that
//! every run is the same.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{ops::Range, sync::Arc, time::Duration};

use crate::{
    Db, Keyspace, MemoryPool, Options,
    clock::ManualClock,
    fs::MemoryFs,
    memory::{MemoryUse, in_pool::allocator_bytes},
    stats::MemoryStats,
};

const BUDGET: u64 = 64 << 20;

/// Long values, so that filters and indexes of the data are small against the budget.
const VALUE_BYTES: usize = 4_000;

/// Entries of the data: 1.25 times the budget.
const ENTRIES: u64 = entries(BUDGET);

/// Reads of a phase: two for each entry fill the cache, and idle memtables are flushed 2 s later.
const READS: u64 = 40_000;

const fn entries(budget: u64) -> u64 {
    budget / 4 * 5 / VALUE_BYTES as u64
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state ^ *state >> 29
}

/// Returns how often a value rose after one had fallen, or fell after one had risen.
fn turns(values: &[u64]) -> usize {
    let rises: Vec<bool> = values.windows(2).map(|pair| pair[1] > pair[0]).collect();
    rises.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

struct Simulation {
    budget: u64,
    /// No other store has a part of the budget.
    is_alone: bool,
    /// Values cannot be compressed: tables and memtables are about equally large.
    has_random_values: bool,
    /// Loads repeat after so many entries.
    entries: u64,
    db: Db,
    clock: Arc<ManualClock>,
    random: u64,
    /// Capacities of the cache in this phase, in the order in which they were seen; equal ones
    /// once.
    capacities: Vec<u64>,
    /// Limits of memtables in this phase, in the same form.
    limits: Vec<u64>,
    memtable_bytes_max: u64,
    ticks: u64,
}

impl Simulation {
    fn new() -> Self {
        Self::with(BUDGET, Options::new().memory_budget(BUDGET))
    }

    /// Creates a simulation with these options and a budget of `budget` bytes.
    fn with(budget: u64, options: Options) -> Self {
        let clock = Arc::<ManualClock>::default();
        let options = options.fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.clock(Arc::clone(&clock) as _).open("db").unwrap();
        Self {
            budget,
            entries: entries(budget),
            is_alone: true,
            has_random_values: false,
            db,
            clock,
            random: 1,
            capacities: Vec::new(),
            limits: Vec::new(),
            memtable_bytes_max: 0,
            ticks: 0,
        }
    }

    fn memory(&self) -> MemoryStats {
        self.db.stats().memory
    }

    /// Begins a phase.
    fn begin(&mut self) {
        self.capacities.clear();
        self.limits.clear();
        self.memtable_bytes_max = 0;
    }

    /// Returns how often the capacity rose after it had fallen, or fell after it had risen.
    fn turns(&self) -> usize {
        turns(&self.capacities)
    }

    fn flushes_and_compactions(&self) -> u64 {
        let stats = self.db.stats().background;
        stats.flushes + stats.compactions
    }

    fn random(&mut self) -> u64 {
        next(&mut self.random) >> 33
    }

    /// Does the work of workers between two operations, a millisecond later.
    fn tick(&mut self) {
        self.clock.advance(Duration::from_millis(1));
        let store = self.db.store();
        store.freeze_idle();
        while store.step() {}
        let capacity = store.tables.cache.capacity_bytes();
        if self.capacities.last() != Some(&capacity) {
            self.capacities.push(capacity);
        }
        let memory = &store.tables.memory;
        let (memtable_bytes, limit) = (memory.memtable_bytes(), memory.limit(MemoryUse::Memtables));
        if self.limits.last() != Some(&limit) {
            self.limits.push(limit);
        }
        self.memtable_bytes_max = self.memtable_bytes_max.max(memtable_bytes);
        self.ticks += 1;
        // The check reads each block of the cache.
        if self.is_alone && self.ticks.is_multiple_of(16) {
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
            + allocator_bytes(self.budget);
        let capacity = memory.block_cache_bytes_max;
        assert!(memory.block_cache_bytes <= capacity, "{memory:?}");
        assert!(others + capacity <= self.budget, "the budget holds: {memory:?}");
        // Memtables may shrink by a step before anybody notices.
        assert!(
            others + capacity + self.budget / 32 > self.budget,
            "the cache has the rest: {memory:?}"
        );
    }

    fn write(&mut self, keyspace: &Keyspace, number: u64) {
        let mut value = vec![number as u8; VALUE_BYTES];
        if self.has_random_values {
            let mut state = number + 1;
            value.fill_with(|| next(&mut state) as u8);
        }
        keyspace.insert((number % self.entries).to_be_bytes(), value).unwrap();
        self.tick();
    }

    fn load(&mut self, numbers: Range<u64>) {
        let keyspace = self.db.default_keyspace().clone();
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

/// Budget of the simulations of the limit of memtables: small, so that they are short.
const SMALL_BUDGET: u64 = 16 << 20;

const SMALL_ENTRIES: u64 = entries(SMALL_BUDGET);

/// Reads for each write of mixed work.
const MIXED_READS: u64 = 300;

impl Simulation {
    /// A simulation of the limit of memtables, with twice [`SMALL_ENTRIES`] entries.
    fn small(options: Options) -> Self {
        let mut simulation = Self::with(SMALL_BUDGET, options);
        (simulation.has_random_values, simulation.entries) = (true, 2 * SMALL_ENTRIES);
        simulation.begin();
        simulation.load(0..3 * SMALL_ENTRIES);
        simulation
    }

    /// Overwrites random entries, each after reads of others. Returns the bytes read from tables,
    /// and written by compactions.
    fn mixed(&mut self, writes: u64) -> u64 {
        let device_bytes = |db: &Db| {
            let stats = db.stats();
            stats.table_reads.bytes + stats.background.compaction_bytes_written
        };
        let before = device_bytes(&self.db);
        let keyspace = self.db.default_keyspace().clone();
        for _ in 0..writes {
            for _ in 0..MIXED_READS {
                // The first 1/4 of these entries has 1/2 of the reads.
                let part = (self.random() % SMALL_ENTRIES) as f64 / SMALL_ENTRIES as f64;
                let number = (part * part * SMALL_ENTRIES as f64) as u64;
                keyspace.get(number.to_be_bytes()).unwrap().unwrap();
            }
            let number = SMALL_ENTRIES + self.random() % SMALL_ENTRIES;
            self.write(&keyspace, number);
        }
        device_bytes(&self.db) - before
    }

    /// Returns the limit of memtables, in 64ths of a quarter of the budget.
    fn share(&self) -> u64 {
        let limit = self.db.store().tables.memory.limit(MemoryUse::Memtables);
        limit * 256 / self.budget
    }
}

#[test]
fn the_limit_of_memtables_follows_the_phases_of_a_store() {
    let budget = || Options::new().memory_budget(SMALL_BUDGET);
    let mut simulation = Simulation::small(budget());
    assert_eq!(simulation.limits, [SMALL_BUDGET / 4], "writes alone");

    simulation.begin();
    simulation.mixed(SMALL_ENTRIES / 2);
    let lowered = simulation.share();
    assert!(lowered <= 32, "{:?}", simulation.limits);
    assert_eq!(turns(&simulation.limits), 0, "{:?}", simulation.limits);
    simulation.begin();
    let adaptive = simulation.mixed(SMALL_ENTRIES / 2);
    assert!(simulation.limits.len() <= 3, "it stays: {:?}", simulation.limits);
    let lowered = (simulation.share(), simulation.db.stats().moves);

    let flushes = |simulation: &Simulation| simulation.db.stats().background.flushes;
    let before = flushes(&simulation);
    simulation.begin();
    let mut number = 0;
    while simulation.share() < 64 {
        simulation.load(number..number + 1);
        number += 1;
    }
    assert!(flushes(&simulation) <= before + 1, "a burst has its memory within one flush");
    simulation.load(number..number + SMALL_ENTRIES / 2);
    assert!(simulation.memtable_bytes_max > SMALL_BUDGET / 8 * 9 / 10);
    assert_eq!(simulation.share(), 64);
    let (share, before) = lowered;
    let moves = simulation.db.stats().moves;
    assert_eq!(moves.memtable_limit_restored, 1, "{moves:?}");
    assert_eq!(moves.memtable_room_waits, 0, "{moves:?}");
    let (lowered, raised) = (before.memtable_limit_lowered, before.memtable_limit_raised);
    assert_eq!(share, 64 - 8 * lowered + 8 * raised, "{before:?}");

    let mut by_hand = Simulation::small(budget().memtable_bytes_max(SMALL_BUDGET / 4));
    by_hand.begin();
    by_hand.mixed(SMALL_ENTRIES / 2);
    let fixed = by_hand.mixed(SMALL_ENTRIES / 2);
    assert_eq!(by_hand.limits, [SMALL_BUDGET / 4], "a limit set by hand stays");
    assert!(adaptive < fixed, "{adaptive} of {fixed}");
}

#[test]
fn stores_of_a_pool_share_the_limit_of_memtables() {
    let pool = MemoryPool::new(SMALL_BUDGET);
    let options = || Options::new().memory_pool(&pool);
    let mut simulation = Simulation::small(options());
    simulation.is_alone = false;
    let other = options().fs(Arc::new(MemoryFs::new())).worker_threads(0).open("db").unwrap();
    simulation.begin();
    simulation.mixed(SMALL_ENTRIES / 2);
    let lowered = other.stats().moves.memtable_limit_lowered;
    assert!(lowered > 0, "{:?}", simulation.limits);
    let before = other.stats().memory.memtable_bytes_max;
    assert!(before <= SMALL_BUDGET / 4 / 64 * (64 - 8 * lowered), "{before}");

    for number in 0..SMALL_ENTRIES / 8 {
        other.insert(number.to_be_bytes(), [7; VALUE_BYTES]).unwrap();
    }
    let stats = other.stats();
    assert_eq!(stats.moves.memtable_limit_restored, 1);
    assert!(stats.memory.memtable_bytes_max > before);
    assert_eq!((stats.moves.memtable_room_waits, stats.writes.stalls), (0, 0));
}
