//! The limit of memtables, adapted to the load, against the fixed limit of 1/4 of the budget.

use std::{error::Error, path::Path};

use sievedb::{Keyspace, Options, Stats};
use sievedb_workload::{random::Random, zipf::Zipf};

use super::data::Data;
use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

const VALUE_BYTES: usize = 100;
/// Data over the budget.
const DATA_OVER_BUDGET: u64 = 2;
/// Exponent of Zipf's law for lookups.
const EXPONENT: f64 = 0.99;

/// Bytes that a store reads from tables and writes to them.
fn io_bytes(stats: &Stats) -> f64 {
    let background = stats.background;
    let written = background.flush_bytes_written + background.compaction_bytes_written;
    (stats.table_reads.bytes + written) as f64
}

/// Measures both limits under two loads: many lookups for each overwrite, and few.
pub(super) fn measure(scale: &Scale) -> Measured {
    let budget = if scale.small { 16 } else { 32 } * MIB;
    let mut figures = Vec::new();
    for lookups in [20, 1] {
        let adapted = Options::new().memory_budget(budget);
        let fixed = adapted.clone().memtable_bytes_max(budget / 4);
        let run = |name: &str, options: Options| {
            let directory = scale.directory.join(format!("{name} {lookups}"));
            mixed(options, &directory, budget, lookups)
        };
        let (adapted, fixed) = (run("adapted", adapted)?, run("fixed", fixed)?);
        let lowered = adapted.moves.memtable_limit_lowered;
        let what = format!("{lookups} lookups per overwrite");
        let ratio = Figure::new(
            format!("I/O bytes with the adapted limit over those with 1/4, {what}"),
            "",
            io_bytes(&adapted) / io_bytes(&fixed),
        );
        figures.extend([
            // Merges of level 0 fall on one side of the end of a round or the other.
            ratio.at_most(1.05),
            Figure::new(format!("limit lowered, {what}"), "times", lowered as f64),
        ]);
    }
    Ok(figures)
}

/// Loads a store, then looks up entries and overwrites random ones. Returns what that took.
fn mixed(
    options: Options,
    directory: &Path,
    budget: u64,
    lookups: u64,
) -> Result<Stats, Box<dyn Error>> {
    let db = options.open(directory)?;
    let keyspaces = [Keyspace::clone(&db)];
    let mut data = Data::of(DATA_OVER_BUDGET * budget, VALUE_BYTES);
    data.load(&keyspaces)?;
    db.wait_for_background()?;
    let zipf = Zipf::new(data.entries, EXPONENT);
    let before = db.stats();
    let mut random = Random::new(21);
    // Overwrites take four times the budget in memtables.
    let overwrites = 4 * budget / (VALUE_BYTES as u64 + 100) / if lookups > 1 { 2 } else { 1 };
    for _ in 0..overwrites {
        for _ in 0..lookups {
            data.read_number(&keyspaces, zipf.draw(&mut random))?;
        }
        let (key, value) = data.entry(random.below(data.entries));
        db.insert(key, value)?;
    }
    db.wait_for_background()?;
    Ok(db.stats().since(&before))
}
