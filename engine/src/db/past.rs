//! Reads of a store as it was.

use super::Db;
#[cfg(doc)]
use crate::{Error, Keyspace};
use crate::{KeyHistory, PointInTime, Result, Snapshot};

/// The past, if the default keyspace has a [history](crate::KeyspaceOptions::keep_history).
impl Db {
    /// Returns a snapshot of all keyspaces at a [`PointInTime`], as
    /// [`Keyspace::snapshot_at`]. Its [`keyspace`](Snapshot::keyspace) refuses those whose history
    /// does not reach back so far.
    ///
    /// # Errors
    ///
    /// [`Error::NotInHistory`] if the history of the default keyspace
    /// does not. Then call [`Keyspace::snapshot_at`] of others.
    pub fn snapshot_at(&self, point: impl Into<PointInTime>) -> Result<Snapshot> {
        Snapshot::of_past(self.default_keyspace(), point.into())
    }

    /// As [`Keyspace::history`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::history`].
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<KeyHistory> {
        self.default_keyspace().history(key)
    }
}
