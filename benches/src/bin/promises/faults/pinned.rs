//! Flushed memtables that compactions keep, beyond the budget.

use sievedb::{Durability, Options};
use sievedb_workload::random::Random;

use crate::{
    figure::{Figure, Measured},
    process::peak_resident_bytes,
    scale::{MIB, RESIDENT_ALLOWANCE_MIB, Scale, mib},
};

const BUDGET_MIB: u64 = 64;
const VALUE_BYTES: usize = 4 << 10;
const BATCH_BYTES: u64 = MIB;

/// Writes batches of 1 MiB at a budget of 64 MiB, without a reader.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let options = Options::new().memory_budget(BUDGET_MIB * MIB);
    let db = options.open(scale.directory.join("db"))?;
    let mut random = Random::new(9);
    let mut value = vec![0; VALUE_BYTES];
    let (mut pinned_max, mut pinned_sum) = (0, 0);
    let batches = scale.pick(1_000, 200);
    for _ in 0..batches {
        let mut batch = db.batch();
        for _ in 0..BATCH_BYTES / VALUE_BYTES as u64 {
            value.fill_with(|| random.next() as u8);
            batch.insert(&db, random.next().to_be_bytes(), &value)?;
        }
        batch.commit(Durability::OsBuffer)?;
        let pinned = db.stats().memory.pinned_bytes;
        pinned_max = pinned_max.max(pinned);
        pinned_sum += pinned;
    }
    Ok(vec![
        Figure::new("pinned without a reader, largest", "MiB", mib(pinned_max)).at_most(8.4),
        Figure::new("pinned without a reader, mean", "MiB", mib(pinned_sum) / batches as f64),
        Figure::new("resident at 64 MiB, batches of 1 MiB", "MiB", mib(peak_resident_bytes()?))
            .at_most(BUDGET_MIB as f64 + RESIDENT_ALLOWANCE_MIB),
    ])
}
