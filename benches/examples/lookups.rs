//! Thread CPU time of absent and of present keys, one by one and in batches, among keys in three
//! sorted runs.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example lookups -- 1000000 [FOLDER]
//! ```
//!
//! Reuses an existing store in the directory. The calls take turns; each round starts with another
//! call and uses new keys. Prints the median and the minimum of the rounds, in ns per key. A third
//! argument selects a single call, run without a clock for a profiler.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, hint::black_box, path::Path, time::Duration};

use sievedb::{Db, Durability, KeyspaceOptions, Options, Result};
use sievedb_benches::{KEY_BYTES, key, value};
use sievedb_workload::clock::thread_cpu_time;

/// Shares of the keys in the runs, in percent, the oldest first.
const SHARES: [u64; 3] = [90, 9, 1];
const ROUNDS: u64 = 21;
const ROUND_KEYS: u64 = 20_000;
const BATCH: usize = 1_000;

fn fill(db: &Db, keys: u64) -> Result<()> {
    let mut next = 0;
    for (run, share) in SHARES.into_iter().enumerate() {
        let end = next + keys * share / 100;
        while next < end {
            let mut batch = db.batch();
            for index in next..end.min(next + 1000) {
                batch.insert(db, key(index), value(index))?;
            }
            next = end.min(next + 1000);
            batch.commit(Durability::Memory)?;
        }
        if run == 0 { db.compact()? } else { db.flush()? }
    }
    Ok(())
}

fn open(path: &Path, keys: u64) -> Result<Db> {
    let keyspace = KeyspaceOptions::new().memtable_bytes(512 << 20);
    let options = Options::new().block_cache_bytes(256 << 20).idle_compactions(false);
    let db = options.keyspace(keyspace).open(path)?;
    if db.stats().keyspaces[0].runs == 0 {
        fill(&db, keys)?;
    }
    assert_eq!(db.stats().keyspaces[0].runs, SHARES.len() as u64);
    Ok(db)
}

type Key = [u8; KEY_BYTES];
type Call = fn(&Db, &[Key]) -> Result<usize>;

/// Calls by name. Each returns the number of keys found.
const CALLS: [(&str, Call); 5] = [
    ("get", |db, keys| {
        keys.iter().try_fold(0, |n, key| Ok(n + usize::from(db.get(key)?.is_some())))
    }),
    ("contains_key", |db, keys| {
        keys.iter().try_fold(0, |n, key| Ok(n + usize::from(db.contains_key(key)?)))
    }),
    ("may_contain", |db, keys| Ok(keys.iter().filter(|key| db.may_contain(key)).count())),
    ("get_many", |db, keys| {
        let answers = keys.chunks(BATCH).map(|keys| db.get_many(keys));
        answers.map(|many| Ok(many?.iter().flatten().count())).sum()
    }),
    ("contains_many", |db, keys| {
        let answers = keys.chunks(BATCH).map(|keys| db.contains_many(keys));
        answers.map(|many| Ok(many?.iter().filter(|has| **has).count())).sum()
    }),
];

/// Times the calls over rounds of new keys. `key_of` returns a key by number.
fn measure(db: &Db, title: &str, only: Option<&str>, key_of: impl Fn(u64) -> Key) -> Result<()> {
    let mut cpu: Vec<Vec<Duration>> = vec![Vec::new(); CALLS.len()];
    for round in 0..ROUNDS {
        let first = round * ROUND_KEYS;
        let keys: Vec<_> = (first..first + ROUND_KEYS).map(&key_of).collect();
        for turn in 0..CALLS.len() {
            let at = (turn + round as usize) % CALLS.len();
            let ((name, call), cpu) = (CALLS[at], &mut cpu[at]);
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let clock = || if only.is_none() { thread_cpu_time() } else { Duration::ZERO };
            let before = clock();
            black_box(call(db, black_box(&keys))?);
            cpu.push(clock().saturating_sub(before));
        }
    }
    for ((name, _), cpu) in CALLS.iter().zip(&mut cpu) {
        cpu.sort_unstable();
        if let (Some(least), Some(median)) = (cpu.first(), cpu.get(cpu.len() / 2)) {
            let per_key = |time: &Duration| time.as_nanos() as f64 / ROUND_KEYS as f64;
            let (median, least) = (per_key(median), per_key(least));
            println!("{title} {name:<16} median {median:6.1} ns, least {least:6.1}");
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let keys: u64 = arguments.first().map_or(1_000_000, |n| n.parse().expect("a number of keys"));
    let temporary = tempfile::tempdir().expect("there is a directory for temporary files");
    let dir = arguments.get(1).map_or(temporary.path(), Path::new);
    let only = arguments.get(2).map(String::as_str);
    let db = open(dir, keys)?;
    measure(&db, "absent ", only, |n| key(keys + n))?;
    if only.is_none() {
        measure(&db, "present", None, |n| key(n * 7919 % keys))?;
    }
    Ok(())
}
