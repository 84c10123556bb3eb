//! Transactions over a store.

use super::Db;
use crate::{Error, Result, Transaction, TransactionOptions, transaction::run::run};

/// Transactions.
impl Db {
    /// Runs `body` in a [`Transaction`] and commits it. After a conflict, runs `body` again in a
    /// new transaction, up to [`retries_max`](TransactionOptions::retries_max) times, with a random
    /// wait before each retry except the first. So `body` may be called several times; its effects
    /// outside of the transaction are not undone.
    ///
    /// If `body` returns an error, the transaction is rolled back. For errors of the application,
    /// use [`try_transaction`](Self::try_transaction).
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

    /// Runs `body` as [`transaction`](Self::transaction) does, with `options`.
    ///
    /// # Errors
    ///
    /// As [`transaction`](Self::transaction).
    pub fn transaction_with<T>(
        &self,
        options: TransactionOptions,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        run(&self.default, options, body, |error| matches!(error, Error::Conflict { .. }))
    }

    /// Runs `body` as [`transaction_with`](Self::transaction_with) does, with an error type of the
    /// application. Any error of `body` rolls the transaction back, and is returned.
    ///
    /// ```
    /// use sievedb::{Db, TransactionOptions};
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Store(sievedb::Error),
    ///     SoldOut,
    /// }
    ///
    /// impl From<sievedb::Error> for Refused {
    ///     fn from(error: sievedb::Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    ///
    /// fn buy(db: &Db) -> Result<(), Refused> {
    ///     db.try_transaction(TransactionOptions::new(), |transaction| {
    ///         if transaction.fetch_add(db, "stock", -1)? <= 0 {
    ///             return Err(Refused::SoldOut);
    ///         }
    ///         Ok(())
    ///     })
    /// }
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path())?;
    /// db.fetch_add("stock", 1)?;
    /// buy(&db).expect("one is left");
    /// assert!(matches!(buy(&db), Err(Refused::SoldOut)));
    /// assert_eq!(db.fetch_add("stock", 0)?, 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `body`; as [`transaction`](Self::transaction).
    pub fn try_transaction<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        run(&self.default, options, body, |_| false)
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
