//! Cost of followers to a writer, and their staleness. Prints name, tab and value, and the bound.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example followers -- [--writes WRITES] [--rounds N]
//! ```
//!
//! A thread inserts WRITES entries with 100-byte values one by one, at full speed and with the
//! default durability: alone, then beside two followers and a reader of the change stream. The
//! followers are processes of their own, which refresh every 10 ms. Each round measures both in
//! turn, the first as a warm-up. Ratios are medians over rounds.
//!
//! The writer stores the time of every 64th insert in its value. A follower that sees the insert
//! first after a refresh compares that with the present time: its staleness.
//!
//! | name                             | value                                                   |
//! |----------------------------------|---------------------------------------------------------|
//! | `insert_ns`                      | CPU time of the writing thread per insert, median        |
//! | CPU time beside followers        | the same beside them, divided by it; bound: 1.05         |
//! | time beside followers            | real time likewise; bound: 1.05, with 8 or more CPUs     |
//! | staleness, 99th percentile       | in ms, of all followers and rounds; bound: 100           |
//! | staleness, median and longest    | in ms; for information                                   |
//! | writes lost by followers         | by count at the end; bound: 0                            |
//!
//! With few processors, writer, workers, followers and reader wait for each other's.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]
#![expect(clippy::unwrap_used, reason = "a benchmark ends by a panic")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    num::NonZero,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use clap::Parser;
use sievedb::{ChangeRetention, Db, Durability, Options, changes::ChangesOptions};
use sievedb_benches::{key, value};
use sievedb_workload::clock::{monotonic_ns, now, thread_cpu_time};

/// Interval of refreshes.
const INTERVAL: Duration = Duration::from_millis(10);
const FOLLOWERS: usize = 2;
/// One of so many inserts stores its time.
const TIMED_EVERY: u64 = 64;
/// With fewer processors followers and writer wait for each other's.
const PROCESSORS_MIN: usize = 8;

#[derive(Debug, Parser)]
struct Args {
    /// Number of inserts of a round.
    #[arg(long, default_value_t = 1_000_000)]
    writes: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Directory to follow, in the processes of followers.
    #[arg(long, hide = true)]
    follow: Option<PathBuf>,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn write(db: &Db, writes: u64) -> (Duration, Duration) {
    let (cpu, real) = (thread_cpu_time(), now());
    for number in 0..writes {
        let mut value = value(number);
        if number.is_multiple_of(TIMED_EVERY) {
            value[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
        }
        db.insert(key(number), value).unwrap();
    }
    (thread_cpu_time() - cpu, now() - real)
}

/// Follows the store until it has all writes. Prints the staleness of timed inserts in us.
fn follow(dir: &Path, writes: u64) {
    let db = Options::new().follow(true).open(dir).unwrap();
    let (mut seen, mut stale_us) = (0, Vec::with_capacity((writes / TIMED_EVERY) as usize));
    println!("ready");
    while seen < writes {
        thread::sleep(INTERVAL);
        db.refresh().unwrap();
        let at = monotonic_ns();
        while seen < writes {
            let Some(found) = db.get(key(seen)).unwrap() else { break };
            let written = u64::from_le_bytes(found[..8].try_into().unwrap());
            stale_us.push(at.saturating_sub(written) / 1000);
            seen += TIMED_EVERY;
        }
    }
    while db.get(key(writes - 1)).unwrap().is_none() {
        thread::sleep(INTERVAL);
        db.refresh().unwrap();
    }
    let lost = writes - db.len().unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "lost {lost}").unwrap();
    stale_us.iter().for_each(|us| writeln!(out, "{us}").unwrap());
}

/// Starts a follower of the store in `dir`, and waits until it has opened the store.
fn start(dir: &Path, writes: u64) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--follow").arg(dir).args(["--writes", &writes.to_string()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    (child, out)
}

/// Reads the change stream until `is_done` and nothing is left. Returns the number of changes.
fn read(db: &Db, since: u64, is_done: &AtomicBool) -> u64 {
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(since, options).unwrap();
    let mut count = 0;
    loop {
        let was_done = is_done.load(SeqCst);
        match changes.next_within(Duration::from_millis(100)) {
            Some(batch) => count += batch.unwrap().changes().len() as u64,
            None if was_done => return count,
            None => {}
        }
    }
}

#[derive(Debug, Default)]
struct Round {
    cpu: Duration,
    real: Duration,
    lost: u64,
    stale_us: Vec<u64>,
}

fn round(is_followed: bool, writes: u64) -> Round {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().retain_changes(ChangeRetention::bytes(1 << 30));
    let db = options.open(dir.path()).unwrap();
    let (since, is_done) = (db.snapshot().sequence(), AtomicBool::new(false));
    let count = if is_followed { FOLLOWERS } else { 0 };
    let followers: Vec<_> = (0..count).map(|_| start(dir.path(), writes)).collect();
    let mut round = Round::default();
    thread::scope(|scope| {
        let reader = is_followed.then(|| scope.spawn(|| read(&db, since, &is_done)));
        (round.cpu, round.real) = write(&db, writes);
        is_done.store(true, SeqCst);
        round.lost += reader.map_or(0, |reader| writes.abs_diff(reader.join().unwrap()));
    });
    for (mut child, out) in followers {
        let mut lines = out.lines().map(Result::unwrap);
        let lost = lines.next().unwrap();
        round.lost += lost.strip_prefix("lost ").unwrap().parse::<u64>().unwrap();
        round.stale_us.extend(lines.map(|line| line.parse::<u64>().unwrap()));
        assert!(child.wait().unwrap().success(), "a follower failed");
    }
    round
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let Args { writes, rounds, follow: followed, .. } = Args::parse();
    if let Some(dir) = followed {
        follow(&dir, writes);
        return;
    }
    let measured: Vec<[Round; 2]> =
        (0..=rounds).map(|_| [false, true].map(|is_followed| round(is_followed, writes))).collect();
    let of =
        |figure: &dyn Fn(&[Round; 2]) -> f64| median(measured.iter().skip(1).map(figure).collect());
    let cpu = |round: &Round| round.cpu.as_secs_f64();
    let real = |round: &Round| round.real.as_secs_f64();
    println!("insert_ns\t{:.0}", of(&|[alone, _]| cpu(alone) * 1e9 / writes as f64));
    let beside = of(&|[alone, beside]| cpu(beside) / cpu(alone));
    println!("beside followers: CPU time of an insert, over alone\t{beside:.3}\t1.05");
    let time = of(&|[alone, beside]| real(beside) / real(alone));
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let bound = if processors >= PROCESSORS_MIN { "\t1.05" } else { "" };
    println!("beside followers: time of an insert, over alone\t{time:.3}{bound}");
    let mut stale: Vec<_> = measured.iter().flat_map(|[_, it]| it.stale_us.clone()).collect();
    stale.sort_unstable();
    let ms = |us: u64| us as f64 / 1000.0;
    let p99 = ms(stale[stale.len() * 99 / 100]);
    println!("followers: staleness, 99th percentile, ms\t{p99:.1}\t100");
    println!("followers: staleness, median, ms\t{:.1}", ms(stale[stale.len() / 2]));
    println!("followers: staleness, longest, ms\t{:.1}", ms(*stale.last().unwrap()));
    let lost: u64 = measured.iter().flatten().map(|round| round.lost).sum();
    println!("followers and change stream: writes lost\t{lost}\t0");
}
