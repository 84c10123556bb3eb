//! Resident memory of the process against the budget.

use std::error::Error;

use sievedb::{Db, Durability, Options};
use sievedb_workload::KeySet;

use super::{MIB, RESIDENT_ALLOWANCE_MIB, mib};
use crate::{
    figure::{Figure, Measured},
    process::peak_resident_bytes,
    scale::Scale,
};

const BUDGET_MIB: u64 = 32;
const VALUE_BYTES: usize = 100;
const BATCH_ENTRIES: usize = 1_000;

/// Runs a crawler at 32 MiB: `contains_many` of a batch of URLs, then an insert of the absent ones.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let db = Options::new().memory_budget(BUDGET_MIB * MIB).open(scale.directory.join("db"))?;
    let urls = scale.pick(2_000_000, 200_000);
    crawl(&db, urls, |_| Ok(()))?;
    Ok(vec![
        Figure::new("resident at 32 MiB, crawler", "MiB", mib(peak_resident_bytes()?))
            .at_most(BUDGET_MIB as f64 + RESIDENT_ALLOWANCE_MIB),
    ])
}

/// Visits `urls` URLs in batches: looks them up, and inserts those that are absent. Calls
/// `after_batch` after each of them.
pub(super) fn crawl(
    db: &Db,
    urls: u64,
    after_batch: impl Fn(&Db) -> sievedb::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let keys = KeySet::urls(14, urls, 0).stored;
    let mut order = keys.shuffled(14);
    loop {
        let indexes: Vec<u64> = order.by_ref().take(BATCH_ENTRIES).collect();
        if indexes.is_empty() {
            return Ok(());
        }
        let batch_keys: Vec<Vec<u8>> = indexes
            .iter()
            .map(|&index| {
                let mut key = Vec::new();
                keys.append(index, &mut key);
                key
            })
            .collect();
        let present = db.contains_many(&batch_keys)?;
        let mut batch = db.batch();
        for (key, _) in batch_keys.iter().zip(present).filter(|&(_, present)| !present) {
            batch.insert(db, key, [b'v'; VALUE_BYTES])?;
        }
        batch.commit(Durability::OsBuffer)?;
        after_batch(db)?;
    }
}
