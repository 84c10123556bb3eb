//! redb: a read transaction and its table are kept between lookups. Its cache is the total.

use std::{path::Path, slice};

use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase as _,
    ReadableTableMetadata as _, TableDefinition,
};

use super::{Engine, Order, Reader, Tuning, copy_value};
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

impl Redb {
    fn insert(&self, entries: &[Entry], durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in entries {
            table.insert(key, &value[..])?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn view(&self) -> Result<View> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(TABLE)?;
        Ok(View { _transaction: transaction, table })
    }
}

impl Engine for Redb {
    type Reader<'a> = RedbReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(settings.total_bytes)?);
        let database = builder.create(path.join("redb"))?;
        // A reader needs the table to be there.
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Self { database })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        self.insert(entries, Durability::None)
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        self.insert(slice::from_ref(entry), Durability::Immediate)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let mut table = transaction.open_table(TABLE)?;
        for key in keys {
            table.remove(key)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn reader(&self) -> Result<RedbReader<'_>> {
        Ok(RedbReader { store: self, view: None })
    }

    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let entries = self.view()?.table.range::<&Key>(..)?;
        match order {
            Order::Ascending => show(entries, visit),
            Order::Descending => show(entries.rev(), visit),
        }
    }

    fn shape(&self) -> Result<String> {
        Ok(format!("a tree of height {}", self.view()?.table.stats()?.tree_height()))
    }
}

/// Shows `entries` to `visit`.
fn show(
    entries: impl Iterator<Item = redb::Result<RedbEntry>>,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry?;
        visit(key.value(), value.value());
    }
    Ok(())
}

type RedbEntry = (AccessGuard<'static, &'static Key>, AccessGuard<'static, &'static [u8]>);

/// The store as it was when the transaction began.
struct View {
    _transaction: ReadTransaction,
    table: ReadOnlyTable<&'static [u8; KEY_BYTES], &'static [u8]>,
}

/// Keeps a view for as long as nothing is written.
pub(crate) struct RedbReader<'a> {
    store: &'a Redb,
    view: Option<View>,
}

impl RedbReader<'_> {
    fn view(&mut self) -> Result<&View> {
        match &mut self.view {
            Some(view) => Ok(view),
            none => Ok(none.insert(self.store.view()?)),
        }
    }
}

impl Reader for RedbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = self.view()?.table.get(key)?;
        Ok(found.map(|found| copy_value(found.value(), value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        let view = self.view()?;
        for key in keys {
            answers.push(view.table.get(key)?.is_some());
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        show(self.view()?.table.range::<&Key>(key..)?.take(entries), visit)
    }

    fn let_go(&mut self) {
        self.view = None;
    }
}
