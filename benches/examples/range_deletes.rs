//! Cost of reads beside deleted ranges, and the space that they free.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example range_deletes -- [KEYS]
//! ```
//!
//! Prints a figure a line: name, tab, value; and for a figure with a bound, tab, bound. Ratios are
//! medians over rounds that measure both sides in turn, in thread CPU time.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, hint::black_box};

use sievedb::{Db, Durability, Options, Result};
use sievedb_benches::{key, value};
use sievedb_workload::clock::thread_cpu_time;

const ROUNDS: usize = 9;
const LOOKUPS: u64 = 100_000;
/// Keys of a call of `get_many`.
const MANY: u64 = 512;
/// Overlapping ranges between two neighbouring keys.
const STACKED: u64 = 10;

fn show(name: &str, value: f64) {
    println!("{name}\t{value:.1}");
}

/// Shows a figure with its bound, which `.ci/promises data-model` checks.
fn bounded(name: &str, value: f64, bound: f64) {
    println!("{name}\t{value:.2}\t{bound}");
}

fn open(dir: &tempfile::TempDir, name: &str) -> Result<Db> {
    Options::new().block_cache_bytes(1 << 30).idle_compactions(false).open(dir.path().join(name))
}

/// Opens a store with `sorted` keys in tables of one level.
fn filled(dir: &tempfile::TempDir, name: &str, sorted: &[[u8; 16]]) -> Result<Db> {
    let db = open(dir, name)?;
    for chunk in sorted.chunks(1000) {
        let mut batch = db.batch();
        for key in chunk {
            batch.insert(&db, key, value(0))?;
        }
        batch.commit(Durability::Memory)?;
    }
    db.compact()?;
    Ok(db)
}

/// Returns the time of a call of `work`, in ns.
fn time(calls: u64, work: &mut dyn FnMut(u64)) -> f64 {
    let start = thread_cpu_time();
    (0..calls).for_each(work);
    (thread_cpu_time() - start).as_nanos() as f64 / calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the median time of a call of `work`, in ns.
fn median_time(calls: u64, mut work: impl FnMut(u64)) -> f64 {
    median((0..ROUNDS).map(|_| time(calls, &mut work)).collect())
}

/// Returns the median times of both, in ns, and the median of the first by the second.
fn compare(calls: u64, mut one: impl FnMut(u64), mut other: impl FnMut(u64)) -> (f64, f64, f64) {
    let (mut ones, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms the caches.
    for round in 0..=ROUNDS {
        let (a, b) = (time(calls, &mut one), time(calls, &mut other));
        if round > 0 {
            ones.push(a);
            others.push(b);
            ratios.push(a / b);
        }
    }
    (median(ones), median(others), median(ratios))
}

/// Returns a lookup of a key of the first `keys`.
fn get(db: &Db, keys: u64) -> impl FnMut(u64) {
    move |n| {
        let key = key(n.wrapping_mul(7919) % keys);
        black_box(db.get_with(key, <[u8]>::len).expect("no faults"));
    }
}

/// Returns a lookup of an absent key.
fn miss(db: &Db, keys: u64) -> impl FnMut(u64) {
    move |n| {
        black_box(db.get_with(key(keys + n), <[u8]>::len).expect("no faults"));
    }
}

/// Returns a lookup of many keys at once, the first of them `first`.
fn contains_many(db: &Db, keys: u64, first: u64) -> impl FnMut(u64) {
    move |n| {
        let key = |at: u64| key(first + (n * MANY + at).wrapping_mul(7919) % keys);
        black_box(db.contains_many((0..MANY).map(key)).expect("no faults"));
    }
}

/// Writes overlapping range deletes in which no key lies: behind all keys, or between neighbours.
fn delete_gaps(db: &Db, sorted: &[[u8; 16]], ranges: u64, behind: bool) -> Result<()> {
    for n in 0..ranges {
        let (base, at) = match behind {
            true => (&[0xff; 20][..], n),
            false => {
                let gap = (n / STACKED) * (sorted.len() as u64 / ranges.div_ceil(STACKED));
                (&sorted[gap as usize][..], n % STACKED + 1)
            }
        };
        let end = [base, &(2 * ranges + at).to_be_bytes()].concat();
        db.remove_range([base, &at.to_be_bytes()].concat()..end)?;
    }
    Ok(())
}

/// Reads below one range delete over all keys.
fn covered(dir: &tempfile::TempDir, sorted: &[[u8; 16]]) -> Result<()> {
    let keys = sorted.len() as u64;
    let db = filled(dir, "covered", sorted)?;
    let snapshot = db.snapshot();
    db.remove_range::<&[u8]>(..)?;
    db.insert("", "before all")?;
    db.insert([0xff; 20], "behind all")?;
    for place in ["memtable", "table"] {
        let (covered, absent, ratio) = compare(LOOKUPS, get(&db, keys), miss(&db, keys));
        show(&format!("ns per get of a key that a {place} covers"), covered);
        show("ns per get of an absent key", absent);
        bounded("get of a covered key, times a miss", ratio, 1.3);
        let (some, none) = (contains_many(&db, keys, 0), contains_many(&db, keys, keys));
        let (_, _, ratio) = compare(LOOKUPS / MANY, some, none);
        bounded("batched contains of covered keys, times misses", ratio, 1.3);
        let seek = median_time(100, |_| assert_eq!(db.range("\0"..).count(), 1));
        bounded("us per seek over all keys", seek / 1000.0, 100.0);
        let back = median_time(100, |_| assert_eq!(db.range(..[0xff; 20]).rev().count(), 1));
        bounded("us per seek back over all keys", back / 1000.0, 100.0);
        db.flush()?;
    }
    let before = db.stats().keyspaces[0].table_bytes;
    drop(snapshot);
    db.compact()?;
    let after = db.stats().keyspaces[0].table_bytes;
    bounded("bytes of tables after a compaction, times before", after as f64 / before as f64, 0.01);
    Ok(())
}

/// Reads beside many overlapping range deletes, times those of the same store without.
fn beside(dir: &tempfile::TempDir, sorted: &[[u8; 16]]) -> Result<()> {
    let keys = sorted.len() as u64;
    let without = filled(dir, "without", sorted)?;
    let cases = [
        ("8 range deletes between keys", 8, false),
        ("10000 range deletes behind the keys", 10_000, true),
        ("10000 range deletes between keys", 10_000, false),
    ];
    for (name, ranges, behind) in cases {
        let db = filled(dir, name, sorted)?;
        delete_gaps(&db, sorted, ranges, behind)?;
        for db in [&db, &without] {
            db.insert(sorted[0], value(0))?;
            db.insert(sorted[sorted.len() - 1], value(0))?;
        }
        for place in ["memtable", "table"] {
            let of = format!("beside {name} in a {place}, times without");
            let (with, _, ratio) = compare(LOOKUPS, get(&db, keys), get(&without, keys));
            show(&format!("ns per get beside {name} in a {place}"), with);
            bounded(&format!("get {of}"), ratio, 1.5);
            let (_, _, ratio) = compare(LOOKUPS, miss(&db, keys), miss(&without, keys));
            bounded(&format!("miss {of}"), ratio, 1.2);
            let calls = LOOKUPS / MANY;
            let (with, none) = (contains_many(&db, keys, 0), contains_many(&without, keys, 0));
            let (_, _, ratio) = compare(calls, with, none);
            bounded(&format!("batched contains {of}"), ratio, 1.5);
            for db in [&db, &without] {
                db.flush()?;
            }
        }
        without.compact()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let keys = env::args().nth(1).map_or(100_000, |keys| keys.parse().expect("KEYS"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut sorted: Vec<_> = (0..keys).map(key).collect();
    sorted.sort_unstable();
    covered(&dir, &sorted)?;
    beside(&dir, &sorted)?;
    Ok(())
}
