//! CPU time of the calls whose speed `.ci/promises house` compares with an earlier commit.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example speed -- 1000000
//! ```
//!
//! Loads this many entries of 16 + 100 bytes within the memory budget. Prints one line per figure:
//! name, tab, nanoseconds per operation. Uses only calls that the earlier commit also has.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::{env, error::Error, hint::black_box, path::Path, time::Duration};

use sievedb::{Db, Options};
use sievedb_workload::{
    clock::{process_cpu_time, thread_cpu_time},
    random::{Random, mix},
    value_of,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MEMORY_BUDGET: u64 = 1 << 30;
const BATCH: u64 = 512;
const SHORT_SCAN: usize = 50;

// No measured function is inlined, so that a profiler counts each apart.

/// Returns the key of an entry. Loaded keys have even numbers; odd numbers are absent.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Prints the time per operation. `measure` returns the number of operations.
fn figure(
    name: &str,
    clock: fn() -> Duration,
    measure: impl FnOnce() -> Result<u64>,
) -> Result<()> {
    let from = clock();
    let operations = measure()?;
    let nanoseconds = (clock() - from).as_nanos() as f64 / operations as f64;
    println!("{name}\t{nanoseconds:.1}");
    Ok(())
}

fn open(directory: &Path) -> Result<Db> {
    Ok(Options::new().memory_budget(MEMORY_BUDGET).open(directory)?)
}

#[inline(never)]
fn load(store: &Path, entries: u64) -> Result<u64> {
    let db = open(store)?;
    inserts(&db, entries)?;
    db.flush()?;
    db.compact()?;
    Ok(entries)
}

#[inline(never)]
fn inserts(db: &Db, entries: u64) -> Result<()> {
    for number in 0..entries {
        let key = key(2 * number);
        db.insert(key, value_of(&key, 1))?;
    }
    Ok(())
}

#[inline(never)]
fn opens(store: &Path) -> Result<u64> {
    const OPENS: u64 = 20;
    for _ in 0..OPENS {
        drop(open(store)?);
    }
    Ok(OPENS)
}

#[inline(never)]
fn hits(db: &Db, entries: u64, count: u64) -> Result<u64> {
    let mut random = Random::new(1);
    for _ in 0..count {
        let found = db.get(key(2 * random.below(entries)))?;
        assert!(black_box(found).is_some());
    }
    Ok(count)
}

#[inline(never)]
fn misses(db: &Db, entries: u64, count: u64) -> Result<u64> {
    let mut random = Random::new(2);
    for _ in 0..count {
        assert!(black_box(db.get(key(2 * random.below(entries) + 1))?).is_none());
    }
    Ok(count)
}

#[inline(never)]
fn batched_misses(db: &Db, entries: u64, count: u64) -> Result<u64> {
    let mut random = Random::new(3);
    for _ in 0..count / BATCH {
        let keys: Vec<_> = (0..BATCH).map(|_| key(2 * random.below(entries) + 1)).collect();
        assert!(black_box(db.contains_many(&keys)?).iter().all(|found| !found));
    }
    Ok(count / BATCH * BATCH)
}

#[inline(never)]
fn scan(db: &Db) -> Result<u64> {
    let mut entries = 0;
    for entry in db.iter() {
        black_box(entry?);
        entries += 1;
    }
    Ok(entries)
}

#[inline(never)]
fn short_scans(db: &Db, entries: u64, count: u64) -> Result<u64> {
    let mut random = Random::new(4);
    for _ in 0..count {
        for entry in db.range(key(2 * random.below(entries))..).take(SHORT_SCAN) {
            black_box(entry?);
        }
    }
    Ok(count)
}

fn main() -> Result<()> {
    let entries: u64 = env::args().nth(1).map_or(Ok(100_000), |number| number.parse())?;
    let directory = tempfile::tempdir()?;
    let store = directory.path().join("store");
    figure("load", process_cpu_time, || load(&store, entries))?;
    figure("open", process_cpu_time, || opens(&store))?;
    let db = open(&store)?;
    // Everything is cached from here on.
    assert_eq!(scan(&db)?, entries);
    hits(&db, entries, entries)?;
    figure("miss", thread_cpu_time, || misses(&db, entries, 2 * entries))?;
    figure("batched contains", thread_cpu_time, || batched_misses(&db, entries, 2 * entries))?;
    figure("hit", thread_cpu_time, || hits(&db, entries, entries))?;
    figure("scan, entry", thread_cpu_time, || scan(&db))?;
    figure("short scan", thread_cpu_time, || short_scans(&db, entries, entries / 20))?;
    Ok(())
}
