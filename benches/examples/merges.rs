//! Merge operands compared with inserts and with conditional writes. Prints name, tab and value.
//!
//! `cargo run --release -p sievedb-benches --example merges`
//!
//! | name                  | value                                                              |
//! |-----------------------|--------------------------------------------------------------------|
//! | `merge_per_insert`    | time of a `merge` divided by that of an `insert` of the same bytes |
//! | `counters_merge`      | millions of counts per second of 8 threads on 100 keys, by `merge` |
//! | `counters_fetch_add`  | the same by `fetch_add`                                            |
//! | `fold_64_us`          | microseconds of a `get` that applies 64 operands                   |

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{sync::Arc, thread};

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

/// Returns the millions of counts per second of all threads.
fn counts_per_us(count: impl Fn(&Db, [u8; 8]) + Sync) -> f64 {
    let (_dir, db) = open();
    let start = now();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, count) = (&db, &count);
            scope.spawn(move || {
                for number in 0..WRITES / THREADS {
                    count(db, ((number + thread) % COUNTERS).to_be_bytes());
                }
            });
        }
    });
    let elapsed = now() - start;
    let values = db.iter().map(|entry| entry.unwrap().1);
    let sum: i64 = values.map(|value| i64::from_be_bytes(value[..].try_into().unwrap())).sum();
    assert_eq!(sum as u64, WRITES, "no count is lost");
    WRITES as f64 / elapsed.as_secs_f64() / 1e6
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
    println!("merge_per_insert\t{:.3}", merge_per_insert());
    let merges = counts_per_us(|db, key| db.merge(key, 1_i64.to_be_bytes()).unwrap());
    println!("counters_merge\t{merges:.3}");
    let adds = counts_per_us(|db, key| assert!(db.fetch_add(key, 1).unwrap() >= 0));
    println!("counters_fetch_add\t{adds:.3}");
    println!("fold_64_us\t{:.2}", fold_us());
}
