//! `transactions`: read-modify-write transactions of several engines with equal total memory.
//!
//! ```sh
//! cargo run --release --example transactions -- [ROUNDS]
//! ```
//!
//! A transaction reads the value of a key and writes it back with a counter incremented; after a
//! conflict it runs again. No commit is synced. One thread uses 100,000 keys, 8 threads use 1,000.
//! Each round measures every engine in turn, and the figures are medians of the rounds. Prints
//! name, value and, if it has one, bound, with tabs between. Afterwards every counter is read: a
//! lost update ends the program with an error.

#![expect(clippy::print_stdout, reason = "a program of the command line")]

mod engines;

use std::{
    collections::BTreeMap,
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use sievedb_workload::{clock::now, random::Random, value_of};

use crate::engines::Store;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
type Key = [u8; 16];

/// Keys of one thread, and the first of them that all threads use.
const KEYS: u64 = 100_000;
const HOT_KEYS: u64 = 1_000;
const THREADS: u64 = 8;
/// Transactions of a round.
const TRANSACTIONS: u64 = 50_000;
const ROUNDS: usize = 7;
const SIEVEDB: &str = "SieveDB";

fn key(number: u64) -> Key {
    let mut key = *b"account:00000000";
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Returns the counter at the start of `value`.
fn counter(value: &[u8]) -> Result<u64> {
    let bytes = value.first_chunk().ok_or("a value is too short")?;
    Ok(u64::from_be_bytes(*bytes))
}

/// Returns `value` with its counter incremented.
fn incremented(value: &[u8]) -> Result<Vec<u8>> {
    let mut new = value.to_vec();
    new[..8].copy_from_slice(&(counter(value)? + 1).to_be_bytes());
    Ok(new)
}

fn load(store: &dyn Store) -> Result<()> {
    for number in 0..KEYS {
        let mut value = value_of(&key(number), 1).to_vec();
        value[..8].fill(0);
        store.insert(&key(number), &value)?;
    }
    Ok(())
}

/// Returns the nanoseconds of a call of `run` on a random key.
fn call_ns(seed: u64, run: impl Fn(&Key) -> Result<()>) -> Result<f64> {
    let mut random = Random::new(seed);
    let start = now();
    for _ in 0..TRANSACTIONS {
        run(&key(random.below(KEYS)))?;
    }
    Ok((now() - start).as_nanos() as f64 / TRANSACTIONS as f64)
}

/// Returns the commits per second of all threads.
fn commits_per_s(store: &dyn Store, seed: u64) -> Result<f64> {
    let failed = AtomicU64::new(0);
    let start = now();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let failed = &failed;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 32);
                for _ in 0..TRANSACTIONS / THREADS {
                    let done = store.increment(&key(random.below(HOT_KEYS)));
                    failed.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    if failed.into_inner() > 0 {
        return Err(format!("{}: a transaction failed", store.name()).into());
    }
    Ok((TRANSACTIONS / THREADS * THREADS) as f64 / (now() - start).as_secs_f64())
}

/// Returns the sum of all counters.
fn sum(store: &dyn Store) -> Result<u64> {
    let values =
        (0..KEYS).map(|number| store.get(&key(number))?.ok_or_else(|| "a key is lost".into()));
    values.map(|value: Result<Vec<u8>>| counter(&value?)).sum()
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let dir = tempfile::tempdir()?;
    let stores = engines::open_all(dir.path())?;
    for store in &stores {
        load(&**store)?;
    }
    let mut one = BTreeMap::<&str, Vec<f64>>::new();
    let mut many = BTreeMap::<&str, Vec<f64>>::new();
    let mut plain = Vec::new();
    for round in 0..rounds as u64 {
        for store in &stores {
            let name = store.name();
            one.entry(name).or_default().push(call_ns(round, |key| store.increment(key))?);
            if name == SIEVEDB {
                plain.push(call_ns(round, |key| {
                    let value = store.get(key)?.ok_or("a key is lost")?;
                    store.insert(key, &incremented(&value)?)
                })?);
            }
            many.entry(name).or_default().push(commits_per_s(&**store, round)?);
        }
    }
    for store in &stores {
        let name = store.name();
        let plain_rounds = u64::from(name == SIEVEDB);
        let expected =
            rounds as u64 * (TRANSACTIONS * (1 + plain_rounds) + TRANSACTIONS / THREADS * THREADS);
        if sum(&**store)? != expected {
            return Err(format!("{name} lost an update").into());
        }
    }

    let one: BTreeMap<_, _> =
        one.into_iter().map(|(name, mut ns)| (name, median(&mut ns))).collect();
    let many: BTreeMap<_, _> =
        many.into_iter().map(|(name, mut commits)| (name, median(&mut commits))).collect();
    for (name, ns) in &one {
        println!("transaction, {name}, ns\t{ns:.0}");
    }
    for (name, commits) in &many {
        println!("commits per second of 8 threads, {name}\t{commits:.0}");
    }
    let others = |figures: &BTreeMap<&str, f64>, best: fn(f64, f64) -> f64| {
        let others = figures.iter().filter(|(name, _)| **name != SIEVEDB);
        others.map(|(_, figure)| *figure).reduce(best)
    };
    println!("transaction, over get and insert\t{:.3}\t1.6", one[SIEVEDB] / median(&mut plain));
    if let Some(best) = others(&one, f64::min) {
        println!(
            "transaction, over that of the fastest other engine\t{:.3}\t1",
            one[SIEVEDB] / best
        );
    }
    if let Some(best) = others(&many, f64::max) {
        println!("commits of the best other engine, over ours\t{:.3}\t1", best / many[SIEVEDB]);
    }
    Ok(())
}
