//! The least budget: the longest insert of tiny entries, and the memory of entries as long as a
//! quarter of the budget.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Options, StallReason, options::MEMORY_BUDGET_MIN};
use sievedb_workload::{clock::now, random::Random};

use crate::{
    figure::{Figure, Measured},
    process::{peak_resident_bytes, reset_peak_resident},
    scale::{MIB, RESIDENT_ALLOWANCE_MIB, Scale, budgeted_bytes, mib},
};

/// Bytes of a tiny value, at most.
const TINY_BYTES_MAX: u64 = 10;
/// Threads, and entries of a write.
const LOADS: [(u64, u64); 4] = [(1, 1), (4, 1), (1, 100), (4, 100)];
/// Pause between two samples.
const SAMPLE_PAUSE: Duration = Duration::from_millis(2);
/// A time without a write from which on its cause is looked for.
const STILL: Duration = Duration::from_millis(20);

const LONG_BYTES: usize = MEMORY_BUDGET_MIN as usize / 4;
/// A write may take 3/4 of this.
const LONG_MEMTABLE_BYTES: u64 = 3 * MIB;
const LONG_KEYS: u64 = 16;

/// Inserts tiny entries for some time, alone and in batches, by one and by four threads. Then
/// writes, overwrites and compacts long entries.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let time = Duration::from_secs(scale.pick(60, 5));
    let mut figures = Vec::new();
    for (threads, entries) in LOADS {
        let folder = scale.directory.join(format!("{threads} {entries}"));
        let kind = match entries {
            1 => "single inserts".to_owned(),
            _ => format!("batches of {entries}"),
        };
        let name = format!("tiny entries, {kind}, threads: {threads}");
        figures.extend(tiny(&folder, &name, (threads, entries), time)?);
    }
    figures.extend(long(&scale.directory.join("long"), scale.pick(12, 3))?);
    Ok(figures)
}

/// The largest samples of a store under load.
#[derive(Debug, Default)]
struct Samples {
    /// Memory by the accounting of the budget.
    bytes: u64,
    /// The longest time in which no write ended, and what a write would wait for in it.
    still: (Duration, Option<StallReason>),
}

impl Samples {
    fn take(&mut self, db: &Db) {
        self.bytes = self.bytes.max(budgeted_bytes(db));
    }

    /// Samples until `is_over`. `written` counts writes.
    fn of_load(db: &Db, written: &AtomicU64, is_over: &AtomicBool) -> Self {
        let (mut samples, mut reason) = (Self::default(), None);
        let (mut last, mut since) = (written.load(Relaxed), now());
        while !is_over.load(Relaxed) {
            thread::sleep(SAMPLE_PAUSE);
            samples.take(db);
            let seen = written.load(Relaxed);
            if seen != last {
                (last, since, reason) = (seen, now(), None);
            }
            let still = since.elapsed();
            if still > STILL && reason.is_none() {
                reason = match db.try_insert("", "") {
                    Err(sievedb::Error::WouldStall { reason, .. }) => Some(reason),
                    _ => None,
                };
            }
            if still > samples.still.0 {
                samples.still = (still, reason);
            }
        }
        samples
    }
}

#[expect(clippy::disallowed_methods, reason = "the store is closed")]
fn tiny(
    folder: &Path,
    name: &str,
    (threads, entries): (u64, u64),
    time: Duration,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    reset_peak_resident()?;
    let before_mib = mib(peak_resident_bytes()?);
    let db = Options::new().memory_budget(MEMORY_BUDGET_MIN).open(folder)?;
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (longest, samples) = thread::scope(|scope| {
        let write = |thread| {
            let (db, written) = (&db, &written);
            move || insert_for(db, written, thread, entries, time)
        };
        let writers: Vec<_> = (0..threads).map(|thread| scope.spawn(write(thread))).collect();
        let sampler = scope.spawn(|| Samples::of_load(&db, &written, &is_over));
        let longest = writers.into_iter().map(|it| it.join().expect("it returns its error"));
        let longest = longest.collect::<sievedb::Result<Vec<_>>>();
        is_over.store(true, Relaxed);
        (longest, sampler.join().expect("nothing fails"))
    });
    let longest = longest?.into_iter().max().unwrap_or_default();
    let growth_mib = mib(peak_resident_bytes()?) - before_mib;
    let figure = |what: &str, unit, value| Figure::new(format!("{name}: {what}"), unit, value);
    let budget_mib = mib(MEMORY_BUDGET_MIN);
    let writes = db.stats().writes;
    let (still, reason) = samples.still;
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let still_name = format!("longest time without a write{reason}");
    let thousands = written.load(Relaxed) as f64 * entries as f64 / 1e3;
    let figures = vec![
        figure("entries written", "thousand", thousands),
        figure("longest write", "ms", longest.as_secs_f64() * 1e3).at_most(250.0),
        figure(&still_name, "ms", still.as_secs_f64() * 1e3),
        figure("writes delayed, all threads", "s", writes.stalled_us as f64 / 1e6),
        figure("largest memory by the budget", "MiB", mib(samples.bytes)).at_most(budget_mib),
        figure("growth of the resident memory", "MiB", growth_mib)
            .at_most(budget_mib + RESIDENT_ALLOWANCE_MIB),
        figure("tables", "", db.stats().keyspaces[0].tables as f64),
    ];
    drop(db);
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Writes tiny entries in random order for `time`. Returns the time of the longest write.
fn insert_for(
    db: &Db,
    written: &AtomicU64,
    thread: u64,
    entries: u64,
    time: Duration,
) -> sievedb::Result<Duration> {
    let (mut random, mut longest) = (Random::new(80 + thread), Duration::ZERO);
    let start = now();
    let mut batch = db.batch();
    while start.elapsed() < time {
        let mut entry = || {
            let value = [b'v'; TINY_BYTES_MAX as usize];
            (random.next().to_be_bytes(), value, random.below(TINY_BYTES_MAX + 1) as usize)
        };
        let begun = now();
        if entries == 1 {
            let (key, value, length) = entry();
            db.insert(key, &value[..length])?;
        } else {
            for _ in 0..entries {
                let (key, value, length) = entry();
                batch.insert(db, key, &value[..length])?;
            }
            batch.commit(Durability::OsBuffer)?;
        }
        longest = longest.max(begun.elapsed());
        written.fetch_add(1, Relaxed);
    }
    Ok(longest)
}

/// Overwrites long entries that do not compress in random order, `rounds` times, and compacts.
fn long(folder: &Path, rounds: u64) -> Result<Vec<Figure>, Box<dyn Error>> {
    reset_peak_resident()?;
    let before_mib = mib(peak_resident_bytes()?);
    let options = Options::new().memory_budget(MEMORY_BUDGET_MIN);
    let db = options.memtable_bytes_max(LONG_MEMTABLE_BYTES).open(folder)?;
    let is_over = AtomicBool::new(false);
    let (done, samples) = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = Samples::default();
            while !is_over.load(Relaxed) {
                samples.take(&db);
                thread::sleep(SAMPLE_PAUSE);
            }
            samples
        });
        let done = overwrite_long(&db, rounds);
        is_over.store(true, Relaxed);
        (done, sampler.join().expect("nothing fails"))
    });
    done?;
    let growth_mib = mib(peak_resident_bytes()?) - before_mib;
    let name = |what: &str| format!("entries of {} MiB: {what}", mib(LONG_BYTES as u64));
    let budget_mib = mib(MEMORY_BUDGET_MIN);
    // The value of the caller, and its encoded write.
    let of_caller_mib = 2.0 * mib(LONG_BYTES as u64);
    Ok(vec![
        Figure::new(name("largest memory by the budget"), "MiB", mib(samples.bytes))
            .at_most(budget_mib),
        Figure::new(name("growth of the resident memory"), "MiB", growth_mib)
            .at_most(budget_mib + RESIDENT_ALLOWANCE_MIB + of_caller_mib),
    ])
}

fn overwrite_long(db: &Db, rounds: u64) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(81);
    let mut seeds = [0; LONG_KEYS as usize];
    let mut value = vec![0; LONG_BYTES];
    for _ in 0..rounds * LONG_KEYS {
        let (key, seed) = (random.below(LONG_KEYS), random.next());
        fill(&mut value, seed);
        db.insert(key.to_be_bytes(), &value)?;
        seeds[key as usize] = seed;
    }
    db.compact()?;
    db.wait_for_background()?;
    for (key, &seed) in (0..LONG_KEYS).zip(&seeds).filter(|(_, seed)| **seed != 0) {
        fill(&mut value, seed);
        let is_last = db.get_with(key.to_be_bytes(), |found| found == value)?;
        assert_eq!(is_last, Some(true), "the value is the last one");
    }
    Ok(())
}

/// Fills `value` with bytes that do not compress.
fn fill(value: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for part in value.chunks_mut(size_of::<u64>()) {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    }
}
