//! Resident memory of the process against the budget.

use sievedb::{Db, Options};
use sievedb_workload::random::Random;

use super::data::Data;
use crate::{
    crawler::{self, crawl},
    figure::{Figure, Measured},
    process::{field_bytes, peak_resident_bytes, reset_peak_resident},
    scale::{MIB, RESIDENT_ALLOWANCE_MIB, Scale, mib},
};

const VALUE_BYTES: usize = 100;
const KEYSPACES: u64 = 1_000;

/// Data for budgets up to [`SMALL_BUDGET_MIB_MAX`], as a multiple of the budget.
const DATA_PER_BUDGET: u64 = 4;
/// The same with small inputs.
const DATA_PER_BUDGET_SMALL: u64 = 2;
/// Budgets up to this are exceeded several times; only these are measured with small inputs.
const SMALL_BUDGET_MIB_MAX: u64 = 64;
/// Data for larger budgets.
const DATA_BYTES: u64 = 600_000_000;

/// Short scans, and entries that each of them reads.
const SHORT_SCANS: u64 = 2_000;
const SHORT_SCAN_ENTRIES: usize = 50;

/// Bytes of the data for a budget; `None` if the scale leaves it out.
fn data_bytes(budget_mib: u64, scale: &Scale) -> Option<u64> {
    match budget_mib {
        ..=SMALL_BUDGET_MIB_MAX => {
            Some(budget_mib * MIB * scale.pick(DATA_PER_BUDGET, DATA_PER_BUDGET_SMALL))
        }
        _ => (!scale.small).then_some(DATA_BYTES),
    }
}

fn open(budget_mib: u64, scale: &Scale) -> sievedb::Result<Db> {
    Options::new().memory_budget(budget_mib * MIB).open(scale.directory.join("db"))
}

/// The peak of a phase with its bound.
fn peak(budget_mib: u64, phase: &str) -> Result<Figure, Box<dyn std::error::Error>> {
    let figure = Figure::new(
        format!("resident at {budget_mib} MiB, {phase}"),
        "MiB",
        mib(peak_resident_bytes()?),
    );
    Ok(figure.at_most(budget_mib as f64 + RESIDENT_ALLOWANCE_MIB))
}

/// Loads entries one by one, compacts, and scans. The peak of a phase does not count in the next,
/// but memory that the allocator keeps does.
pub(super) fn phases<const BUDGET_MIB: u64>(scale: &Scale) -> Measured {
    let Some(bytes) = data_bytes(BUDGET_MIB, scale) else { return Ok(Vec::new()) };
    let mut data = Data::of(bytes, VALUE_BYTES);
    let idle = mib(field_bytes("/proc/self/status", "VmRSS:")?);
    let mut figures = vec![Figure::new(
        format!("resident before a store of {BUDGET_MIB} MiB is opened"),
        "MiB",
        idle,
    )];
    let db = open(BUDGET_MIB, scale)?;
    data.load(&[db.default_keyspace().clone()])?;
    figures.push(peak(BUDGET_MIB, "load one by one")?);

    reset_peak_resident()?;
    db.compact()?;
    db.wait_for_background()?;
    figures.push(peak(BUDGET_MIB, "compaction")?);

    reset_peak_resident()?;
    scan(&db, &mut data)?;
    figures.push(peak(BUDGET_MIB, "scans")?);
    Ok(figures)
}

/// Reads all entries in both directions, and then short ranges.
fn scan(db: &Db, data: &mut Data) -> Result<(), Box<dyn std::error::Error>> {
    let forward = db.iter().try_fold(0, |count, entry| entry.map(|_| count + 1))?;
    let backward = db.iter().rev().try_fold(0, |count, entry| entry.map(|_| count + 1))?;
    if [forward, backward] != [data.entries; 2] {
        return Err(format!("scans found {forward} and {backward} entries").into());
    }
    let mut random = Random::new(16);
    for _ in 0..SHORT_SCANS {
        let (key, _) = data.entry(random.below(data.entries));
        for entry in db.range(&key[..]..).take(SHORT_SCAN_ENTRIES) {
            entry?;
        }
    }
    Ok(())
}

/// Runs a crawler: `contains_many` of a batch of URLs, then an insert of the absent ones.
pub(super) fn batches<const BUDGET_MIB: u64>(scale: &Scale) -> Measured {
    let Some(bytes) = data_bytes(BUDGET_MIB, scale) else { return Ok(Vec::new()) };
    let db = open(BUDGET_MIB, scale)?;
    crawl(&db, bytes / crawler::ENTRY_BYTES, |_| Ok(()))?;
    Ok(vec![peak(BUDGET_MIB, "batches with contains_many")?])
}

/// Creates 1,000 keyspaces, writes into all of them in turn, and reads random entries.
pub(super) fn keyspaces<const BUDGET_MIB: u64>(scale: &Scale) -> Measured {
    let Some(bytes) = data_bytes(BUDGET_MIB, scale) else { return Ok(Vec::new()) };
    let mut data = Data::of(bytes, VALUE_BYTES);
    let db = open(BUDGET_MIB, scale)?;
    let keyspaces = (0..KEYSPACES)
        .map(|number| db.keyspace(&format!("keyspace {number}")))
        .collect::<Result<Vec<_>, _>>()?;
    data.load(&keyspaces)?;
    let mut random = Random::new(17);
    for _ in 0..data.entries / 10 {
        data.read_one(&keyspaces, &mut random)?;
    }
    let stats = db.stats();
    let (done, writes) = (stats.background, stats.writes);
    let rewritten = done.compaction_bytes_written as f64 / done.flush_bytes_written as f64;
    let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
    let named = |what: &str| format!("{what} at {BUDGET_MIB} MiB, 1,000 keyspaces");
    Ok(vec![
        peak(BUDGET_MIB, "1,000 keyspaces")?,
        Figure::new(named("bytes compacted for each byte flushed"), "bytes", rewritten),
        Figure::new(named("live tables"), "tables", tables as f64),
        Figure::new(named("writes delayed"), "s", writes.stalled_us as f64 / 1e6),
    ])
}
