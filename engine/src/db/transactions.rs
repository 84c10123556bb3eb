//! Transactions over a store.

use super::Db;
#[cfg(doc)]
use crate::Error;
use crate::{Result, Transaction, TransactionOptions, transaction::run::run};

/// Transactions.
impl Db {
    /// Runs `body` in a [`Transaction`] and commits it. After a conflict, runs `body` again in a
    /// new transaction, up to [`retries_max`](TransactionOptions::retries_max) times, with random
    /// waits between. So `body` may be called several times: its effects outside of the transaction
    /// are not undone.
    ///
    /// If `body` returns an error, the transaction is rolled back. A `body` with an error type of
    /// its own can call [`rollback_to`](Transaction::rollback_to) with a savepoint set at its
    /// start, and return the error within `Ok`.
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
    /// The error of `body`; [`Error::Conflict`] after the last retry; other errors of
    /// [`Transaction::commit`].
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

    /// Begins a [`Transaction`] over all keyspaces of the store, with the default options. The
    /// caller commits it and retries conflicts; [`transaction`](Self::transaction) does both.
    pub fn begin(&self) -> Transaction {
        self.begin_with(TransactionOptions::new())
    }

    /// Begins a [`Transaction`] with `options`.
    pub fn begin_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(&self.default, options)
    }
}
