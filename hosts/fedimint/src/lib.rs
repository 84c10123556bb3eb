//! A [SieveDB](sievedb) store as a database of [Fedimint](https://docs.rs/fedimint-core/0.8).
//!
//! * **Isolation.** A transaction reads a snapshot. A commit fails if a key that the transaction
//!   has written was written after it began, as with Fedimint's own RocksDB backend.
//! * **Durability.** A commit blocks until it is on disk. One that fails is not visible, but after
//!   an I/O error it may reappear, whole, when the store is reopened.
//! * **Size.** A commit fails above 3/4 of the limit of memtables: 48 MiB with a budget of 256 MiB.
//! * **Cost.** Reads block the calling task for as long as the disk takes. Streams of entries read
//!   the store while they are polled, so they take little memory.
//! * **Errors.** A stream panics if a read fails, as in Fedimint's RocksDB backend.
//!
//! ```
//! use fedimint_core::db::{Database, IRawDatabaseExt as _};
//! use sievedb_fedimint::SieveDatabase;
//!
//! # let dir = tempfile::tempdir()?;
//! let database: Database = SieveDatabase::open(dir.path())?.into_database();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{fmt, ops::Range, path::Path};

use anyhow::Result;
use async_trait::async_trait;
use fedimint_core::db::{
    IDatabaseTransactionOps, IDatabaseTransactionOpsCore, IRawDatabase, IRawDatabaseTransaction,
    PrefixStream,
};
use futures::stream;
use sievedb::{Bytes, Db, Durability, Isolation, Savepoint, Transaction, TransactionOptions};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// A store as a database of Fedimint. Its entries are in the default keyspace.
#[derive(Clone)]
pub struct SieveDatabase {
    db: Db,
}

impl fmt::Debug for SieveDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SieveDatabase").finish_non_exhaustive()
    }
}

impl SieveDatabase {
    /// Opens or creates the store in the directory `path`, with default options.
    ///
    /// # Errors
    ///
    /// As [`Db::open`].
    pub fn open(path: impl AsRef<Path>) -> sievedb::Result<Self> {
        Ok(Self { db: Db::open(path)? })
    }

    /// Uses the default keyspace of an open store.
    #[must_use]
    pub fn new(db: Db) -> Self {
        Self { db }
    }
}

#[async_trait]
impl IRawDatabase for SieveDatabase {
    type Transaction<'a> = SieveTransaction;

    /// Begins a transaction. Only its commit limits its size, as Fedimint panics on errors of a
    /// write.
    async fn begin_transaction<'a>(&'a self) -> SieveTransaction {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).bytes_max(u64::MAX);
        let transaction = self.db.begin_with(options);
        SieveTransaction { db: self.db.clone(), transaction, savepoint: None }
    }

    /// Writes a store with the committed entries to the new directory `backup_path`.
    fn checkpoint(&self, backup_path: &Path) -> Result<()> {
        self.db.checkpoint(backup_path)?;
        Ok(())
    }
}

/// A transaction. It is rolled back when it is dropped.
pub struct SieveTransaction {
    db: Db,
    transaction: Transaction,
    savepoint: Option<Savepoint>,
}

impl fmt::Debug for SieveTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SieveTransaction").finish_non_exhaustive()
    }
}

impl SieveTransaction {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.transaction.get(&self.db, key)?.map(|value| value.to_vec()))
    }
}

/// Returns the entries as a stream.
///
/// Fedimint's stream has no errors: a read that fails panics, as in its RocksDB backend. A stream
/// that ended early would return an incomplete result without an error.
fn entries<'a>(
    entries: impl Iterator<Item = sievedb::Result<(Bytes, Bytes)>> + Send + 'a,
) -> PrefixStream<'a> {
    Box::pin(stream::iter(entries.map(|entry| {
        let (key, value) = entry.expect("the store can be read");
        (key.to_vec(), value.to_vec())
    })))
}

#[async_trait]
impl IDatabaseTransactionOpsCore for SieveTransaction {
    async fn raw_insert_bytes(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        let before = self.value(key)?;
        self.transaction.insert(&self.db, key, value)?;
        Ok(before)
    }

    async fn raw_get_bytes(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key)
    }

    async fn raw_remove_entry(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let before = self.value(key)?;
        self.transaction.remove(&self.db, key)?;
        Ok(before)
    }

    async fn raw_find_by_prefix(&mut self, key_prefix: &[u8]) -> Result<PrefixStream<'_>> {
        Ok(entries(self.transaction.prefix(&self.db, key_prefix)))
    }

    async fn raw_find_by_prefix_sorted_descending(
        &mut self,
        key_prefix: &[u8],
    ) -> Result<PrefixStream<'_>> {
        Ok(entries(self.transaction.prefix(&self.db, key_prefix).rev()))
    }

    async fn raw_find_by_range(&mut self, range: Range<&[u8]>) -> Result<PrefixStream<'_>> {
        Ok(entries(self.transaction.range(&self.db, range)))
    }

    async fn raw_remove_by_prefix(&mut self, key_prefix: &[u8]) -> Result<()> {
        Ok(self.transaction.remove_prefix(&self.db, key_prefix)?)
    }
}

#[async_trait]
impl IDatabaseTransactionOps for SieveTransaction {
    async fn set_tx_savepoint(&mut self) -> Result<()> {
        if let Some(before) = self.savepoint.take() {
            self.transaction.release(before)?;
        }
        self.savepoint = Some(self.transaction.set_savepoint());
        Ok(())
    }

    /// Rolls back to the last savepoint. Fails if there is none.
    async fn rollback_tx_to_savepoint(&mut self) -> Result<()> {
        let savepoint = self.savepoint.as_ref();
        let savepoint = savepoint.ok_or_else(|| anyhow::anyhow!("no savepoint was set"))?;
        Ok(self.transaction.rollback_to(savepoint)?)
    }
}

#[async_trait]
impl IRawDatabaseTransaction for SieveTransaction {
    /// Blocks until the transaction is durable. Fedimint runs a transaction again after an error,
    /// so a failed commit must not be visible. A failed asynchronous commit may be visible.
    async fn commit_tx(self) -> Result<()> {
        blocking(|| self.transaction.commit(Durability::Disk))?;
        Ok(())
    }
}

/// Calls `call`, which blocks. A multi-threaded runtime first moves its other tasks to other
/// threads.
fn blocking<T>(call: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(call),
        _ => call(),
    }
}
