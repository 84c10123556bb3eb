//! Recorded transactions.

use std::sync::Arc;

/// A key. Keys are ordered byte by byte.
pub type Key = Arc<str>;

/// Identifies a write. No two writes of a history share one.
pub type WriteId = u64;

/// A call of a transaction, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A read of `key` that found the value of a write, or no value.
    Get {
        /// The key.
        key: Key,
        /// Write that the value belongs to.
        found: Option<WriteId>,
    },
    /// A read of all keys from `from` to below `to`. A scan that stopped early has the bounds that
    /// it consumed.
    Scan {
        /// First key of the range.
        from: Key,
        /// First key above the range. `None` for no upper bound.
        to: Option<Key>,
        /// Keys found, ascending, with the writes that their values belong to.
        found: Vec<(Key, WriteId)>,
    },
    /// A write of a value.
    Insert {
        /// The key.
        key: Key,
        /// The write.
        id: WriteId,
    },
    /// A removal.
    Remove {
        /// The key.
        key: Key,
        /// The write.
        id: WriteId,
    },
}

impl Operation {
    /// Returns the key and the id of a write, and whether it is a removal.
    fn write(&self) -> Option<(&Key, WriteId, bool)> {
        match self {
            Self::Insert { key, id } => Some((key, *id, false)),
            Self::Remove { key, id } => Some((key, *id, true)),
            Self::Get { .. } | Self::Scan { .. } => None,
        }
    }

    /// Returns the writes whose values a read found.
    pub(super) fn found(&self) -> impl Iterator<Item = WriteId> {
        let (item, scanned): (Option<WriteId>, &[(Key, WriteId)]) = match self {
            Self::Get { found, .. } => (*found, &[]),
            Self::Scan { found, .. } => (None, found),
            Self::Insert { .. } | Self::Remove { .. } => (None, &[]),
        };
        item.into_iter().chain(scanned.iter().map(|(_, id)| *id))
    }
}

/// End of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged.
    Committed,
    /// The transaction aborted: none of its writes may become visible.
    Aborted,
    /// The commit failed in a way that leaves all writes or none. It counts as committed once a
    /// read found one of the writes.
    Unknown,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its calls, in order.
    pub operations: Vec<Operation>,
    /// Its end.
    pub outcome: Outcome,
    /// Place among all commits that write. Required of committed writers; of transactions with an
    /// unknown outcome if known.
    pub order: Option<u64>,
    /// Time before its first call. Times of a history are from one counter.
    pub begin: u64,
    /// Time after its last call.
    pub end: u64,
}

impl Transaction {
    /// Returns the time at which the transaction was over. A commit with an unknown outcome may
    /// come into effect later.
    pub(super) fn ended(&self) -> u64 {
        if self.outcome == Outcome::Unknown { u64::MAX } else { self.end }
    }

    /// Returns the keys and ids of all writes, and whether they are removals.
    pub(super) fn writes(&self) -> impl DoubleEndedIterator<Item = (&Key, WriteId, bool)> {
        self.operations.iter().filter_map(Operation::write)
    }
}

/// Transactions on a set of keys.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Keys that have a value before the first transaction.
    pub initial: Vec<(Key, WriteId)>,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
}
