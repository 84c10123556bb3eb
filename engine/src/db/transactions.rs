//! Transactions over a store.

use super::Db;
#[cfg(doc)]
use crate::Error;
use crate::{Result, Transaction, TransactionOptions, transaction::run::run};

/// Transactions.
impl Db {
    /// Runs `body` in a [`Transaction`] and commits it. After a conflict it runs
    /// `body` again in a new one, up to
    /// [`retries_max`](TransactionOptions::retries_max) times. `body` must not depend on the
    /// number of its calls.
    ///
    /// If `body` returns an error, the transaction is rolled back. So are the writes of a `body`
    /// that called [`rollback_to`](Transaction::rollback_to) a savepoint set at its start.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("anna", "7")?;
    /// let moved = db.transaction(|transaction| {
    ///     let Some(value) = transaction.get(&db, "anna")? else { return Ok(false) };
    ///     transaction.remove(&db, "anna")?;
    ///     transaction.insert(&db, "bert", value)?;
    ///     Ok(true)
    /// })?;
    /// assert!(moved && db.contains_key("bert")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `body`; [`Error::Conflict`] after the last retry; the other errors of
    /// [`Transaction::commit`](Transaction::commit).
    pub fn transaction<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transaction_with(TransactionOptions::new(), body)
    }

    /// As [`transaction`](Self::transaction), with `options`.
    ///
    /// # Errors
    ///
    /// As [`transaction`](Self::transaction).
    pub fn transaction_with<T>(
        &self,
        options: TransactionOptions,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        run(&self.default, options, body)
    }

    /// Begins a [`Transaction`] over all keyspaces of the store, with the
    /// default options. [`transaction`](Self::transaction) also runs it again after a conflict.
    pub fn begin(&self) -> Transaction {
        self.begin_with(TransactionOptions::new())
    }

    /// Begins a [`Transaction`] with `options`.
    pub fn begin_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(&self.default, options)
    }
}
