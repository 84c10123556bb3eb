//! Time of a checkpoint, and the pause of a writer. Prints name, tab and value, and the bound of
//! the ratio.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example checkpoints -- [--mib MIB] [--rounds ROUNDS]
//! ```
//!
//! A store gets MIB MiB of entries with 1,000-byte values. Then a thread overwrites random keys at
//! full speed with the default durability, and takes the time of each write. Meanwhile checkpoints
//! are taken, with a pause of 0.3 s before each.
//!
//! | name                   | value                                                          |
//! |------------------------|----------------------------------------------------------------|
//! | `store_mib`            | length of the tables, in MiB                                   |
//! | `tables`               | number of tables                                               |
//! | `checkpoint_ms`        | time of a checkpoint, median; bound: 50                        |
//! | `checkpoint_ms_max`    | the longest one                                                |
//! | `copied_mib_max`       | copied bytes of a checkpoint, the most                         |
//! | `paused_ms_max`        | time for which no writer could append to the log, the longest; bound: 5 |
//! | `write_ms`             | longest write during a checkpoint, median; bound: 5            |
//! | `write_ms_max`         | the longest of all rounds                                      |
//! | `write_ms_without`     | the same median between checkpoints                            |
//! | `writes_per_second`    | writes of the thread                                           |

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clap::Parser;
use sievedb::{
    Db,
    clock::{Clock as _, SystemClock},
};
use sievedb_benches::key;

const VALUE_BYTES: usize = 1000;
const PAUSE: Duration = Duration::from_millis(300);

#[derive(Debug, Parser)]
struct Args {
    /// Size of the store, in MiB.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Number of checkpoints.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns a value that does not compress.
fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut state = number | 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
}

/// Overwrites random keys. `longest_us` gets the longest write since it was set to 0.
fn write(db: &Db, keys: u64, stop: &AtomicBool, longest_us: &AtomicU64) -> u64 {
    let (clock, mut number) = (SystemClock::new(), 0);
    while !stop.load(Relaxed) {
        let index = number * 0x9e37_79b9 % keys;
        let value = value(number);
        let start = clock.now();
        db.insert(key(index), value).unwrap();
        longest_us.fetch_max((clock.now() - start).as_micros() as u64, Relaxed);
        number += 1;
    }
    number
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let Args { mib, rounds, .. } = Args::parse();
    let keys = (mib << 20) / VALUE_BYTES as u64;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    for index in 0..keys {
        db.insert(key(index), value(index)).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    let stats = db.stats();
    let sum = |of: fn(&sievedb::stats::LevelStats) -> u64| stats.levels.iter().map(of).sum::<u64>();
    println!("store_mib\t{:.0}", sum(|level| level.bytes) as f64 / 1024.0 / 1024.0);
    println!("tables\t{}", sum(|level| level.tables));

    let (stop, longest_us) = (AtomicBool::new(false), AtomicU64::new(0));
    let [mut times, mut paused, mut writes, mut writes_without] = [const { Vec::new() }; 4];
    let mut copied_bytes = 0;
    let clock = SystemClock::new();
    let started = clock.now();
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&db, keys, &stop, &longest_us));
        for round in 0..rounds {
            thread::sleep(PAUSE);
            let milliseconds = |us: u64| us as f64 / 1000.0;
            writes_without.push(milliseconds(longest_us.swap(0, Relaxed)));
            let start = clock.now();
            let taken = db.checkpoint(dir.path().join(format!("copy{round}"))).unwrap();
            times.push((clock.now() - start).as_secs_f64() * 1000.0);
            writes.push(milliseconds(longest_us.swap(0, Relaxed)));
            paused.push(taken.writers_paused.as_secs_f64() * 1000.0);
            copied_bytes = copied_bytes.max(taken.bytes_copied);
        }
        stop.store(true, Relaxed);
        writer.join().unwrap()
    });
    let seconds = (clock.now() - started).as_secs_f64();
    println!("checkpoint_ms\t{:.1}\t50", median(&mut times));
    println!("checkpoint_ms_max\t{:.1}", times.last().unwrap());
    println!("copied_mib_max\t{:.1}", copied_bytes as f64 / 1024.0 / 1024.0);
    println!("paused_ms_max\t{:.3}\t5", paused.iter().fold(0.0, |a: f64, &b| a.max(b)));
    println!("write_ms\t{:.2}\t5", median(&mut writes));
    println!("write_ms_max\t{:.2}", writes.last().unwrap());
    println!("write_ms_without\t{:.2}", median(&mut writes_without));
    println!("writes_per_second\t{:.0}", written as f64 / seconds);
}
