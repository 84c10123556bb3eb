//! Fills a compacted store for benchmarks that only read it.

use sievedb::{Db, Durability};
use sievedb_workload::{Keys, value_of};

use super::progress;
use crate::error::Result;

/// Entries of a batch.
const BATCH_ENTRIES: u64 = 1000;

/// Writes all `keys` with their values, and compacts the store.
pub(crate) fn fill_compacted(db: &Db, keys: &Keys, seed: u64) -> Result<()> {
    let count = keys.len();
    let progress = progress::bar(count, "entries", "filling the store");
    let (mut key, mut at) = (Vec::new(), 0);
    while at < count {
        let mut batch = db.batch();
        for number in at..count.min(at + BATCH_ENTRIES) {
            key.clear();
            keys.append(number, &mut key);
            batch.insert(db, &key, value_of(&key, seed))?;
        }
        batch.commit(Durability::Memory)?;
        progress.inc(BATCH_ENTRIES);
        at += BATCH_ENTRIES;
    }
    db.compact()?;
    db.wait_for_background()?;
    progress.finish_and_clear();
    Ok(())
}
