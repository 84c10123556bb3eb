//! Reads of the past of a store, and its clock.

use std::time::{Duration, SystemTime};

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
    /// [`Error::NotInHistory`] if the history of the default keyspace begins later: call
    /// [`Keyspace::snapshot_at`] of another one. [`Error::Closed`], [`Error::ForkedChild`].
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

/// The store clock.
impl Db {
    /// Returns the time of the store clock. Values expire by it, and [`PointInTime::Time`] is a
    /// time of it.
    ///
    /// It may differ from Unix time. When the store is opened, it moves forward to the wall clock.
    /// While the store is open, it advances with the monotonic clock of the machine. So:
    ///
    /// * It stays ahead after the wall clock was set back. A crash may move it back then, to the
    ///   time of the last flush or compaction; a close may, if no value of the store expires.
    /// * It is behind after the machine was suspended, or the wall clock was set forward, until the
    ///   store is opened again.
    ///
    /// A store opened [read-only](crate::Options::read_only) returns the time of its opening. A
    /// [follower](crate::Options::follow) and a [replica](crate::Replica) have a clock of their
    /// own. Each refresh moves it forward to the time of the last flush or compaction that the
    /// refresh shows. Can be called after the store is closed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let minute = Duration::from_secs(60);
    /// db.insert_expiring_at("session", "anna", db.store_time() + minute)?;
    /// assert!(db.contains_key("session")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn store_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.store().versions.clock().now_ms())
    }
}
