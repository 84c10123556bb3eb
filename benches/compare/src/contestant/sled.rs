//! sled.
//!
//! Its makers advise little: the mode for high throughput, and a cache of the right size. It has no
//! compression without a C library. It writes to the file every half second, or when a segment is
//! full: less than the others keep when the process dies.

use std::{path::Path, slice};

use sled::{Batch, Config, Db, IVec, Mode};

use super::{Engine, Order, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// An open store.
pub(crate) struct Sled {
    db: Db,
}

impl Engine for Sled {
    type Reader<'a> = &'a Db;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let config = Config::default()
            .path(path)
            .mode(Mode::HighThroughput)
            .cache_capacity(settings.total_bytes);
        Ok(Self { db: config.open()? })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        if let [(key, value)] = entries {
            self.db.insert(key, &value[..])?;
            return Ok(());
        }
        let mut batch = Batch::default();
        for (key, value) in entries {
            batch.insert(&key[..], &value[..]);
        }
        Ok(self.db.apply_batch(batch)?)
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        self.write(slice::from_ref(entry))?;
        self.flush()
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        if let [key] = keys {
            self.db.remove(key)?;
            return Ok(());
        }
        let mut batch = Batch::default();
        for key in keys {
            batch.remove(&key[..]);
        }
        Ok(self.db.apply_batch(batch)?)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(())
    }

    fn reader(&self) -> Result<&Db> {
        Ok(&self.db)
    }

    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        match order {
            Order::Ascending => show(self.db.iter(), visit),
            Order::Descending => show(self.db.iter().rev(), visit),
        }
    }

    fn shape(&self) -> Result<String> {
        Ok("a tree".to_owned())
    }
}

/// Shows `entries` to `visit`.
fn show(
    entries: impl Iterator<Item = sled::Result<(IVec, IVec)>>,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry?;
        visit(&key, &value);
    }
    Ok(())
}

impl Reader for &Db {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = sled::Tree::get(self, key)?;
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
