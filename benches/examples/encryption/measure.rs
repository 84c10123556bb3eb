//! The measurements.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{path::Path, sync::Arc, time::Duration};

use clap::Parser;
use sievedb::{Db, Options, RootKey, StaticKeys};
use sievedb_benches::{key, shuffled};
use sievedb_workload::{clock::process_cpu_time, random::Random};

const VALUE_BYTES: usize = 100;
/// Names of the figures, with their bounds.
const FIGURES: [(&str, Option<f64>); 5] = [
    ("load", Some(1.2)),
    ("first reads, which fill the block cache", None),
    ("reads of random keys", Some(1.15)),
    ("scan", Some(1.15)),
    ("cold reads, without a block cache", None),
];

#[derive(Debug, Parser)]
struct Args {
    /// Number of keys, rounded up to a power of two.
    #[arg(long, default_value_t = 1 << 17)]
    keys: u64,
    /// Number of rounds, after one to warm up.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn options(encrypted: bool) -> Options {
    let keys = StaticKeys::new(1, RootKey::new([7; 32]));
    if encrypted { Options::new().encryption(Arc::new(keys)) } else { Options::new() }
}

fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut random = Random::new(number);
    std::array::from_fn(|_| random.next() as u8)
}

fn timed(call: impl FnOnce()) -> Duration {
    let start = process_cpu_time();
    call();
    process_cpu_time() - start
}

/// Key `2 n` is present for each `n` below `keys`, and no other one.
fn read(db: &Db, keys: u64, reads: u64) {
    let mut random = Random::new(3);
    for number in 0..reads {
        let wanted = 2 * random.below(keys) + number % 2;
        assert_eq!(db.get(key(wanted)).unwrap().is_some(), number % 2 == 0);
    }
}

/// Returns the CPU times of [`FIGURES`].
fn round(encrypted: bool, keys: u64, dir: &Path) -> [Duration; 5] {
    let db = options(encrypted).open(dir).unwrap();
    let load = timed(|| {
        let mut next = shuffled(keys);
        for _ in 0..keys {
            let number = next();
            db.insert(key(2 * number), value(number)).unwrap();
        }
        db.compact().unwrap();
    });
    let first = timed(|| read(&db, keys, keys));
    let reads = timed(|| read(&db, keys, keys));
    let scan = timed(|| assert_eq!(db.iter().count() as u64, keys));
    drop(db);
    let db = options(encrypted).block_cache_bytes(0).open(dir).unwrap();
    read(&db, keys, 1000);
    let cold = timed(|| read(&db, keys, keys / 4));
    [load, first, reads, scan, cold]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn run() {
    let Args { keys, rounds, .. } = Args::parse();
    let keys = keys.next_power_of_two();
    let measured: Vec<[[Duration; 5]; 2]> = (0..=rounds)
        .map(|number| {
            // Each goes first in every second round.
            let mut times = [[Duration::ZERO; 5]; 2];
            for which in [number % 2, 1 - number % 2] {
                let dir = tempfile::tempdir().unwrap();
                times[which] = round(which == 1, keys, dir.path());
            }
            times
        })
        .skip(1)
        .collect();
    for (at, (name, bound)) in FIGURES.into_iter().enumerate() {
        let seconds = |which: usize| {
            median(measured.iter().map(|times| times[which][at].as_secs_f64()).collect())
        };
        let ratio =
            |times: &[[Duration; 5]; 2]| times[1][at].as_secs_f64() / times[0][at].as_secs_f64();
        let ratio = median(measured.iter().map(ratio).collect());
        println!("{name}: CPU ms, plain\t{:.0}", seconds(0) * 1e3);
        match bound {
            Some(bound) => println!("{name}: CPU time, encrypted over plain\t{ratio:.3}\t{bound}"),
            None => println!("{name}: CPU time, encrypted over plain\t{ratio:.3}"),
        }
    }
}
