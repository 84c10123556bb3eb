//! Cost of a change stream to a writer. Prints name, tab and value, and the bound of a ratio.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example change_stream -- [--writes WRITES] [--rounds N]
//! ```
//!
//! A thread inserts WRITES entries with 100-byte values one by one, at full speed and with the
//! default durability: into a store without a change stream, into one that retains changes, and
//! beside a thread that reads the stream and checks it by a digest. Each round measures all three
//! in turn, the first as a warm-up. Ratios are medians over rounds.
//!
//! | name                                | value                                                |
//! |-------------------------------------|------------------------------------------------------|
//! | `insert_ns`                         | CPU time of the writing thread per insert, median    |
//! | retained, over without              | the same with retention, divided by it; bound: 1.05  |
//! | CPU time beside a reader            | the same beside a reader of the stream; bound: 1.05  |
//! | time beside a reader, over without  | real time of the writer likewise; for information    |
//! | changes lost or doubled             | by count and digest; bound: 0                        |

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use clap::Parser;
use sievedb::{
    ChangeRetention, Db, Durability, Options,
    changes::{ChangeKind, ChangesOptions},
};
use sievedb_benches::{key, value};
use sievedb_workload::clock::{now, thread_cpu_time};

#[derive(Debug, Parser)]
struct Args {
    /// Number of inserts of a round.
    #[arg(long, default_value_t = 1_000_000)]
    writes: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Without,
    Retained,
    Read,
}

/// Times of a writer, and what its reader missed or saw twice.
#[derive(Debug)]
struct Times {
    cpu: Duration,
    real: Duration,
    wrong: u64,
}

/// Returns a number that depends on the order of keys.
fn digest(before: u64, key: &[u8]) -> u64 {
    key.iter().fold(before, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn write(db: &Db, writes: u64) -> (Duration, Duration) {
    let (cpu, real) = (thread_cpu_time(), now());
    for number in 0..writes {
        db.insert(key(number), value(number)).unwrap();
    }
    (thread_cpu_time() - cpu, now() - real)
}

/// Reads the changes after `since` until `is_done` and nothing is left. Returns the number and
/// digest of changes.
fn read(db: &Db, since: u64, is_done: &AtomicBool) -> (u64, u64) {
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(since, options).unwrap();
    let (mut count, mut sum) = (0, 0);
    loop {
        let was_done = is_done.load(SeqCst);
        let Some(batch) = changes.next_within(Duration::from_millis(100)) else {
            if was_done {
                return (count, sum);
            }
            continue;
        };
        for change in batch.unwrap().changes() {
            let ChangeKind::Insert { key, .. } = &change.kind else { panic!("an insert") };
            (count, sum) = (count + 1, digest(sum, key));
        }
    }
}

fn round(mode: Mode, writes: u64) -> Times {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new();
    if !matches!(mode, Mode::Without) {
        options = options.retain_changes(ChangeRetention::bytes(1 << 30));
    }
    let db = options.open(dir.path()).unwrap();
    let (since, is_done) = (db.snapshot().sequence(), AtomicBool::new(false));
    let expected = (writes, (0..writes).fold(0, |sum, number| digest(sum, &key(number))));
    thread::scope(|scope| {
        let reads = matches!(mode, Mode::Read);
        let reader = reads.then(|| scope.spawn(|| read(&db, since, &is_done)));
        let (cpu, real) = write(&db, writes);
        is_done.store(true, SeqCst);
        let seen = reader.map_or(expected, |reader| reader.join().unwrap());
        let wrong = seen.0.abs_diff(expected.0).max(u64::from(seen.1 != expected.1));
        Times { cpu, real, wrong }
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let Args { writes, rounds, .. } = Args::parse();
    let measured: Vec<[Times; 3]> = (0..=rounds)
        .map(|_| [Mode::Without, Mode::Retained, Mode::Read].map(|mode| round(mode, writes)))
        .collect();
    let of =
        |figure: &dyn Fn(&[Times; 3]) -> f64| median(measured.iter().skip(1).map(figure).collect());
    let cpu = |times: &Times| times.cpu.as_secs_f64();
    let real = |times: &Times| times.real.as_secs_f64();
    println!("insert_ns\t{:.0}", of(&|[one, ..]| cpu(one) * 1e9 / writes as f64));
    let retained = of(&|[without, retained, _]| cpu(retained) / cpu(without));
    println!("retained changes: CPU time of an insert, over without\t{retained:.3}\t1.05");
    let beside = of(&|[without, _, read]| cpu(read) / cpu(without));
    println!("beside a change stream: CPU time of an insert, over without\t{beside:.3}\t1.05");
    let time = of(&|[without, _, read]| real(read) / real(without));
    println!("beside a change stream: time of an insert, over without\t{time:.3}");
    let wrong: u64 = measured.iter().flatten().map(|times| times.wrong).sum();
    println!("change stream: changes lost or doubled\t{wrong}\t0");
}
