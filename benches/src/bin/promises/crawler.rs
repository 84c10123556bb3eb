//! A crawler: batches of URLs are looked up, and the absent ones inserted.

use std::error::Error;

use sievedb::{Db, Durability};
use sievedb_workload::KeySet;

const VALUE_BYTES: usize = 100;
const BATCH_ENTRIES: usize = 1_000;

/// Bytes of an entry of the crawler on average: a URL and its value.
pub(crate) const ENTRY_BYTES: u64 = 77 + VALUE_BYTES as u64;

/// Visits `urls` URLs in batches: looks them up, and inserts those that are absent. Calls
/// `after_batch` after each of them.
pub(crate) fn crawl(
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
