//! Typed reads and writes in transactions and batches.

use sievedb::{Batch, Db, Keyspace, Transaction, TransactionOptions};

use crate::error::{Error, Result};

/// Writes that are applied together: a [`Batch`] or a [`Transaction`].
pub trait Writes: sealed::Writes {}

impl Writes for Batch {}

impl Writes for Transaction {}

pub(crate) mod sealed {
    use super::{Batch, Keyspace, Transaction};

    /// The methods of [`Writes`](super::Writes), for this crate.
    pub trait Writes {
        fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> sievedb::Result<()>;

        fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<()>;
    }

    impl Writes for Batch {
        fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> sievedb::Result<()> {
            self.insert(keyspace, key, value)
        }

        fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<()> {
            self.remove(keyspace, key)
        }
    }

    impl Writes for Transaction {
        fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> sievedb::Result<()> {
            self.insert(keyspace, key, value)
        }

        fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<()> {
            self.remove(keyspace, key)
        }
    }
}

/// Runs `body` in a [`Transaction`] and commits it, as [`Db::transaction`] does. `body` returns
/// errors of this crate. An error of `body` rolls the transaction back; after a conflict `body` is
/// called again.
///
/// ```
/// use sievedb_typed::{Schema, TypedKeyspace, sievedb::{Db, TransactionOptions}, transaction};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let balances =
///     TypedKeyspace::<String, i64>::open(&db, "balances", Schema::new("balance", 1))?;
/// balances.insert("anna", 100)?;
/// transaction(&db, TransactionOptions::new(), |transaction| {
///     for (name, change) in [("anna", -30), ("bert", 30)] {
///         let balance = balances.get_in(transaction, name)?.unwrap_or(0);
///         balances.insert_in(transaction, name, balance + change)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(balances.get_many(["anna", "bert"])?, [Some(70), Some(30)]);
/// # Ok::<(), sievedb_typed::Error>(())
/// ```
///
/// # Errors
///
/// The error of `body`; [`Error::Engine`] as of [`Db::transaction`].
pub fn transaction<T>(
    db: &Db,
    options: TransactionOptions,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    db.transaction_with(options, |transaction| {
        let start = transaction.set_savepoint();
        match body(transaction) {
            Ok(result) => Ok(Ok(result)),
            Err(Error::Engine(error)) => Err(error),
            // `Db::transaction` knows only errors of the engine, so this one is returned in `Ok`.
            Err(error) => {
                transaction.rollback_to(&start)?;
                debug_assert!(transaction.is_empty(), "rolled back to its start");
                Ok(Err(error))
            }
        }
    })?
}
