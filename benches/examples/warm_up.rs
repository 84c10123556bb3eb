//! What it is worth that compactions read into the cache what it had of their inputs.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example warm_up -- 200000
//! ```
//!
//! Hits by a Zipf distribution of exponent 0.99 and overwrites by the same take turns, nine to one,
//! with a cache of a quarter of the data. Everything is done on one thread, on a disk in memory.
//! Which block the cache gives up depends on hashes that each run draws anew: reads differ by up to
//! 1 %. `clustered`: keys that are asked often lie side by side; `scattered`: anywhere.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, sync::Arc, time::Duration};

use sievedb::{Db, Durability, KeyspaceOptions, Options, Result};
use sievedb_benches::value;
use sievedb_doubles::MemoryFs;
use sievedb_workload::{
    clock::thread_cpu_time,
    random::{Permutation, Random},
    zipf::Zipf,
};

/// Bytes that an entry takes in the cache, about.
const CACHED_BYTES: u64 = 133;
/// Overwrites and hits that take turns.
const OVERWRITES: u64 = 100;
const HITS: u64 = 900;
const ROUNDS: u64 = 3;
/// Small, so that compactions are many.
const TABLE_BYTES: usize = 512 << 10;

fn key(number: u64) -> String {
    format!("user{number:012}")
}

/// What operations cost: calls that read files, and CPU time.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    reads: u64,
    cpu: Duration,
}

impl Cost {
    /// Adds what `work` costs.
    fn add(&mut self, db: &Db, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let (reads, before) = (db.stats().table_reads.calls, thread_cpu_time());
        work()?;
        self.cpu += thread_cpu_time() - before;
        self.reads += db.stats().table_reads.calls - reads;
        Ok(())
    }
}

fn fill(keys: u64, warms_up: bool) -> Result<Db> {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(TABLE_BYTES)
        .table_bytes(TABLE_BYTES as u64)
        .base_level_bytes(keys * CACHED_BYTES / 16);
    let options = Options::new()
        .durability(Durability::Memory)
        .fs(Arc::new(MemoryFs::with_seed(1)))
        .worker_threads(0)
        .block_cache_bytes(keys * CACHED_BYTES / 4)
        .warms_up(warms_up)
        .keyspace(keyspace);
    let db = options.open("db")?;
    for number in 0..keys {
        db.insert(key(number), value(number))?;
    }
    db.compact()?;
    Ok(db)
}

/// Overwrites, with the compactions that they cause, and hits: so many times as there are keys.
fn run(db: &Db, keys: u64, zipf: &Zipf, clustered: bool, times: u64) -> Result<[Cost; 2]> {
    let place = Permutation::new(keys, 2);
    let mut random = Random::new(times);
    let mut draw = || {
        let rank = zipf.draw(&mut random);
        key(if clustered { rank } else { place.at(rank) })
    };
    let [mut overwrites, mut hits] = [Cost::default(); 2];
    for number in 0..times * keys / (OVERWRITES + HITS) {
        let chosen: Vec<_> = (0..OVERWRITES).map(|_| draw()).collect();
        overwrites.add(db, || chosen.iter().try_for_each(|key| db.insert(key, value(number))))?;
        let chosen: Vec<_> = (0..HITS).map(|_| draw()).collect();
        hits.add(db, || {
            chosen.iter().try_for_each(|key| {
                assert!(db.get(key)?.is_some(), "every key is there");
                Ok(())
            })
        })?;
    }
    Ok([overwrites, hits])
}

fn main() -> Result<()> {
    let keys: u64 = env::args().nth(1).map_or(20_000, |n| n.parse().expect("a number of keys"));
    let zipf = Zipf::new(keys, 0.99);
    for (name, clustered) in [("scattered", false), ("clustered", true)] {
        for _ in 0..ROUNDS {
            for warms_up in [false, true] {
                let db = fill(keys, warms_up)?;
                run(&db, keys, &zipf, clustered, 1)?;
                let before = db.stats().background.compactions;
                let [overwrites, hits] = run(&db, keys, &zipf, clustered, 4)?;
                let compactions = db.stats().background.compactions - before;
                let operations = (4 * keys) as f64;
                let of_hits = operations * HITS as f64 / (OVERWRITES + HITS) as f64;
                let cpu = |cost: Cost, count: f64| cost.cpu.as_nanos() as f64 / count;
                println!(
                    "{name}, warm-up {warms_up}: {:.1} reads and {:.0} us of CPU time for 1,000 hits; {} reads in all, \
                     {:.0} ns for an operation, {compactions} compactions",
                    hits.reads as f64 * 1e3 / of_hits,
                    cpu(hits, of_hits),
                    hits.reads + overwrites.reads,
                    (cpu(hits, 1.0) + cpu(overwrites, 1.0)) / operations,
                );
            }
        }
    }
    Ok(())
}
