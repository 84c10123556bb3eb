//! Merge operands compared with inserts and with conditional writes. Prints name, value and, if it
//! has one, bound, with tabs between.
//!
//! `cargo run --release -p sievedb-benches --example merges -- [COUNTS]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{env, sync::Arc, thread};

use sievedb::{Counter, Db, KeyspaceOptions, Options};
use sievedb_workload::clock::now;
use tempfile::TempDir;

const WRITES: u64 = 400_000;
const ROUNDS: usize = 7;
const THREADS: u64 = 8;
const COUNTERS: u64 = 100;

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let counter = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    let db = Options::new().keyspace(counter).open(dir.path()).unwrap();
    (dir, db)
}

/// Returns the seconds of writes to different keys.
fn seconds(write: impl Fn(&Db, [u8; 8])) -> f64 {
    let (_dir, db) = open();
    let start = now();
    for number in 0..WRITES {
        write(&db, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    }
    (now() - start).as_secs_f64()
}

/// Returns the median over rounds of the time of merges divided by that of inserts.
fn merge_per_insert() -> f64 {
    let round = |_| {
        let merges = seconds(|db, key| db.merge(key, 1_i64.to_be_bytes()).unwrap());
        merges / seconds(|db, key| db.insert(key, 1_i64.to_be_bytes()).unwrap())
    };
    let mut ratios: Vec<f64> = (0..ROUNDS).map(round).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

/// Counts in all threads. Returns the millions of counts per second, and the counts that are lost.
fn counts_per_us(counts: u64, count: impl Fn(&Db, [u8; 8]) + Sync) -> (f64, u64) {
    let (_dir, db) = open();
    let start = now();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, count) = (&db, &count);
            scope.spawn(move || {
                for number in 0..counts / THREADS {
                    count(db, ((number + thread) % COUNTERS).to_be_bytes());
                }
            });
        }
    });
    let elapsed = now() - start;
    let values = db.iter().map(|entry| entry.unwrap().1);
    let sum: i64 = values.map(|value| i64::from_be_bytes(value[..].try_into().unwrap())).sum();
    let done = counts / THREADS * THREADS;
    (done as f64 / elapsed.as_secs_f64() / 1e6, done - sum as u64)
}

fn fold_us() -> f64 {
    const READS: u32 = 10_000;
    let (_dir, db) = open();
    for _ in 0..64 {
        db.merge("key", 1_i64.to_be_bytes()).unwrap();
    }
    let start = now();
    for _ in 0..READS {
        db.get("key").unwrap();
    }
    (now() - start).as_secs_f64() * 1e6 / f64::from(READS)
}

fn main() {
    let counts = env::args().nth(1).map_or(WRITES, |counts| counts.parse().unwrap());
    println!("merge, over insert\t{:.3}\t1.1", merge_per_insert());
    let (merges, lost_by_merges) =
        counts_per_us(counts, |db, key| db.merge(key, 1_i64.to_be_bytes()).unwrap());
    println!("8 threads on 100 keys: millions of merges per second\t{merges:.3}");
    let (adds, lost_by_adds) =
        counts_per_us(counts, |db, key| assert!(db.fetch_add(key, 1).unwrap() >= 0));
    println!("8 threads on 100 keys: millions of fetch_add per second\t{adds:.3}");
    println!("8 threads, {counts} counts: lost\t{}\t0", lost_by_merges + lost_by_adds);
    println!("get that applies 64 operands, us\t{:.2}", fold_us());
}
