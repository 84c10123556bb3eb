//! Thread CPU time of scans of cached tables, in one sorted run or in three.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example scans -- 1000000 [FOLDER [SCAN]]
//! ```
//!
//! Reuses an existing store in the directory. Prints the median and the minimum of the rounds, in
//! ns per entry. A third argument selects a single scan, or is `tombstones`: then scans step over
//! as many tombstones.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, hint::black_box, path::Path, time::Duration};

use sievedb::{Db, Durability, KeyspaceOptions, Options, Range, Result};
use sievedb_benches::{key, value};
use sievedb_workload::clock::thread_cpu_time;

const ROUNDS: usize = 7;
const SHORT_SCANS: u64 = 10_000;
const SHORT_ENTRIES: u64 = 50;

/// Shares of the keys in the runs, in percent, the oldest first.
const STORES: [(&str, &[u64]); 2] = [("one run", &[100]), ("three runs", &[90, 9, 1])];

fn open(path: &Path, keys: u64, shares: &[u64]) -> Result<Db> {
    let db = Options::new().block_cache_bytes(2 << 30).idle_compactions(false).open(path)?;
    if db.stats().keyspaces[0].entries == 0 {
        let mut next = 0;
        for (run, share) in shares.iter().enumerate() {
            let end = next + keys * share / 100;
            while next < end {
                let mut batch = db.batch();
                for index in next..end.min(next + 1000) {
                    batch.insert(&db, key(index), value(index))?;
                }
                next = end.min(next + 1000);
                batch.commit(Durability::Memory)?;
            }
            if run == 0 { db.compact()? } else { db.flush()? }
        }
    }
    assert_eq!(db.stats().keyspaces[0].runs, shares.len() as u64);
    Ok(db)
}

/// A scan. Returns the number of entries.
type Scan = fn(&Db, u64) -> Result<u64>;

const SCANS: [(&str, Scan); 7] = [
    ("forward, kept", |db, _| db.iter().try_fold(0, |n, entry| entry.map(|_| n + 1))),
    ("backward, kept", |db, _| db.iter().rev().try_fold(0, |n, entry| entry.map(|_| n + 1))),
    ("forward", |db, _| {
        let (mut range, mut entries) = (db.iter(), 0);
        while let Some(entry) = range.next_ref()? {
            black_box((entry.key(), entry.value()));
            entries += 1;
        }
        Ok(entries)
    }),
    ("backward", |db, _| {
        let (mut range, mut entries) = (db.iter(), 0);
        while let Some(entry) = range.next_back_ref()? {
            black_box((entry.key(), entry.value()));
            entries += 1;
        }
        Ok(entries)
    }),
    ("keys", |db, _| {
        let (mut range, mut entries) = (db.iter().keys(), 0);
        while let Some(key) = range.next_ref()? {
            black_box(key);
            entries += 1;
        }
        Ok(entries)
    }),
    ("short", |db, keys| {
        (0..SHORT_SCANS).map(|scan| short(&mut db.range(key(scan * 7919 % keys)..))).sum()
    }),
    ("short, by seek", |db, keys| {
        let mut range = db.iter();
        let seek = |scan| {
            range.seek(key(scan * 7919 % keys));
            short(&mut range)
        };
        (0..SHORT_SCANS).map(seek).sum()
    }),
];

/// Reads a few entries, and returns their number.
fn short(range: &mut Range) -> Result<u64> {
    let mut entries = 0;
    while entries < SHORT_ENTRIES
        && let Some(entry) = range.next_ref()?
    {
        black_box((entry.key(), entry.value()));
        entries += 1;
    }
    Ok(entries)
}

/// Removes all keys except the last, and scans the tombstones.
fn tombstones(dir: &Path, keys: u64) -> Result<()> {
    let keyspace = KeyspaceOptions::new().memtable_bytes(512 << 20);
    let options = Options::new().block_cache_bytes(1 << 30).keyspace(keyspace);
    let db = options.memory_budget(4 << 30).open(dir)?;
    let all = (0..keys).map(key);
    let live = all.clone().max().expect("there are keys");
    for keep_none in [true, false] {
        let mut batch = db.batch();
        for (index, key) in all.clone().enumerate() {
            match keep_none {
                true => batch.insert(&db, key, value(0))?,
                false if key != live => batch.remove(&db, key)?,
                false => {}
            }
            if index % 1000 == 999 {
                batch.commit(Durability::Memory)?;
                batch = db.batch();
            }
        }
        batch.commit(Durability::Memory)?;
        if keep_none {
            db.compact()?;
        }
    }
    for place in ["memtable", "table"] {
        for back in [false, true] {
            let before = thread_cpu_time();
            let mut range = db.iter();
            let entry = if back { range.next_back_ref()? } else { range.next_ref()? };
            assert_eq!(entry.expect("one key is live").key(), live);
            assert!(if back { range.next_back_ref()? } else { range.next_ref()? }.is_none());
            let time = thread_cpu_time().saturating_sub(before);
            println!("{keys} tombstones in a {place}, back {back}: {time:?}");
        }
        if place == "memtable" { db.flush()? } else { db.wait_for_background()? }
    }
    println!("{} tombstones are left", db.stats().total().tombstones);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let keys: u64 = arguments.first().map_or(1_000_000, |n| n.parse().expect("a number of keys"));
    let temporary = tempfile::tempdir().expect("there is a directory for temporary files");
    let dir = arguments.get(1).map_or(temporary.path(), Path::new);
    if arguments.get(2).is_some_and(|only| only == "tombstones") {
        return tombstones(&dir.join("tombstones"), keys);
    }
    for (title, shares) in STORES {
        let db = open(&dir.join(title), keys, shares)?;
        // Loads every block into the cache.
        db.iter().try_for_each(|entry| entry.map(drop))?;
        let only = |name: &str| arguments.get(2).is_none_or(|only| only == name);
        for (name, scan) in SCANS.into_iter().filter(|(name, _)| only(name)) {
            let mut cpu: Vec<(Duration, u64)> = Vec::new();
            for _ in 0..ROUNDS {
                let before = thread_cpu_time();
                let entries = scan(&db, keys)?;
                cpu.push((thread_cpu_time().saturating_sub(before), entries));
            }
            let per_entry =
                |(time, entries): (Duration, u64)| time.as_nanos() as f64 / entries as f64;
            let mut times: Vec<f64> = cpu.into_iter().map(per_entry).collect();
            times.sort_by(f64::total_cmp);
            let (median, least) = (times[ROUNDS / 2], times[0]);
            println!("{title:<10} {name:<16} median {median:6.1} ns, least {least:6.1}");
        }
    }
    Ok(())
}
