//! Read throughput of threads on one store versus processes on separate stores.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example scaling -- [KEYS [FOLDER [N]]]
//! ```
//!
//! N threads on one store look up random cached keys, and so do N concurrent processes, each on its
//! own copy. Rounds of both are interleaved. Prints the median lookups per second of each and their
//! ratio; 1 means no contention between threads. CPU time is more reliable than the clock if N
//! exceeds the number of cores or other processes run, so ratios by both are printed.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    sync::Barrier,
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Options, Result};
use sievedb_benches::{key, value};
use sievedb_workload::{
    clock::{now, thread_cpu_time},
    random::Random,
};

const ROUNDS: usize = 7;
const LOOKUPS: u64 = 400_000;

/// Argument that makes a process look up keys, and report its speed.
const CHILD: &str = "child";

/// Figures of a thread: lookups per second, and per second of its CPU time.
type Speed = (f64, f64);

fn open(path: &Path) -> Result<Db> {
    Options::new().block_cache_bytes(2 << 30).open(path)
}

fn fill(path: &Path, keys: u64) -> Result<()> {
    let db = open(path)?;
    let mut next = 0;
    while next < keys {
        let mut batch = db.batch();
        for index in next..keys.min(next + 1000) {
            batch.insert(&db, key(index), value(index))?;
        }
        next = keys.min(next + 1000);
        batch.commit(Durability::Memory)?;
    }
    db.compact()
}

/// Reads all blocks, then looks up keys.
fn look_up(db: &Db, keys: u64, seed: u64, start: &Barrier) -> Result<Speed> {
    let mut random = Random::new(seed);
    for index in 0..keys {
        db.get_with(key(index), |_| ())?.expect("it was stored");
    }
    start.wait();
    let (began, cpu) = (now(), thread_cpu_time());
    for _ in 0..LOOKUPS {
        let found = db.get(key(random.below(keys)))?;
        assert!(found.is_some());
    }
    let per_second = |time: Duration| LOOKUPS as f64 / time.as_secs_f64();
    Ok((per_second(began.elapsed()), per_second(thread_cpu_time() - cpu)))
}

fn threads(path: &Path, keys: u64, count: u64) -> Result<Vec<Speed>> {
    let (db, start) = (open(path)?, Barrier::new(count as usize));
    thread::scope(|scope| {
        let (db, start) = (&db, &start);
        let one = |seed| scope.spawn(move || look_up(db, keys, seed, start));
        let running: Vec<_> = (0..count).map(one).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn processes(dir: &Path, keys: u64, count: u64) -> Vec<Speed> {
    let this = env::current_exe().expect("the program has a file");
    let start = |n: u64| {
        let mut child = Command::new(&this);
        child.arg(CHILD).arg(keys.to_string()).arg(copy(dir, n)).stdout(Stdio::piped());
        child.spawn().expect("a process can be started")
    };
    let running: Vec<_> = (0..count).map(start).collect();
    let speed = |child: std::process::Child| {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let mut numbers = text.split_whitespace().map(|number| number.parse().expect("a number"));
        (numbers.next().expect("two numbers"), numbers.next().expect("two numbers"))
    };
    running.into_iter().map(speed).collect()
}

fn copy(dir: &Path, number: u64) -> std::path::PathBuf {
    dir.join(format!("copy-{number}"))
}

#[expect(clippy::disallowed_methods, reason = "a closed store is copied as any directory is")]
fn copy_store(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn median(mut sums: Vec<f64>) -> f64 {
    sums.sort_by(f64::total_cmp);
    sums[sums.len() / 2]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [word, keys, path] = &arguments[..]
        && word == CHILD
    {
        let keys = keys.parse().expect("a number of keys");
        let (clock, cpu) = look_up(&open(Path::new(path))?, keys, 1, &Barrier::new(1))?;
        println!("{clock} {cpu}");
        return Ok(());
    }
    let keys: u64 = arguments.first().map_or(500_000, |n| n.parse().expect("a number of keys"));
    let temporary = tempfile::tempdir().expect("there is a directory for temporary files");
    let dir = arguments.get(1).map_or(temporary.path(), Path::new);
    let count = arguments.get(2).map_or(2, |n| n.parse().expect("a number of threads"));
    for n in 0..count {
        if n == 0 {
            fill(&copy(dir, 0), keys)?;
        } else {
            copy_store(&copy(dir, 0), &copy(dir, n)).expect("the store is copied");
        }
    }
    let mut sums = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let both = [threads(&copy(dir, 0), keys, count)?, processes(dir, keys, count)];
        for (speeds, sums) in both.iter().zip(sums.chunks_mut(2)) {
            sums[0].push(speeds.iter().map(|speed| speed.0).sum());
            sums[1].push(speeds.iter().map(|speed| speed.1).sum());
        }
    }
    let [threads, threads_cpu, processes, processes_cpu] = sums.map(median);
    println!("{count} threads:   {threads:9.0} lookups per s, {threads_cpu:9.0} per s of CPU");
    println!("{count} processes: {processes:9.0} lookups per s, {processes_cpu:9.0} per s of CPU");
    println!("ratio {:.3}, of CPU time {:.3}", threads / processes, threads_cpu / processes_cpu);
    Ok(())
}
