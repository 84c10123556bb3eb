//! Options of a transaction.

use crate::Durability;

/// Retries of [`Db::transaction`](crate::Db::transaction) unless set otherwise.
pub(super) const DEFAULT_RETRIES_MAX: u32 = 100;

/// Changes by others that make a transaction fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The outcome is that of some order of the transactions, one after the other: the order of
    /// their commits. A commit fails if a key or a range that the transaction has read, present or
    /// absent, was written after it began.
    #[default]
    Serializable,
    /// A commit fails if a key that it writes, or read by
    /// [`get_for_update`](crate::Transaction::get_for_update), was written after the transaction
    /// began. Other reads are not checked: write skew is possible, and the transaction takes no
    /// memory for them.
    Snapshot,
}

/// Options of a transaction. The default suits most of them.
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

    /// Changes by others that make the commit fail. Default [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Durability of the commit. Default [`Options::durability`](crate::Options::durability).
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Most times that [`Db::transaction`](crate::Db::transaction) runs the transaction again after
    /// a conflict. 0 or more, default 100. The waits before them grow from none to 10 ms.
    pub fn retries_max(mut self, retries: u32) -> Self {
        self.retries_max = retries;
        self
    }

    /// Most bytes of memory that the transaction may take, for its writes and for the keys that it
    /// has read. Default 1/4 of
    /// [`memtable_bytes_max`](crate::stats::MemoryStats::memtable_bytes_max): 16 MiB with a budget
    /// of 256 MiB.
    pub fn bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// Refuses writes, and so notes no reads: the transaction costs what a
    /// [snapshot](crate::Db::snapshot) costs. Default `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}
