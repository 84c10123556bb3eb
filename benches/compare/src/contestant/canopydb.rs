//! Canopydb: a read transaction is kept between lookups. Half of the total is its page cache; the
//! other half is the most that changed pages take before writers wait.

use std::path::Path;

use canopydb::{Database, DbOptions, EnvOptions, ReadTransaction, Tree};

use super::{Engine, Order, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

const TREE: &[u8] = b"default";

/// An open store.
pub(crate) struct Canopydb {
    database: Database,
}

impl Canopydb {
    fn commit(
        &self,
        sync: bool,
        change: impl FnOnce(&mut Tree<'_>) -> std::result::Result<(), canopydb::Error>,
    ) -> Result<()> {
        let transaction = self.database.begin_write()?;
        let mut tree = transaction.get_or_create_tree(TREE)?;
        change(&mut tree)?;
        drop(tree);
        transaction.commit_with(sync)?;
        Ok(())
    }

    fn insert(&self, entries: &[Entry], sync: bool) -> Result<()> {
        self.commit(sync, |tree| {
            entries.iter().try_for_each(|(key, value)| tree.insert(key, value))
        })
    }

    fn view(&self) -> Result<ReadTransaction> {
        Ok(self.database.begin_read()?)
    }
}

/// Returns the tree in `view`.
fn tree(view: &ReadTransaction) -> Result<Tree<'_>> {
    Ok(view.get_tree(TREE)?.ok_or("the tree is missing")?)
}

impl Engine for Canopydb {
    type Reader<'a> = CanopydbReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let total_bytes = usize::try_from(settings.total_bytes)?;
        let mut environment = EnvOptions::new(path);
        environment.page_cache_size = total_bytes / 2;
        let mut options = DbOptions::new();
        let changed_bytes_max = total_bytes / 2;
        options.checkpoint_target_size = options.checkpoint_target_size.min(changed_bytes_max / 4);
        options.throttle_memory_limit = options.throttle_memory_limit.min(changed_bytes_max);
        options.stall_memory_limit = options.stall_memory_limit.min(changed_bytes_max);
        let database = Database::with_options(environment, options)?;
        let store = Self { database };
        // A reader needs the tree to be there.
        store.insert(&[], false)?;
        Ok(store)
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        self.insert(entries, false)
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        self.insert(std::slice::from_ref(entry), true)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.commit(false, |tree| keys.iter().try_for_each(|key| tree.delete(key).map(drop)))
    }

    fn flush(&self) -> Result<()> {
        self.database.checkpoint()?;
        Ok(self.database.sync()?)
    }

    fn reader(&self) -> Result<CanopydbReader<'_>> {
        Ok(CanopydbReader { store: self, view: None })
    }

    fn scan(&self, order: Order, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let view = self.view()?;
        let tree = tree(&view)?;
        let mut show = |entry: std::result::Result<_, canopydb::Error>| -> Result<()> {
            let (key, value): (canopydb::Bytes, canopydb::Bytes) = entry?;
            visit(&key, &value);
            Ok(())
        };
        match order {
            Order::Ascending => tree.iter()?.try_for_each(&mut show),
            Order::Descending => tree.iter()?.rev().try_for_each(&mut show),
        }
    }

    fn shape(&self) -> Result<String> {
        Ok(format!("a tree of height {}", tree(&self.view()?)?.height()))
    }
}

/// Keeps a view for as long as nothing is written.
pub(crate) struct CanopydbReader<'a> {
    store: &'a Canopydb,
    view: Option<ReadTransaction>,
}

impl CanopydbReader<'_> {
    fn tree(&mut self) -> Result<Tree<'_>> {
        match &mut self.view {
            Some(view) => tree(view),
            none => tree(none.insert(self.store.view()?)),
        }
    }
}

impl Reader for CanopydbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = self.tree()?.get(key)?;
        Ok(found.map(|found| copy_value(&found, value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        let tree = self.tree()?;
        for key in keys {
            answers.push(tree.get(key)?.is_some());
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        for entry in self.tree()?.range(&key[..]..)?.take(entries) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn let_go(&mut self) {
        self.view = None;
    }
}
