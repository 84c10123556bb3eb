//! Many commits in flight on several threads, with power cuts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{Db, Durability};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    rng::Rng,
    settings::{from_env, report, seed},
};

use super::{
    executor::{Task, run_all},
    open,
    power_cuts::Vouched,
};

const THREADS: u64 = 3;
const TASKS: u64 = 16;
const COMMITS: u64 = 6;

/// Each commit with its sequence number, and what was vouched for.
#[derive(Debug, Default)]
struct Log {
    written: Mutex<Vec<(u64, String)>>,
    vouched: Mutex<Vec<Vouched>>,
}

impl Log {
    fn vouch(&self, disk: &MemoryFs, sequence: u64) {
        let operations = disk.operations();
        self.vouched.lock().unwrap().push(Vouched { operations, sequence });
    }
}

/// Commits one write after the other, each once the last is durable.
async fn write(db: &Db, disk: &MemoryFs, log: &Log, task: u64, seed: u64) {
    let mut random = Rng::new(seed ^ task);
    for number in 0..COMMITS {
        let key = format!("{task:03}.{number:03}");
        let mut batch = db.batch();
        batch.insert(db, &key, [b'x'; 60]).unwrap();
        let durability = *random.pick(&[Durability::OsBuffer, Durability::Disk, Durability::Disk]);
        let commit = batch.commit_async(durability).unwrap();
        log.written.lock().unwrap().push((commit.sequence(), key));
        let sequence = commit.await.unwrap();
        if durability == Durability::Disk {
            log.vouch(disk, sequence);
        }
    }
}

fn check(disk: &MemoryFs, at: usize, loss: &Loss, log: &Log) {
    let db = open(&Arc::new(disk.crash(at, loss)), 0);
    let vouched = log.vouched.lock().unwrap();
    let promised = vouched.iter().filter(|it| it.operations <= at).map(|it| it.sequence).max();
    let promised = promised.unwrap_or(0);
    let mut is_cut = false;
    for (sequence, key) in &*log.written.lock().unwrap() {
        let survived = db.contains_key(key).unwrap();
        assert!(survived || *sequence > promised, "{sequence} of {promised} is lost, at {at}");
        assert!(!(survived && is_cut), "a hole before {sequence}, at {at}");
        is_cut = !survived;
    }
}

#[test]
fn commits_of_many_tasks_survive_power_cuts_once_they_resolve() {
    let seed = seed("asynchronous commits", 1);
    let mut random = Rng::new(seed);
    for _ in 0..from_env("SIEVE_ROUNDS", 4) {
        let disk = Arc::new(MemoryFs::with_seed(random.number()));
        let db = open(&disk, 2);
        let (log, is_over, seed) = (Log::default(), AtomicBool::new(false), random.number());
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (db, disk, log) = (&db, &*disk, &log);
                    scope.spawn(move || {
                        let tasks = (0..TASKS).map(|task| {
                            let task = thread * TASKS + task;
                            Box::pin(write(db, disk, log, task, seed)) as Task<'_>
                        });
                        run_all(tasks.collect());
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut last = 0;
                while !is_over.load(SeqCst) {
                    let watermark = db.durable_sequence();
                    assert!(watermark >= last, "{watermark} after {last}");
                    if watermark > last {
                        log.vouch(&disk, watermark);
                    }
                    last = watermark;
                    thread::yield_now();
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, SeqCst);
            reader.join().unwrap();
        });
        drop(db);
        let mut written = log.written.lock().unwrap();
        assert_eq!(written.len() as u64, THREADS * TASKS * COMMITS);
        written.sort_unstable();
        drop(written);
        for _ in 0..100 {
            let at = random.below(disk.operations() + 1);
            let loss = match random.below(3) {
                0 => Loss::Everything,
                lot => Loss::Random { seed: random.number(), torn: lot == 1 },
            };
            check(&disk, at, &loss, &log);
        }
    }
    report("asynchronous commits: no durable one was lost");
}
