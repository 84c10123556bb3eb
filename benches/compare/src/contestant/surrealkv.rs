//! SurrealKV: a 16th of the total is a memtable, of which two can be in memory, and its cache has
//! the rest. Its filters are the default ones: 10 bits per key.
//!
//! A commit is a future. The runtime runs the background work, the calling thread the commit.

use std::path::Path;

use surrealkv::{Durability, LSMIterator, Mode, Transaction, Tree, TreeBuilder};
use tokio::runtime::{Builder, Runtime};

use super::{Engine, Order, Reader, Tuning, copy_value};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// A memtable has one of so many bytes of the total.
const MEMTABLE_SHARE: u64 = 16;

/// Threads of the runtime.
const WORKERS: usize = 2;

/// An open store.
pub(crate) struct SurrealKv {
    tree: Tree,
    runtime: Runtime,
}

impl SurrealKv {
    /// Commits what `change` does.
    fn commit(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Transaction) -> surrealkv::Result<()>,
    ) -> Result<()> {
        let mut transaction = self.tree.begin_with_mode(Mode::WriteOnly)?;
        transaction.set_durability(durability);
        change(&mut transaction)?;
        Ok(self.runtime.block_on(transaction.commit())?)
    }

    fn insert(&self, entries: &[Entry], durability: Durability) -> Result<()> {
        self.commit(durability, |transaction| {
            entries.iter().try_for_each(|(key, value)| transaction.set(&key[..], &value[..]))
        })
    }

    fn view(&self) -> Result<Transaction> {
        Ok(self.tree.begin_with_mode(Mode::ReadOnly)?)
    }
}

impl Drop for SurrealKv {
    fn drop(&mut self) {
        // A store that fails to close is found by the next workload, which checks its entries.
        let _ = self.runtime.block_on(self.tree.close());
    }
}

impl Engine for SurrealKv {
    type Reader<'a> = SurrealKvReader<'a>;

    fn open(path: &Path, _: Tuning, settings: &Settings) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
        let memtable_bytes = settings.total_bytes / MEMTABLE_SHARE;
        let builder = TreeBuilder::new()
            .with_path(path.join("surrealkv"))
            .with_max_memtable_size(usize::try_from(memtable_bytes)?)
            .with_block_cache_capacity(settings.total_bytes - 2 * memtable_bytes);
        let tree = runtime.block_on(async { builder.build() })?;
        Ok(Self { tree, runtime })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        self.insert(entries, Durability::Eventual)
    }

    fn write_synced(&self, entry: &Entry) -> Result<()> {
        self.insert(std::slice::from_ref(entry), Durability::Immediate)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.commit(Durability::Eventual, |transaction| {
            keys.iter().try_for_each(|key| transaction.delete(&key[..]))
        })
    }

    /// Syncs the log. There is no call that flushes the memtable: the end of the process does.
    fn flush(&self) -> Result<()> {
        Ok(self.tree.flush_wal(true)?)
    }

    fn reader(&self) -> Result<SurrealKvReader<'_>> {
        Ok(SurrealKvReader { store: self, view: None })
    }

    fn scan(&self, order: Order, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let view = self.view()?;
        let mut cursor = view.iter()?;
        match order {
            Order::Ascending => cursor.seek_first()?,
            Order::Descending => cursor.seek_last()?,
        };
        while cursor.valid() {
            visit(cursor.key().user_key(), &cursor.value_ref()?);
            match order {
                Order::Ascending => cursor.next()?,
                Order::Descending => cursor.prev()?,
            };
        }
        Ok(())
    }

    fn shape(&self) -> Result<String> {
        Ok("not reported".to_owned())
    }
}

/// Keeps a view for as long as nothing is written.
pub(crate) struct SurrealKvReader<'a> {
    store: &'a SurrealKv,
    view: Option<Transaction>,
}

impl SurrealKvReader<'_> {
    fn view(&mut self) -> Result<&Transaction> {
        match &mut self.view {
            Some(view) => Ok(view),
            none => Ok(none.insert(self.store.view()?)),
        }
    }
}

impl Reader for SurrealKvReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = self.view()?.get(&key[..])?;
        Ok(found.map(|found| copy_value(&found, value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        let view = self.view()?;
        for key in keys {
            answers.push(view.get(&key[..])?.is_some());
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut cursor = self.view()?.scan(&key[..]..)?;
        cursor.seek_first()?;
        for _ in 0..entries {
            if !cursor.valid() {
                break;
            }
            visit(cursor.key().user_key(), &cursor.value_ref()?);
            cursor.next()?;
        }
        Ok(())
    }

    fn let_go(&mut self) {
        self.view = None;
    }
}
