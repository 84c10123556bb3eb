//! Writers that are faster than background work, and lookups beside them.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use sievedb::{Db, KeyspaceOptions, Options};
use sievedb_benches::{key, value};
use sievedb_workload::{clock::now, random::Random};

use crate::{
    allocation::{begin_counting, peak_bytes},
    figure::{Figure, Measured},
    process::{peak_resident_bytes, reset_peak_resident},
    scale::{MIB, Scale, budgeted_bytes, mib},
};

/// Budgets, in MiB.
const BUDGETS: [u64; 2] = [8, 256];

/// Bytes of a memtable: small ones make flushes and compactions lag first.
const MEMTABLE_BYTES: usize = 1 << 20;

const WRITERS: u64 = 2;

/// Time between two lookups.
const LOOKUP_PAUSE: Duration = Duration::from_millis(1);

/// Samples of the progress for each one of the memory, which takes longer.
const SAMPLES_PER_MEMORY: u64 = 8;

/// Measures inserts of random keys by two threads without a pause, and lookups of present keys
/// beside them, over those in the idle store afterwards.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let time = Duration::from_secs(scale.pick(600, 10));
    let mut figures = Vec::new();
    for budget_mib in BUDGETS {
        figures.extend(at_budget(&scale.directory.join(budget_mib.to_string()), budget_mib, time)?);
    }
    Ok(figures)
}

#[expect(clippy::disallowed_methods, reason = "the store is closed")]
fn at_budget(
    folder: &Path,
    budget_mib: u64,
    time: Duration,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let keyspace = KeyspaceOptions::new().memtable_bytes(MEMTABLE_BYTES);
    let options = Options::new().memory_budget(budget_mib * MIB).keyspace(keyspace);
    reset_peak_resident()?;
    let before_mib = mib(peak_resident_bytes()?);
    begin_counting();
    let db = options.open(folder)?;
    let written = AtomicU64::new(0);
    let Load { writes, lookups, still, budgeted_bytes } = under_load(&db, &written, time)?;
    let heap_mib = mib(peak_bytes());
    let growth_mib = mib(peak_resident_bytes()?) - before_mib;
    let tables: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    db.wait_for_background()?;
    let idle = lookups_for(&db, &written, time.min(Duration::from_secs(10)))?;
    let ms = |ns: u64| ns as f64 / 1e6;
    let name = |what: &str| format!("{what}, {budget_mib} MiB");
    let lookup_p99 = |lookups: &Histogram<u64>| lookups.value_at_quantile(0.99) as f64;
    let figures = vec![
        Figure::new(name("inserts"), "", written.load(Relaxed) as f64),
        Figure::new(name("insert, p99.9"), "ms", ms(writes.value_at_quantile(0.999))).at_most(5.0),
        Figure::new(name("insert, p99.99"), "ms", ms(writes.value_at_quantile(0.9999)))
            .at_most(25.0),
        Figure::new(name("insert, longest"), "ms", ms(writes.max())).at_most(100.0),
        Figure::new(name("longest time without an insert"), "ms", still.as_secs_f64() * 1e3)
            .at_most(1000.0),
        Figure::new(name("largest memory by the budget"), "MiB", mib(budgeted_bytes))
            .at_most(budget_mib as f64),
        Figure::new(name("largest heap by the allocator"), "MiB", heap_mib)
            .at_most(budget_mib as f64),
        // With code, stacks, and what the allocator does not return.
        Figure::new(name("growth of the resident memory"), "MiB", growth_mib),
        Figure::new(name("tables"), "", tables as f64),
        Figure::new(
            name("lookup, p99 over that of the idle store"),
            "x",
            lookup_p99(&lookups) / lookup_p99(&idle),
        )
        .at_most(3.0),
    ];
    drop(db);
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Times under load.
struct Load {
    /// In nanoseconds.
    writes: Histogram<u64>,
    /// In nanoseconds.
    lookups: Histogram<u64>,
    /// The longest time in which no insert ended.
    still: Duration,
    /// The largest sample.
    budgeted_bytes: u64,
}

fn under_load(db: &Db, written: &AtomicU64, time: Duration) -> Result<Load, Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = |writer: u64| {
            let is_over = &is_over;
            move || -> sievedb::Result<Histogram<u64>> {
                let mut times = histogram();
                let mut number = writer;
                while !is_over.load(Relaxed) {
                    let begun = now();
                    db.insert(key(number), value(number))?;
                    times.saturating_record(begun.elapsed().as_nanos() as u64);
                    number += WRITERS;
                    written.fetch_add(1, Relaxed);
                }
                Ok(times)
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(write(writer))).collect();
        let watch = scope.spawn(|| watch(db, written, &is_over));
        let lookups = lookups_for(db, written, time);
        is_over.store(true, Relaxed);
        let mut writes = histogram();
        for writer in writers {
            writes.add(writer.join().expect("a failing write returns its error")?)?;
        }
        let (still, budgeted_bytes) = watch.join().expect("nothing fails");
        Ok(Load { writes, lookups: lookups?, still, budgeted_bytes })
    })
}

/// Returns the longest time in which `written` does not change, and the largest memory.
fn watch(db: &Db, written: &AtomicU64, is_over: &AtomicBool) -> (Duration, u64) {
    let (mut last, mut since, mut longest) = (written.load(Relaxed), now(), Duration::ZERO);
    let (mut samples, mut bytes_max) = (0_u64, 0);
    while !is_over.load(Relaxed) {
        thread::sleep(LOOKUP_PAUSE);
        samples += 1;
        if samples.is_multiple_of(SAMPLES_PER_MEMORY) {
            bytes_max = bytes_max.max(budgeted_bytes(db));
        }
        let seen = written.load(Relaxed);
        if seen != last {
            (last, since) = (seen, now());
        }
        longest = longest.max(since.elapsed());
    }
    (longest, bytes_max)
}

/// Returns the times of paced lookups of keys that were written, in nanoseconds.
fn lookups_for(db: &Db, written: &AtomicU64, time: Duration) -> sievedb::Result<Histogram<u64>> {
    let (mut random, mut times) = (Random::new(20), histogram());
    let start = now();
    while start.elapsed() < time {
        thread::sleep(LOOKUP_PAUSE);
        // Both writers are beyond half of their common count, unless one is starved.
        let number = random.below(written.load(Relaxed) / 2 + 1);
        let begun = now();
        let found = db.get(key(number))?;
        times.saturating_record(begun.elapsed().as_nanos() as u64);
        assert!(found.is_none_or(|found| *found == value(number)), "a wrong value");
    }
    Ok(times)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds")
}
