//! LMDB: a memory map, and one read transaction for many lookups. It has no cache of its own.

use std::path::Path;

use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls, types::Bytes};

use super::{Engine, Reader, Tuning, copy_value};
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
        // SAFETY: without a sync the store may be lost with the machine, as this measurement would be.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
        // SAFETY: the folder is this process's own; nobody else opens or truncates the file.
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

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        let transaction = Some(self.env.read_txn()?);
        Ok(LmdbReader { env: &self.env, table: self.table, transaction })
    }

    fn scan(&self) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        self.table.iter(&transaction)?.try_fold(0, |count, entry| {
            // Its last byte, so that its page is there.
            std::hint::black_box(entry?.1.last());
            Ok(count + 1)
        })
    }

    fn shape(&self) -> Result<String> {
        let transaction = self.env.read_txn()?;
        Ok(format!("a tree of height {}", self.table.stat(&transaction)?.depth))
    }
}

/// Sees the store as it was when the transaction began.
pub(crate) struct LmdbReader<'a> {
    env: &'a Env<WithTls>,
    table: Table,
    /// Absent only within [`refresh`](Reader::refresh): a thread has one at a time.
    transaction: Option<RoTxn<'a, WithTls>>,
}

impl LmdbReader<'_> {
    fn find(&self, key: &Key) -> Result<Option<&[u8]>> {
        let transaction = self.transaction.as_ref().ok_or("a refresh has failed")?;
        Ok(self.table.get(transaction, key)?)
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

    fn refresh(&mut self) -> Result<()> {
        self.transaction = None;
        self.transaction = Some(self.env.read_txn()?);
        Ok(())
    }
}
