//! Counts the handles of a store by kind.

use std::fmt;

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Db,
    Keyspace,
    Snapshot,
    Iterator,
    Batch,
    Transaction,
}

/// Number of existing handles of a store, by kind: see
/// [`Error::StillOpen`](crate::Error::StillOpen).
///
/// `Display` omits kinds without a handle: `1 Db, 2 iterators`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenHandles {
    /// Number of [`Db`](crate::Db) handles, and of [`CompactionPause`](crate::CompactionPause)s.
    pub dbs: usize,
    /// Number of [`Keyspace`](crate::Keyspace) handles, and of [`Ingestion`](crate::Ingestion)s and
    /// [`UnsortedIngestion`](crate::UnsortedIngestion)s.
    pub keyspaces: usize,
    /// Number of [`Snapshot`](crate::Snapshot) and [`KeyspaceSnapshot`](crate::KeyspaceSnapshot)
    /// handles.
    pub snapshots: usize,
    /// Number of [`Range`](crate::Range), [`Keys`](crate::Keys) and
    /// [`KeyHistory`](crate::KeyHistory) iterators, and of [`ValueReader`](crate::ValueReader)s of
    /// values in blob files.
    pub iterators: usize,
    /// Number of [`Batch`](crate::Batch)es with entries.
    pub batches: usize,
    /// Number of [`Transaction`](crate::Transaction)s.
    pub transactions: usize,
}

impl fmt::Display for OpenHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.dbs, ["Db", "Dbs"]),
            (self.keyspaces, ["Keyspace", "Keyspaces"]),
            (self.snapshots, ["Snapshot", "Snapshots"]),
            (self.iterators, ["iterator", "iterators"]),
            (self.batches, ["Batch", "Batches"]),
            (self.transactions, ["Transaction", "Transactions"]),
        ];
        let mut separator = "";
        for (count, [one, many]) in kinds.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {}", if count == 1 { one } else { many })?;
            separator = ", ";
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct HandleCounts([AtomicUsize; 6]);

impl HandleCounts {
    pub(crate) fn get(&self) -> OpenHandles {
        let [dbs, keyspaces, snapshots, iterators, batches, transactions] =
            [0, 1, 2, 3, 4, 5].map(|kind: usize| self.0[kind].load(Relaxed));
        OpenHandles { dbs, keyspaces, snapshots, iterators, batches, transactions }
    }

    pub(crate) fn add(&self, kind: HandleKind) {
        self.0[kind as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn remove(&self, kind: HandleKind) {
        let before = self.0[kind as usize].fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a {kind:?} was not counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_handles_are_not_displayed() {
        let mut handles = OpenHandles { dbs: 1, iterators: 2, ..OpenHandles::default() };
        assert_eq!(handles.to_string(), "1 Db, 2 iterators");
        handles.batches = 1;
        assert_eq!(handles.to_string(), "1 Db, 2 iterators, 1 Batch");
    }
}
