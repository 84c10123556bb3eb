//! The block cache's share of the budget in a read-only phase.

use std::error::Error;

use sievedb::{Db, Durability, Keyspace, Options};
use sievedb_workload::random::Random;

use super::data::Data;
use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

/// Large values: filters and indexes of the data are small against the budget.
const VALUE_BYTES: usize = 1_000;
const BATCH_ENTRIES: u64 = 100;
const KEYSPACES: u64 = 200;

/// Least length of the read-only phase, which also has twice as many lookups as entries.
const READ_SECONDS: f64 = 5.0;
/// Least share of the block cache at its end.
const CACHE_SHARE_MIN: f64 = 0.88;

type Prepared = Result<Vec<Keyspace>, Box<dyn Error>>;

/// After inserts one by one.
pub(super) fn after_load(scale: &Scale) -> Measured {
    measure(scale, "load one by one", |db, data| {
        let keyspaces = vec![db.default_keyspace().clone()];
        data.load(&keyspaces)?;
        Ok(keyspaces)
    })
}

/// After batches of 100 KB.
pub(super) fn after_batches(scale: &Scale) -> Measured {
    measure(scale, "batches", |db, data| {
        for first in (0..data.entries).step_by(BATCH_ENTRIES as usize) {
            let mut batch = db.batch();
            for number in first..data.entries.min(first + BATCH_ENTRIES) {
                let (key, value) = data.entry(number);
                batch.insert(db, key, value)?;
            }
            batch.commit(Durability::OsBuffer)?;
        }
        Ok(vec![db.default_keyspace().clone()])
    })
}

/// After a load, and then as many reads and overwrites in turn.
pub(super) fn after_mixed(scale: &Scale) -> Measured {
    measure(scale, "reads and writes", |db, data| {
        let keyspaces = vec![db.default_keyspace().clone()];
        data.load(&keyspaces)?;
        let mut random = Random::new(18);
        for _ in 0..data.entries {
            data.read_one(&keyspaces, &mut random)?;
            let (key, value) = data.entry(random.below(data.entries));
            db.insert(key, value)?;
        }
        Ok(keyspaces)
    })
}

/// After inserts one by one into 200 keyspaces in turn.
pub(super) fn after_keyspaces(scale: &Scale) -> Measured {
    measure(scale, "200 keyspaces", |db, data| {
        let keyspaces = (0..KEYSPACES)
            .map(|number| db.keyspace(&format!("keyspace {number}")))
            .collect::<Result<Vec<_>, _>>()?;
        data.load(&keyspaces)?;
        Ok(keyspaces)
    })
}

/// Prepares a store with data of 1.5 times the budget, reads random entries for five seconds or
/// more, and reports the shares of the budget.
fn measure(scale: &Scale, what: &str, prepare: fn(&Db, &mut Data) -> Prepared) -> Measured {
    let mut figures = Vec::new();
    for &budget_mib in if scale.small { &[64][..] } else { &[64, 256] } {
        let budget = budget_mib * MIB;
        let path = scale.directory.join(budget_mib.to_string());
        let db = Options::new().memory_budget(budget).open(path)?;
        let mut data = Data::of(budget / 2 * 3, VALUE_BYTES);
        let keyspaces = prepare(&db, &mut data)?;
        data.read(&keyspaces, READ_SECONDS, 2 * data.entries, &mut Random::new(19))?;
        let memory = db.stats().memory;
        let share = |name: &str, bytes: u64| {
            let name = format!("{name} over {budget_mib} MiB, 5 s of reads after {what}");
            Figure::new(name, "", bytes as f64 / budget as f64)
        };
        figures.push(share("block cache", memory.block_cache_bytes).at_least(CACHE_SHARE_MIN));
        figures.push(share("filters and indexes", memory.filter_bytes + memory.index_bytes));
        figures.push(share("memtables", memory.memtable_bytes));
        figures.push(share("bookkeeping", memory.bookkeeping_bytes));
        figures.push(share("writing", memory.writing_bytes));
    }
    Ok(figures)
}
