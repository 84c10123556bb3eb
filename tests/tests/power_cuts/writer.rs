//! The process that writes during the power cut, and the check of its writes.

#![expect(clippy::disallowed_methods, reason = "counters and the control are no files of a store")]

use std::{
    env,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Error, Keyspace, Options, fs::RealFs};
use sievedb_tests::{no_sync::NoSync, rng::mix, settings::small_keyspace};

pub(super) const JOB_VARIABLE: &str = "SIEVE_POWER_JOB";
pub(super) const DIR_VARIABLE: &str = "SIEVE_POWER_DIR";
pub(super) const COUNTERS_VARIABLE: &str = "SIEVE_POWER_COUNTERS";

pub(super) const THREADS: usize = 4;
/// Length of a record of the control without a store.
const PLAIN_BYTES: u64 = 512;

/// Job of the child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// Writes to a store.
    Store,
    /// Writes to a store whose syncs have no effect.
    StoreWithoutSyncs,
    /// Appends to a plain file for each thread, with syncs.
    Plain,
}

/// Starts the child process.
pub(super) fn start(job: Job, dir: PathBuf, counters: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["power_cuts::writer", "--exact", "--nocapture"])
        .env(JOB_VARIABLE, format!("{job:?}"))
        .env(DIR_VARIABLE, dir)
        .env(COUNTERS_VARIABLE, counters)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Number of the last acknowledged write of each thread, in a file of another file system.
pub(super) struct Counters(File);

impl Counters {
    pub(super) fn create(path: &Path, numbers: [u64; THREADS]) -> Self {
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let counters = Self(file);
        for (thread, number) in numbers.into_iter().enumerate() {
            counters.acknowledge(thread, number);
        }
        counters
    }

    /// Visible to the parent at once, even if this process is killed.
    fn acknowledge(&self, thread: usize, number: u64) {
        self.0.write_all_at(&number.to_le_bytes(), 8 * thread as u64).unwrap();
    }

    pub(super) fn read(&self) -> [u64; THREADS] {
        std::array::from_fn(|thread| {
            let mut number = [0; 8];
            self.0.read_exact_at(&mut number, 8 * thread as u64).unwrap();
            u64::from_le_bytes(number)
        })
    }
}

/// Runs `job` until a call fails.
pub(super) fn run(job: &str, dir: &Path, counters: &Path) {
    // SAFETY: no memory is passed. The child ends with the parent, and so do its mounts.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let counters = Counters(File::options().read(true).write(true).open(counters).unwrap());
    match job {
        "Plain" => write_plain(dir, &counters),
        "Store" => write_store(&open(dir, options()).unwrap(), &counters),
        _ => {
            let options = options().fs(Arc::new(NoSync::new(Arc::new(RealFs))));
            write_store(&open(dir, options).unwrap(), &counters);
        }
    }
}

fn options() -> Options {
    Options::new()
        .keyspace(small_keyspace().memtable_bytes(64 << 10).table_bytes(64 << 10))
        .log_segment_bytes(64 << 10)
        .log_bytes_max(256 << 10)
        .worker_threads(2)
}

type Store = (Db, [Keyspace; 2]);

fn open(dir: &Path, options: Options) -> Result<Store, Error> {
    let db = options.open(dir.join("db"))?;
    let keyspaces = [db.keyspace("a")?, db.keyspace("b")?];
    Ok((db, keyspaces))
}

/// Returns the value of write `number` of `thread`.
fn value(thread: usize, number: u64) -> Vec<u8> {
    let random = mix(mix(thread as u64) ^ number);
    let mut value = random.to_le_bytes().to_vec();
    value.resize(8 + (random >> 40) as usize % 900, number as u8);
    value
}

fn last_write(keyspace: &Keyspace, thread: usize) -> Result<u64, Error> {
    let last = keyspace.get(format!("last/{thread}"))?;
    Ok(last.map_or(0, |number| u64::from_le_bytes(number[..].try_into().unwrap())))
}

fn write((db, keyspaces): &Store, thread: usize, number: u64) -> Result<(), Error> {
    let mut batch = db.batch();
    for keyspace in keyspaces {
        batch.insert(keyspace, format!("{thread}/{number:08}"), value(thread, number))?;
        batch.insert(keyspace, format!("last/{thread}"), number.to_le_bytes())?;
    }
    batch.commit(Durability::Disk).map(drop)
}

fn write_store(store: &Store, counters: &Counters) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut number = last_write(&store.1[0], thread).unwrap() + 1;
                loop {
                    match write(store, thread, number) {
                        Ok(()) => {
                            counters.acknowledge(thread, number);
                            number += 1;
                        }
                        // Retries until the power is cut: workers may free space.
                        Err(error) if error.is_no_space() => {
                            thread::sleep(Duration::from_millis(1));
                        }
                        Err(_) => return,
                    }
                }
            });
        }
    });
}

/// Returns the last write of each thread in `directory`.
///
/// # Errors
///
/// A violation of the store.
pub(super) fn check_store(dir: &Path) -> Result<[u64; THREADS], String> {
    let store = open(dir, options()).map_err(|error| format!("cannot open: {error:?}"))?;
    let mut found = [0; THREADS];
    for (thread, found) in found.iter_mut().enumerate() {
        for (at, keyspace) in store.1.iter().enumerate() {
            let last = last_write(keyspace, thread).map_err(|error| format!("{error:?}"))?;
            if at > 0 && last != *found {
                return Err(format!("thread {thread}: half a batch at write {last}, not {found}"));
            }
            *found = last;
            let mut number = 0;
            for entry in keyspace.prefix(format!("{thread}/")) {
                number += 1;
                let (key, stored) = entry.map_err(|error| format!("{error:?}"))?;
                let wanted = format!("{thread}/{number:08}");
                if key != wanted.as_bytes() || stored != value(thread, number) {
                    return Err(format!("{wanted} is missing or wrong"));
                }
            }
            if number != last {
                return Err(format!(
                    "thread {thread}: {number} writes, the last of which is {last}"
                ));
            }
        }
    }
    let report = store.0.verify().map_err(|error| format!("{error:?}"))?;
    if report.is_good() { Ok(found) } else { Err(report.to_string()) }
}

fn write_plain(dir: &Path, counters: &Counters) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let path = dir.join(thread.to_string());
                let file = File::options().write(true).create_new(true).open(path).unwrap();
                File::open(dir).unwrap().sync_all().unwrap();
                for number in 1_u64.. {
                    let record = number.to_le_bytes().repeat(PLAIN_BYTES as usize / 8);
                    let written = file.write_all_at(&record, (number - 1) * PLAIN_BYTES);
                    if written.and_then(|()| file.sync_data()).is_err() {
                        return;
                    }
                    counters.acknowledge(thread, number);
                }
            });
        }
    });
}

/// Returns the last record of each thread that follows all earlier ones.
pub(super) fn check_plain(dir: &Path) -> [u64; THREADS] {
    std::array::from_fn(|thread| {
        let Ok(file) = File::open(dir.join(thread.to_string())) else { return 0 };
        let mut record = [0; PLAIN_BYTES as usize];
        let good = |number: &u64| {
            file.read_exact_at(&mut record, (number - 1) * PLAIN_BYTES).is_ok()
                && record.chunks(8).all(|part| part == number.to_le_bytes())
        };
        (1..).take_while(good).count() as u64
    })
}
