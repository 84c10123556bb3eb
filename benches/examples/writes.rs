//! Cost of a write of one entry.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example writes -- [KEYS [THREADS [WHICH]]]
//! ```
//!
//! Each of THREADS threads makes KEYS calls in an empty store, in each of these ways: `insert`,
//! `ascending`, `insert_if_absent` of new keys (`new`) and of present keys (`present`), `remove`,
//! asynchronous commits that are not awaited (`async`), synced inserts (`synced`). Prints CPU time
//! of the writing threads and real time per call, medians of the rounds. WHICH selects a single
//! way; `synced` runs only then. Other acknowledged writes have reached the operating system.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, sync::Barrier, thread};

use sievedb::{Db, Durability, Options, Result};
use sievedb_benches::{key, value};
use sievedb_workload::clock::{now, thread_cpu_time};

const ROUNDS: usize = 5;

/// Calls the store for key number `index`.
type Call = fn(&Db, u64) -> Result<()>;

const WAYS: [(&str, Call); 7] = [
    ("insert", |db, index| db.insert(key(index), value(index))),
    ("ascending", |db, index| db.insert(index.to_be_bytes(), value(index))),
    ("new", |db, index| {
        assert!(db.insert_if_absent(key(index), value(index))?, "the key was new");
        Ok(())
    }),
    ("present", |db, index| {
        assert!(!db.insert_if_absent(key(index), value(index))?, "the key was there");
        Ok(())
    }),
    ("remove", |db, index| db.remove(key(index))),
    ("async", |db, index| {
        let mut batch = db.batch();
        batch.insert(db, key(index), value(index))?;
        drop(batch.commit_async(Durability::Disk)?);
        Ok(())
    }),
    ("synced", |db, index| {
        let durable = db.default_keyspace().with_durability(Durability::Disk);
        durable.insert(key(index), value(index))
    }),
];

/// Calls `call` for `keys` keys in each of `threads` threads. Returns CPU and real time per call,
/// in ns.
fn run(db: &Db, call: Call, keys: u64, threads: u64) -> Result<(f64, f64)> {
    let start = Barrier::new(threads as usize);
    let work = |thread: u64| -> Result<(f64, f64)> {
        start.wait();
        let (real, cpu) = (now(), thread_cpu_time());
        for index in thread * keys..(thread + 1) * keys {
            call(db, index)?;
        }
        let ns = (thread_cpu_time() - cpu, real.elapsed());
        Ok((ns.0.as_nanos() as f64 / keys as f64, ns.1.as_nanos() as f64 / keys as f64))
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let (mut cpu, mut real) = (0.0, 0.0);
        let count = threads.len() as f64;
        for thread in threads {
            let ns = thread.join().expect("a failing call returns its error")?;
            cpu += ns.0 / count;
            real += ns.1 / count / count;
        }
        Ok((cpu, real))
    })
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut number = |or| arguments.next().map_or(or, |text| text.parse().expect("a number"));
    let (keys, threads) = (number(20_000), number(1));
    let which = arguments.next();
    for (name, call) in WAYS {
        if which.as_deref().map_or(name == "synced", |which| which != name) {
            continue;
        }
        let (mut cpu, mut real) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let dir = tempfile::tempdir().expect("there is a directory for temporary files");
            let db = Options::new().open(dir.path())?;
            if name == "present" {
                let _ = run(&db, |db, index| db.insert(key(index), value(index)), keys, threads)?;
            }
            let ns = run(&db, call, keys, threads)?;
            cpu.push(ns.0);
            real.push(ns.1);
        }
        println!("{name}: {:.0} ns of CPU time, {:.0} ns a call", median(cpu), median(real));
    }
    Ok(())
}
