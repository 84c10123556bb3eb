//! redb: a read transaction and its table are kept between lookups.

use std::path::Path;

use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase as _,
    ReadableTable as _, ReadableTableMetadata as _, TableDefinition,
};

use super::{Engine, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, KEY_BYTES, Key, Value},
    settings::Settings,
};

const TABLE: TableDefinition<'_, &[u8; KEY_BYTES], &[u8]> = TableDefinition::new("default");

/// An open store.
pub(crate) struct Redb {
    database: Database,
}

impl Engine for Redb {
    type Reader<'a> = RedbReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(settings.cache_bytes)?);
        let database = builder.create(path.join("redb"))?;
        // A reader needs the table to be there.
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Self { database })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in entries {
            table.insert(key, &value[..])?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn reader(&self) -> Result<RedbReader<'_>> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(TABLE)?;
        Ok(RedbReader { database: &self.database, _transaction: transaction, table })
    }

    fn scan(&self) -> Result<u64> {
        let reader = self.reader()?;
        reader.table.iter()?.try_fold(0, |count, entry| {
            entry?;
            Ok(count + 1)
        })
    }

    fn shape(&self) -> Result<String> {
        Ok(format!("a tree of height {}", self.reader()?.table.stats()?.tree_height()))
    }
}

/// Sees the store as it was when the transaction began.
pub(crate) struct RedbReader<'a> {
    database: &'a Database,
    _transaction: ReadTransaction,
    table: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8]>,
}

impl Reader for RedbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = self.table.get(key)?;
        Ok(found.map(|found| copy_value(found.value(), value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        for key in keys {
            answers.push(self.table.get(key)?.is_some());
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<()> {
        let transaction = self.database.begin_read()?;
        self.table = transaction.open_table(TABLE)?;
        self._transaction = transaction;
        Ok(())
    }
}
