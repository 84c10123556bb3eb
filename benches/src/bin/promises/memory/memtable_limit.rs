//! The limit of memtables, adapted to the load, against the fixed limit of 1/4 of the budget.

use std::{error::Error, path::Path};

use sievedb::{Options, Stats};
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
const BUDGET: u64 = 16 * MIB;
/// Lookups for each overwrite, and overwrites. The limit changes in the first half of them, if at
/// all; the second half is measured.
const LOADS: [(u64, u64); 2] = [(200, 100_000), (10, 240_000)];

/// Bytes that a store reads from tables and writes to them.
fn io_bytes(stats: &Stats) -> f64 {
    let background = stats.background;
    let written = background.flush_bytes_written + background.compaction_bytes_written;
    (stats.table_reads.bytes + written) as f64
}

/// Measures both limits under two loads: many lookups for each overwrite, and few.
pub(super) fn measure(scale: &Scale) -> Measured {
    let mut figures = Vec::new();
    for (lookups, overwrites) in LOADS {
        let adapted = Options::new().memory_budget(BUDGET);
        let fixed = adapted.clone().memtable_bytes_max(BUDGET / 4);
        let run = |name: &str, options: Options| {
            let directory = scale.directory.join(format!("{name} {lookups}"));
            mixed(options, &directory, lookups, overwrites)
        };
        let (adapted, fixed) = (run("adapted", adapted)?, run("fixed", fixed)?);
        let limit =
            adapted.memory.memtable_bytes_max as f64 / fixed.memory.memtable_bytes_max as f64;
        let what = format!("{lookups} lookups per overwrite");
        let ratio = Figure::new(
            format!("I/O bytes with the adapted limit over those with 1/4, {what}"),
            "",
            io_bytes(&adapted) / io_bytes(&fixed),
        );
        figures.extend([
            // Merges of level 0 fall on one side of the end of a round or the other.
            ratio.at_most(1.05),
            Figure::new(format!("adapted limit over 1/4, {what}"), "", limit),
        ]);
    }
    Ok(figures)
}

/// Loads a store, then looks up entries and overwrites random ones. Returns what the
/// second half took.
fn mixed(
    options: Options,
    directory: &Path,
    lookups: u64,
    overwrites: u64,
) -> Result<Stats, Box<dyn Error>> {
    let db = options.open(directory)?;
    let keyspaces = [db.default_keyspace().clone()];
    let mut data = Data::of(DATA_OVER_BUDGET * BUDGET, VALUE_BYTES);
    data.load(&keyspaces)?;
    db.wait_for_background()?;
    let zipf = Zipf::new(data.entries, EXPONENT);
    let mut before = db.stats();
    let mut random = Random::new(21);
    for done in 0..overwrites {
        if done == overwrites / 2 {
            before = db.stats();
        }
        for _ in 0..lookups {
            data.read_number(&keyspaces, zipf.draw(&mut random))?;
        }
        let (key, value) = data.entry(random.below(data.entries));
        db.insert(key, value)?;
    }
    db.wait_for_background()?;
    Ok(db.stats().since(&before))
}
