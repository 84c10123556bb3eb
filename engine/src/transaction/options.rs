//! Options of a transaction.

use crate::Durability;

/// Default of [`TransactionOptions::retries_max`].
pub(super) const DEFAULT_RETRIES_MAX: u32 = 100;

/// Isolation level: the writes after the start of a transaction that make its commit fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Serializable: the result is as if transactions ran one after another, in the order of their
    /// commits. Those without writes run at the time of their start.
    ///
    /// A commit fails if a key that the transaction has read was written after it began. This holds
    /// for present and absent keys, and for all keys of ranges that it has read. Each key that was
    /// read takes memory.
    #[default]
    Serializable,
    /// Snapshot isolation: the first committer wins.
    ///
    /// A commit fails if a key that the transaction writes, or has read by
    /// [`get_for_update`](crate::Transaction::get_for_update), was written after it began, or any
    /// key of a range that it [removes](crate::Transaction::remove_range). Other reads are not
    /// checked and take no memory: write skew is possible.
    Snapshot,
}

/// Options of a transaction, with sensible defaults.
///
/// ```
/// use sievedb::{Durability, Isolation, TransactionOptions};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = sievedb::Db::open(dir.path())?;
/// let options =
///     TransactionOptions::new().isolation(Isolation::Snapshot).durability(Durability::Disk);
/// db.transaction_with(options, |transaction| transaction.insert(&db, "anna", "7"))?;
/// assert!(db.contains_key("anna")?);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct TransactionOptions {
    pub(super) isolation: Isolation,
    pub(super) durability: Option<Durability>,
    pub(super) retries_max: u32,
    pub(super) bytes_max: Option<u64>,
    pub(super) read_only: bool,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            durability: None,
            retries_max: DEFAULT_RETRIES_MAX,
            bytes_max: None,
            read_only: false,
        }
    }
}

impl TransactionOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Isolation level. Default [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Durability of the commit. Default [`Options::durability`](crate::Options::durability).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Maximum number of times that [`Db::transaction`](crate::Db::transaction) runs the
    /// transaction again after conflicts. Any number; default 100.
    ///
    /// The first retry does not wait. Each further one waits for a random time, which grows from
    /// about 20 µs to at most 10 ms.
    pub fn retries_max(mut self, retries: u32) -> Self {
        self.retries_max = retries;
        self
    }

    /// Maximum memory of the transaction, in bytes, for its writes and for the keys and ranges that
    /// it has read. A call that exceeds it fails with
    /// [`Error::TransactionTooLarge`](crate::Error::TransactionTooLarge).
    ///
    /// Any number. Default: 1/4 of
    /// [`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max), which is 16 MiB with a
    /// budget of 256 MiB, also while the present limit of memtables is lower. Writes of more than
    /// [`Batch::bytes`](crate::Batch::bytes) allows fail at the commit, with any limit.
    pub fn bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// Makes writes fail with [`Error::ReadOnlyTransaction`](crate::Error::ReadOnlyTransaction).
    /// Reads are not tracked: the transaction costs what a [snapshot](crate::Db::snapshot) costs.
    /// Default `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}
