//! Cost of reads of deleted ranges, and the space that they free.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example range_deletes -- [KEYS]
//! ```
//!
//! Prints a figure a line: name, tab, value. Times are medians of thread CPU time.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, hint::black_box};

use sievedb::{Db, Durability, Options, Result};
use sievedb_benches::{key, value};
use sievedb_workload::clock::thread_cpu_time;

const ROUNDS: usize = 7;
const LOOKUPS: u64 = 100_000;
const RANGES: u64 = 10_000;

fn open(dir: &tempfile::TempDir, name: &str) -> Result<Db> {
    Options::new().block_cache_bytes(1 << 30).idle_compactions(false).open(dir.path().join(name))
}

fn fill(db: &Db, keys: u64) -> Result<()> {
    let mut sorted: Vec<_> = (0..keys).map(key).collect();
    sorted.sort_unstable();
    for chunk in sorted.chunks(1000) {
        let mut batch = db.batch();
        for key in chunk {
            batch.insert(db, key, value(0))?;
        }
        batch.commit(Durability::Memory)?;
    }
    Ok(())
}

/// Returns the median time of a call of `work`, in ns.
fn median(calls: u64, mut work: impl FnMut(u64)) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = thread_cpu_time();
            (0..calls).for_each(&mut work);
            (thread_cpu_time() - start).as_nanos() as f64 / calls as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn get(db: &Db, keys: u64) -> f64 {
    median(LOOKUPS, |n| {
        black_box(db.get_with(key(n.wrapping_mul(7919) % keys), <[u8]>::len).expect("no faults"));
    })
}

fn main() -> Result<()> {
    let keys = env::args().nth(1).map_or(1_000_000, |keys| keys.parse().expect("KEYS"));
    let dir = tempfile::tempdir().expect("a temporary directory");

    // Deleted keys stay in the tables: the range tombstone is in the memtable.
    let db = open(&dir, "covered")?;
    fill(&db, keys)?;
    db.compact()?;
    db.remove_range::<&[u8]>(..)?;
    db.insert("", "before all")?;
    db.insert([0xff; 20], "behind all")?;
    let covered = get(&db, keys);
    println!("ns per get of a covered key\t{covered:.0}");
    let miss = median(LOOKUPS, |n| {
        black_box(db.get_with(key(keys + n), <[u8]>::len).expect("no faults"));
    });
    println!("ns per get of an absent key\t{miss:.0}");
    let seek = median(100, |_| assert_eq!(db.range("\0"..).count(), 1));
    println!("us per seek over {keys} deleted keys\t{:.1}", seek / 1000.0);
    let back = median(100, |_| assert_eq!(db.range(..[0xff; 20]).rev().count(), 1));
    println!("us per seek back over {keys} deleted keys\t{:.1}", back / 1000.0);
    let before = db.stats().keyspaces[0].table_bytes;
    db.compact()?;
    let after = db.stats().keyspaces[0].table_bytes;
    println!("bytes of tables before and after a compaction\t{before} {after}");

    // Overlapping ranges around the keys, and none that covers one.
    let db = open(&dir, "overlapping")?;
    fill(&db, keys)?;
    db.compact()?;
    let without = get(&db, keys);
    for n in 0..RANGES {
        let end = [&[0xff; 20][..], &(2 * RANGES + n).to_be_bytes()].concat();
        db.remove_range([&[0xff; 20][..], &n.to_be_bytes()].concat()..end)?;
    }
    let outside = get(&db, keys);
    println!(
        "get beside {RANGES} overlapping range deletes, times that without\t{:.2}",
        outside / without
    );

    let db = open(&dir, "older")?;
    for n in 0..RANGES {
        let mut bounds = [key(n), key(n + 1)];
        bounds.sort_unstable();
        db.remove_range(bounds[0]..bounds[1])?;
    }
    fill(&db, keys.min(200_000))?;
    let among = get(&db, keys.min(200_000));
    println!("get among {RANGES} overlapping range deletes in the memtable\t{among:.0} ns");
    Ok(())
}
