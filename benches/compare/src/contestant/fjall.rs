//! fjall.
//!
//! The advice is that of the documentation of its options: a hash index in data blocks. Filters and
//! indexes are pinned, one block for each table. Its filters are the default ones: 10 bits per key,
//! more on level 0. So are its blocks: LZ4 from level 2 on.
//!
//! A memtable has a 16th of the total, at most its default size, and the cache the rest. The
//! documentation recommends 20 to 25 % of the memory for the cache, or more if the data fit. It
//! leaves the rest to the page cache, which no total includes here: more is better for fjall.

use std::{ops::RangeInclusive, path::Path};

use fjall::{
    Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::{HashRatioPolicy, PartitioningPolicy, PinningPolicy},
};

use super::{Engine, Order, Reader, Tuning, copy_value, counted};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// Buckets of the hash index in a data block, per entry. As advised for RocksDB: 1 / 0.75.
const HASH_RATIO: f32 = 1.33;

/// A memtable has one of so many bytes of the total.
const MEMTABLE_SHARE: u64 = 16;

/// The least and the default size of a memtable.
const MEMTABLE_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;

/// An open store.
pub(crate) struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

fn memtable_bytes(settings: &Settings) -> u64 {
    (settings.total_bytes / MEMTABLE_SHARE).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end())
}

fn advised(settings: &Settings) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes(settings))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_RATIO))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
}

impl Engine for Fjall {
    type Reader<'a> = &'a Keyspace;

    fn open(path: &Path, tuning: Tuning, settings: &Settings) -> Result<Self> {
        let builder = Database::builder(path);
        let database = match tuning {
            Tuning::Advised => {
                builder.cache_size(settings.total_bytes - memtable_bytes(settings)).open()?
            }
            Tuning::Defaults => builder.open()?,
        };
        let keyspace = database.keyspace("default", || match tuning {
            Tuning::Advised => advised(settings),
            Tuning::Defaults => KeyspaceCreateOptions::default(),
        })?;
        Ok(Self { database, keyspace })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        if let [(key, value)] = entries {
            return Ok(self.keyspace.insert(&key[..], &value[..])?);
        }
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.insert(&self.keyspace, &key[..], &value[..]);
        }
        Ok(batch.commit()?)
    }

    fn write_synced(&self, (key, value): &Entry) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.keyspace, &key[..], &value[..]);
        Ok(batch.commit()?)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        if let [key] = keys {
            return Ok(self.keyspace.remove(&key[..])?);
        }
        let mut batch = self.database.batch();
        for key in keys {
            batch.remove(&self.keyspace, &key[..]);
        }
        Ok(batch.commit()?)
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn reader(&self) -> Result<&Keyspace> {
        Ok(&self.keyspace)
    }

    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        match order {
            Order::Ascending => show(self.keyspace.iter(), visit),
            Order::Descending => show(self.keyspace.iter().rev(), visit),
        }
    }

    fn shape(&self) -> Result<String> {
        let (level_0, all) = (self.keyspace.l0_table_count(), self.keyspace.table_count());
        let below = all.saturating_sub(level_0) as u64;
        Ok(format!("L0 {}, below {}", counted(level_0 as u64, "table"), counted(below, "table")))
    }
}

/// Shows `entries` to `visit`.
fn show(entries: impl Iterator<Item = Guard>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.into_inner()?;
        visit(&key, &value);
    }
    Ok(())
}

impl Reader for &Keyspace {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = Keyspace::get(self, key)?;
        Ok(found.map(|found| copy_value(&found, value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        for key in keys {
            answers.push(self.contains_key(key)?);
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        show(self.range(&key[..]..).take(entries), visit)
    }

    fn let_go(&mut self) {}
}
