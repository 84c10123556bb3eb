//! Complete workloads by budget and value length: allocated memory never exceeds the budget.

use std::thread;

use sievedb::{
    Db, FilterPolicy, FilterPolicyKind, Keyspace, KeyspaceOptions, Options, PrefixExtractor,
};
use sievedb_tests::{rng::Rng, settings};

use crate::{
    MIB,
    counting::{forget_peak, peak_bytes, turn},
    samples::{bytes_now, most_bytes_while},
};

/// Memory outside of the budget: counters and queues of reading and writing threads, names of
/// threads, and allocations of the test.
const FIXED_BYTES: usize = 64 << 10;

/// A workload.
#[derive(Debug, Clone, Copy)]
struct Life {
    name: &'static str,
    budget: usize,
    value_bytes: usize,
    key_bytes: usize,
    keyspaces: usize,
    /// Bytes to write, unless the tests are long.
    bytes: usize,
    /// Runs only in long tests.
    is_long: bool,
}

/// Threads that write, and later read.
const THREADS: usize = 2;

const LIFE: Life = Life {
    name: "",
    budget: 8 * MIB,
    value_bytes: 100,
    key_bytes: 16,
    keyspaces: 3,
    bytes: 8 * MIB,
    is_long: false,
};

const LIVES: [Life; 9] = [
    Life { name: "small values", ..LIFE },
    Life { name: "values of 1 KB", value_bytes: 1_000, bytes: 24 * MIB, ..LIFE },
    Life { name: "values of 100 KB", value_bytes: 100_000, bytes: 48 * MIB, ..LIFE },
    Life { name: "long keys", key_bytes: 1_000, bytes: 12 * MIB, ..LIFE },
    Life { name: "many keyspaces", keyspaces: 100, bytes: 4 * MIB, ..LIFE },
    Life { name: "16 MiB", budget: 16 * MIB, value_bytes: 300, bytes: 20 * MIB, ..LIFE },
    Life {
        name: "values of 1 MB",
        budget: 64 * MIB,
        value_bytes: 1_000_000,
        bytes: 200 * MIB,
        ..LIFE
    },
    Life { name: "64 MiB", budget: 64 * MIB, bytes: 200 * MIB, is_long: true, ..LIFE },
    Life { name: "256 MiB", budget: 256 * MIB, bytes: 600 * MIB, is_long: true, ..LIFE },
];

impl Life {
    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        let mut key =
            (rng.below(1 << 20) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        key.resize(self.key_bytes, b'.');
        key
    }

    /// Returns the memory of a test thread for a write: the value, the encoded batch, and the key
    /// in both.
    fn write_bytes(&self) -> usize {
        2 * (self.value_bytes + self.key_bytes) + (8 << 10)
    }

    /// Returns an upper bound for memory pinned by readers: a scan holds a block and an index
    /// partition of each run, one of them compressed and decompressed at a time.
    fn read_bytes(&self) -> usize {
        const RUNS: usize = 24;

        (RUNS + 2) * (self.value_bytes + self.key_bytes + (36 << 10))
    }

    fn writes_of_thread(&self) -> usize {
        self.bytes / (self.value_bytes + self.key_bytes) / THREADS
    }

    fn write(&self, keyspaces: &[Keyspace], seed: u64) {
        let mut rng = Rng::new(seed);
        let mut value = vec![0; self.value_bytes];
        for _ in 0..self.writes_of_thread() {
            let length = self.value_bytes / 2 + rng.below(self.value_bytes / 2 + 1);
            value[..length].chunks_mut(4).for_each(|word| word[0] = rng.below(256) as u8);
            let keyspace = &keyspaces[rng.below(keyspaces.len())];
            keyspace.insert(self.key(&mut rng), &value[..length]).unwrap();
        }
    }

    fn read(&self, keyspaces: &[Keyspace], seed: u64) {
        let mut rng = Rng::new(seed);
        for round in 0..300 {
            let keyspace = &keyspaces[rng.below(keyspaces.len())];
            let key = self.key(&mut rng);
            keyspace.get(&key).unwrap();
            keyspace.contains_key(&key).unwrap();
            if round % 10 == 0 {
                let keys: Vec<_> = (0..20).map(|_| self.key(&mut rng)).collect();
                keyspace.contains_many(&keys).unwrap();
                for entry in keyspace.range(key.clone()..).read_ahead_bytes_max(0).take(20) {
                    entry.unwrap();
                }
                for entry in keyspace.range(..key).read_ahead_bytes_max(0).rev().take(20) {
                    entry.unwrap();
                }
            }
        }
        // Reads everything, which fills the cache.
        for keyspace in keyspaces {
            for entry in keyspace.iter().read_ahead_bytes_max(0) {
                entry.unwrap();
            }
        }
    }

    fn options(&self) -> Options {
        // With small filters the cache gets the rest of the budget, so that unused filter memory
        // cannot hide an excess.
        Options::new().memory_budget(self.budget as u64).filter_bytes_max(self.budget as u64 / 32)
    }

    /// Checks the allocation peak since `before`, and the largest sample, `sampled`, which includes
    /// block pages. Callers use `callers` bytes of it.
    fn check(&self, what: &str, before: usize, sampled: usize, budget: usize, callers: usize) {
        let (peak, sum) = (peak_bytes() - before, sampled.saturating_sub(before));
        let over = sum.max(peak) as i64 - budget as i64;
        println!(
            "{}: {what}: {peak} bytes, {sum} with pages, {over} beyond the budget, {callers} of callers",
            self.name
        );
        let allowed = budget + callers + FIXED_BYTES;
        assert!(peak <= allowed, "{}: {what}: {peak} bytes, {allowed} allowed", self.name);
        assert!(sum <= allowed, "{}: {what}: {sum} with pages, {allowed} allowed", self.name);
    }

    fn live(&self, seed: u64) {
        let dir = tempfile::tempdir().unwrap();
        let before = forget_peak();
        let db = self.options().open(dir.path()).unwrap();
        let keyspace = KeyspaceOptions::new()
            .base_level_bytes(4 << 20)
            .table_bytes(2 << 20)
            .prefix_extractor(PrefixExtractor::FixedLength(3));
        let open = |db: &Db| -> Vec<Keyspace> {
            let names = (0..self.keyspaces).map(|number| number.to_string());
            names.map(|name| db.keyspace_with(&name, &keyspace).unwrap()).collect()
        };
        let keyspaces = open(&db);
        let on_threads = |db: &Db, work: &(dyn Fn(u64) + Sync)| {
            most_bytes_while(db, || {
                thread::scope(|scope| {
                    for number in 0..THREADS as u64 {
                        scope.spawn(move || work(seed ^ number << 32));
                    }
                });
            })
        };
        let writers = THREADS * self.write_bytes();
        let sampled = on_threads(&db, &|seed| self.write(&keyspaces, seed));
        self.check("writing", before, sampled, self.budget, writers);
        assert!(db.stats().background.flushes > 0, "{}: the life must do something", self.name);

        let readers = THREADS * self.read_bytes();
        let sampled = on_threads(&db, &|seed| self.read(&keyspaces, seed));
        self.check("reading", before, sampled, self.budget, readers);
        forget_peak();
        let sampled = on_threads(&db, &|seed| self.write(&keyspaces, seed ^ 1));
        self.check("writing beside a full cache", before, sampled, self.budget, writers);
        forget_peak();
        let compact = |keyspace: &Keyspace| keyspace.compact().unwrap();
        let sampled = most_bytes_while(&db, || keyspaces.iter().for_each(compact));
        self.check("all merged", before, sampled, self.budget, 0);

        let policy = FilterPolicy::new(FilterPolicyKind::Ribbon).bits_per_key(14.0);
        for keyspace in &keyspaces {
            keyspace.set_filter_policy(policy).unwrap();
        }
        let sampled = on_threads(&db, &|seed| {
            self.write(&keyspaces, seed ^ 2);
            self.read(&keyspaces, seed ^ 2);
        });
        self.check("new filters", before, sampled, self.budget, writers + readers);
        println!("{:?}", db.stats().memory);

        if self.budget > 8 * MIB {
            let budget = self.budget / 2;
            db.set_memory_budget(budget as u64).unwrap();
            db.flush().unwrap();
            forget_peak();
            let sampled = on_threads(&db, &|seed| self.read(&keyspaces, seed ^ 3));
            self.check("reading with half of the budget", before, sampled, budget, readers);
            db.set_memory_budget(self.budget as u64).unwrap();
        }
        on_threads(&db, &|seed| self.write(&keyspaces, seed ^ 4));
        drop((keyspaces, db));
        forget_peak();
        let db = self.options().open(dir.path()).unwrap();
        let keyspaces = open(&db);
        self.check("opened again", before, bytes_now(&db).0, self.budget, 0);
        let sampled = on_threads(&db, &|seed| self.read(&keyspaces, seed ^ 5));
        self.check("read again", before, sampled, self.budget, readers);
    }
}

#[test]
fn random_workloads_stay_within_the_budget() {
    let _turn = turn();
    let is_long = std::env::var_os("SIEVE_LONG").is_some();
    let only = std::env::var("SIEVE_LIFE").ok();
    for life in LIVES.iter().filter(|life| is_long || !life.is_long) {
        if only.as_ref().is_none_or(|only| life.name.contains(only)) {
            life.live(settings::seed(life.name, 4));
        }
    }
}
