//! Bulk load of sorted entries, over a load in batches.

use std::{error::Error, path::Path};

use sievedb::{Db, Durability, Options};
use sievedb_benches::value;
use sievedb_workload::clock::{now, process_cpu_time};

use super::median;
use crate::{
    figure::{Figure, Measured},
    scale::Scale,
};

/// Entries of a batch.
const BATCH: u64 = 1000;

/// Memory of each store, in bytes.
const BUDGET_BYTES: u64 = 1228 << 20;

/// A prime that divides no number of entries: its multiples, modulo that number, are all keys in a
/// scattered order.
const STEP: u64 = 982_451_653;

/// Measures loads of the same keys into new stores, until all is in tables and no compaction is
/// due. Each round measures all; ratios are medians over rounds.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let entries = scale.pick(10_000_000, 200_000);
    let (mut faster, mut cheaper) = (Vec::new(), Vec::new());
    let mut faster_than_scattered = Vec::new();
    for round in 0..scale.pick(3, 1) {
        let folder = |name: &str| scale.directory.join(format!("{name}{round}"));
        let batches = load(&folder("batches"), entries, |db| in_batches(db, 0..entries))?;
        let scattered = (0..entries).map(|index| index * STEP % entries);
        let scattered = load(&folder("scattered"), entries, |db| in_batches(db, scattered))?;
        let ingest = load(&folder("ingest"), entries, |db| {
            db.ingest((0..entries).map(|index| (index.to_be_bytes(), value(index))))?;
            Ok(())
        })?;
        faster.push(batches.seconds / ingest.seconds);
        cheaper.push(batches.cpu_seconds / ingest.cpu_seconds);
        faster_than_scattered.push(scattered.seconds / ingest.seconds);
    }
    Ok(vec![
        Figure::new("ingest of sorted entries, speed over batches", "x", median(faster))
            .at_least(4.0),
        Figure::new(
            "ingest of sorted entries, speed over batches in scattered order",
            "x",
            median(faster_than_scattered),
        ),
        Figure::new("batches, CPU of all threads over that of an ingest", "x", median(cheaper)),
    ])
}

struct Cost {
    seconds: f64,
    cpu_seconds: f64,
}

/// Measures `write`, checks the entries, and removes the store.
#[expect(clippy::disallowed_methods, reason = "the store is closed")]
fn load(
    folder: &Path,
    entries: u64,
    write: impl FnOnce(&Db) -> sievedb::Result<()>,
) -> Result<Cost, Box<dyn Error>> {
    let db = Options::new().memory_budget(BUDGET_BYTES).open(folder)?;
    let (start, cpu) = (now(), process_cpu_time());
    write(&db)?;
    db.flush()?;
    db.wait_for_background()?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = (process_cpu_time() - cpu).as_secs_f64();
    assert_eq!(db.len()?, entries, "all entries are stored");
    drop(db);
    std::fs::remove_dir_all(folder)?;
    Ok(Cost { seconds, cpu_seconds })
}

fn in_batches(db: &Db, order: impl Iterator<Item = u64>) -> sievedb::Result<()> {
    let mut batch = db.batch();
    for index in order {
        batch.insert(db, index.to_be_bytes(), value(index))?;
        if batch.len() as u64 == BATCH {
            batch.commit(Durability::OsBuffer)?;
        }
    }
    batch.commit(Durability::OsBuffer).map(drop)
}
