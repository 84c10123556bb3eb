//! SieveDB: `memory_budget` is the total, and nothing else is set.

use std::path::Path;

use sievedb::{Db, Durability, Keyspace, Options, Range};

use super::{Engine, Order, Reader, Tuning, copy_value, counted};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// An open store.
#[derive(Debug)]
pub(crate) struct SieveDb {
    db: Db,
}

impl Engine for SieveDb {
    type Reader<'a> = SieveDbReader<'a>;

    fn open(path: &Path, tuning: Tuning, settings: &Settings) -> Result<Self> {
        let options = match tuning {
            Tuning::Advised => Options::new().memory_budget(settings.total_bytes),
            Tuning::Defaults => Options::new(),
        };
        Ok(Self { db: options.open(path)? })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        if let [(key, value)] = entries {
            return Ok(self.db.insert(key, value)?);
        }
        let mut batch = self.db.batch();
        for (key, value) in entries {
            batch.insert(&self.db, key, value)?;
        }
        batch.commit(Durability::OsBuffer)?;
        Ok(())
    }

    fn write_synced(&self, (key, value): &Entry) -> Result<()> {
        let mut batch = self.db.batch();
        batch.insert(&self.db, key, value)?;
        batch.commit(Durability::Disk)?;
        Ok(())
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        if let [key] = keys {
            return Ok(self.db.remove(key)?);
        }
        let mut batch = self.db.batch();
        for key in keys {
            batch.remove(&self.db, key)?;
        }
        batch.commit(Durability::OsBuffer)?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.persist(Durability::Disk)?)
    }

    fn reader(&self) -> Result<SieveDbReader<'_>> {
        Ok(SieveDbReader { keyspace: self.db.default_keyspace(), range: None })
    }

    fn scan(&self, order: Order, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut range = self.db.iter();
        loop {
            let entry = match order {
                Order::Ascending => range.next_ref()?,
                Order::Descending => range.next_back_ref()?,
            };
            let Some(entry) = entry else { return Ok(()) };
            visit(entry.key(), entry.value());
        }
    }

    fn shape(&self) -> Result<String> {
        let stats = self.db.stats();
        let levels = stats.levels.iter().enumerate().filter(|(_, level)| level.tables > 0);
        let levels = levels.map(|(number, level)| {
            let (runs, tables) = (counted(level.runs, "run"), counted(level.tables, "table"));
            format!("L{number} {runs} of {tables}")
        });
        Ok(levels.collect::<Vec<_>>().join(", "))
    }

    fn data_block_requests(&self) -> Option<u64> {
        Some(self.db.stats().levels.iter().map(|level| level.data_block_requests).sum())
    }

    fn tombstones(&self) -> Option<u64> {
        Some(self.db.stats().levels.iter().map(|level| level.tombstones).sum())
    }
}

/// Keeps the range of its last scan, for as long as nothing is written.
#[derive(Debug)]
pub(crate) struct SieveDbReader<'a> {
    keyspace: &'a Keyspace,
    range: Option<Range>,
}

impl Reader for SieveDbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        Ok(self.keyspace.get_with(key, |found| copy_value(found, value))?.is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        *answers = self.keyspace.contains_many(keys)?;
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let range = self.range.get_or_insert_with(|| self.keyspace.iter());
        range.seek(key);
        for _ in 0..entries {
            let Some(entry) = range.next_ref()? else { break };
            visit(entry.key(), entry.value());
        }
        Ok(())
    }

    fn let_go(&mut self) {
        self.range = None;
    }
}
