//! Reads of the past of a store.

use super::Db;
#[cfg(doc)]
use crate::{Error, Keyspace};
use crate::{KeyHistory, PointInTime, Result, Snapshot};

/// The past, if the default keyspace has a [history](crate::KeyspaceOptions::keep_history).
impl Db {
    /// Returns a snapshot of all keyspaces at a [`PointInTime`], as [`Keyspace::snapshot_at`].
    /// [`Snapshot::keyspace`] returns [`Error::NotInHistory`] for a keyspace whose history begins
    /// later.
    ///
    /// # Errors
    ///
    /// [`Error::NotInHistory`] if the history of the default keyspace begins later. Then call
    /// [`Keyspace::snapshot_at`] of another one.
    pub fn snapshot_at(&self, point: impl Into<PointInTime>) -> Result<Snapshot> {
        Snapshot::of_past(self.default_keyspace(), point.into())
    }

    /// Returns the versions of `key` in the default keyspace, as [`Keyspace::history`] does.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::history`].
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<KeyHistory> {
        self.default_keyspace().history(key)
    }
}
