//! LMDB: a memory map, and one read transaction for many lookups. It has no cache of its own.

use std::{ops::Bound, path::Path, slice};

use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls, types::Bytes};

use super::{Engine, Order, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::{Settings, data_bytes},
};

/// Room in the map, as a multiple of the data: pages are two thirds full, and copied when changed.
const MAP_RATIO: u64 = 8;

/// The room in the map is a multiple of this, which suits every page size.
const MAP_UNIT_BYTES: u64 = 1 << 30;

type Table = Database<'static, Bytes, Bytes>;

/// An open store.
#[derive(Debug)]
pub(crate) struct Lmdb {
    env: Env<WithTls>,
    table: Table,
}

impl Engine for Lmdb {
    type Reader<'a> = LmdbReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let data_bytes = data_bytes(settings.keys);
        let mut options = EnvOpenOptions::new();
        let map_bytes = (data_bytes * MAP_RATIO + 1).next_multiple_of(MAP_UNIT_BYTES);
        options.map_size(usize::try_from(map_bytes)?);
        let mut flags = EnvFlags::empty();
        flags.set(EnvFlags::NO_SYNC, !settings.sync_writes);
        // As `lmdb.h` advises for random reads of data larger than the memory.
        flags.set(EnvFlags::NO_READ_AHEAD, settings.drop_page_cache);
        // SAFETY: without a sync a machine crash may lose the store, and would end the measurement
        // too.
        unsafe { options.flags(flags) };
        // SAFETY: no other process opens or truncates the file: the directory is private.
        let env = unsafe { options.open(path)? };
        let table = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let table = table.commit().ok_or("the table was not made")?;
        Ok(Self { env, table })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in entries {
            self.table.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        // The store was opened without `NO_SYNC`.
        self.write(slice::from_ref(entry))
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for key in keys {
            self.table.delete(&mut transaction, key)?;
        }
        Ok(transaction.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader { env: &self.env, table: self.table, transaction: None })
    }

    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let transaction = self.env.read_txn()?;
        match order {
            Order::Ascending => show(self.table.iter(&transaction)?, visit),
            Order::Descending => show(self.table.rev_iter(&transaction)?, visit),
        }
    }

    fn shape(&self) -> Result<String> {
        let transaction = self.env.read_txn()?;
        Ok(format!("a tree of height {}", self.table.stat(&transaction)?.depth))
    }
}

/// Shows `entries` to `visit`.
fn show<'a>(
    entries: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry?;
        visit(key, value);
    }
    Ok(())
}

/// Keeps a transaction, which sees the store as it was when it began, for as long as nothing is
/// written.
pub(crate) struct LmdbReader<'a> {
    env: &'a Env<WithTls>,
    table: Table,
    /// A thread has one at a time.
    transaction: Option<RoTxn<'a, WithTls>>,
}

impl LmdbReader<'_> {
    fn transaction(&mut self) -> Result<&RoTxn<'_, WithTls>> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction),
            none => Ok(none.insert(self.env.read_txn()?)),
        }
    }

    fn find(&mut self, key: &Key) -> Result<Option<&[u8]>> {
        let table = self.table;
        Ok(table.get(self.transaction()?, key)?)
    }
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        Ok(self.find(key)?.map(|found| copy_value(found, value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        for key in keys {
            answers.push(self.find(key)?.is_some());
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let table = self.table;
        let bounds = (Bound::Included(&key[..]), Bound::Unbounded);
        show(table.range(self.transaction()?, &bounds)?.take(entries), visit)
    }

    fn let_go(&mut self) {
        self.transaction = None;
    }
}
