//! Typed reads and writes in transactions and batches.

mod entries;

use std::time::{Duration, SystemTime};

use sievedb::{Batch, Db, Keyspace, TimeToLive, Transaction, TransactionOptions};

pub use self::entries::{TransactionEntries, TransactionKeys};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Writes that are applied together: a [`Batch`] or a [`Transaction`].
pub trait Writes: sealed::Writes {}

impl Writes for Batch {}

impl Writes for Transaction {}

/// Expiry of a written value.
#[derive(Debug, Clone, Copy)]
pub enum Expiry {
    /// After the default TTL of the keyspace, if it has one.
    Default,
    Never,
    After(Duration),
    At(SystemTime),
}

impl Expiry {
    /// Returns the expiry of a value with this time to live, which a transaction has read; `Never`
    /// for an absent value.
    pub(crate) fn of(ttl: Option<TimeToLive>) -> Self {
        match ttl {
            Some(TimeToLive::Remaining(ttl)) => Self::After(ttl),
            Some(TimeToLive::Unlimited) | None => Self::Never,
        }
    }
}

pub(crate) mod sealed {
    use super::{Batch, Expiry, Keyspace, Transaction};
    use crate::key::KeyBounds;

    /// The methods of [`Writes`](super::Writes), private to this crate.
    pub trait Writes {
        fn put(
            &mut self,
            keyspace: &Keyspace,
            key: &[u8],
            value: &[u8],
            expiry: Expiry,
        ) -> sievedb::Result<()>;

        fn operand(
            &mut self,
            keyspace: &Keyspace,
            key: &[u8],
            operand: &[u8],
        ) -> sievedb::Result<()>;

        fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<()>;

        fn delete_range(&mut self, keyspace: &Keyspace, bounds: KeyBounds) -> sievedb::Result<()>;
    }

    /// Implements the trait by the methods of the same names of both types.
    macro_rules! writes {
        ($($writes:ty),+) => {$(
            impl Writes for $writes {
                fn put(
                    &mut self,
                    keyspace: &Keyspace,
                    key: &[u8],
                    value: &[u8],
                    expiry: Expiry,
                ) -> sievedb::Result<()> {
                    match expiry {
                        Expiry::Default => self.insert(keyspace, key, value),
                        Expiry::Never => self.insert_without_ttl(keyspace, key, value),
                        Expiry::After(ttl) => self.insert_with_ttl(keyspace, key, value, ttl),
                        Expiry::At(time) => self.insert_expiring_at(keyspace, key, value, time),
                    }
                }

                fn operand(
                    &mut self,
                    keyspace: &Keyspace,
                    key: &[u8],
                    operand: &[u8],
                ) -> sievedb::Result<()> {
                    self.merge(keyspace, key, operand)
                }

                fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<()> {
                    self.remove(keyspace, key)
                }

                fn delete_range(
                    &mut self,
                    keyspace: &Keyspace,
                    bounds: KeyBounds,
                ) -> sievedb::Result<()> {
                    self.remove_range(keyspace, bounds)
                }
            }
        )+};
    }

    writes!(Batch, Transaction);
}

/// Runs `body` in a [`Transaction`] and commits it, as [`Db::transaction`] does. `body` returns
/// errors of this crate. An error of `body` rolls the transaction back; after a conflict, `body` is
/// called again. For errors of the application, use [`Db::try_transaction`] with an error type that
/// converts from [`Error`] and from [`sievedb::Error`].
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
    body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    db.try_transaction(options, body)
}
