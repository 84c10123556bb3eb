//! Stores whose transactions can be checked.

use super::history::{Key, WriteId};

/// A store with transactions.
pub trait Target: Sync {
    /// A transaction.
    type Transaction<'t>: Calls
    where
        Self: 't;

    /// Begins a transaction.
    fn begin(&self) -> Self::Transaction<'_>;
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, Failure>;

/// The calls of a transaction.
pub trait Calls {
    /// Returns the write that the value of `key` belongs to.
    ///
    /// # Errors
    ///
    /// A conflict aborts the transaction.
    fn get(&mut self, key: &str) -> Result<Option<WriteId>>;

    /// Returns at most `limit` entries of a range.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn scan(&mut self, range: &Range) -> Result<Vec<(Key, WriteId)>>;

    /// Writes a value that `id` identifies.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn insert(&mut self, key: &str, id: WriteId) -> Result<()>;

    /// Removes `key`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn remove(&mut self, key: &str) -> Result<()>;

    /// Removes the keys of a range, after a scan of it that found `keys`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn remove_range(&mut self, range: &Range, keys: &[Key]) -> Result<()> {
        let _ = range;
        keys.iter().try_for_each(|key| self.remove(key))
    }

    /// Commits. Returns the place among all commits, if the transaction writes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn commit(self) -> Result<Option<u64>>;

    /// Drops all writes.
    fn abort(self);
}

/// A range to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First key.
    pub from: Key,
    /// First key above the range.
    pub to: Key,
    /// Entries to read, at most.
    pub limit: usize,
    /// From the end.
    pub is_descending: bool,
}

/// Error of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Another transaction conflicts: nothing was written.
    Conflict,
    /// All may have been written, or nothing.
    Unknown,
}
