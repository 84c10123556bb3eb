//! The part of the history that survives a power cut.

use super::Db;
use crate::Result;

/// Durability.
impl Db {
    /// Returns the durable watermark of the store: every write to any keyspace with a sequence
    /// number up to it survives a power cut.
    ///
    /// Never decreases. Every sync of the log raises it: by writes with
    /// [`Durability::Disk`](crate::Durability::Disk), by [`persist`](Self::persist) and by flushes.
    /// After a failed sync it does not change. It may exceed
    /// [`Snapshot::sequence`](crate::Snapshot::sequence), because it includes writes that are not
    /// yet visible. Failed writes have sequence numbers too.
    ///
    /// Costs one atomic load. Returns 0 for a store opened [read-only](crate::Options::read_only),
    /// whose data may not be synced. Can be called after the store is closed.
    #[must_use]
    pub fn durable_sequence(&self) -> u64 {
        let store = self.store();
        if store.options.read_only { 0 } else { store.writer.durable() }
    }

    /// Blocks until every write with a sequence number up to `sequence` survives a power cut.
    /// Returns at once if [`durable_sequence`](Self::durable_sequence) has reached it.
    ///
    /// Syncs the log, together with concurrent durable writes. Sequence numbers come from
    /// [`CommitFuture::sequence`](crate::CommitFuture::sequence) and
    /// [`Snapshot::sequence`](crate::Snapshot::sequence).
    ///
    /// # Errors
    ///
    /// * [`Error::NotWritten`](crate::Error::NotWritten) if no write has this number yet.
    /// * [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly): the writes
    ///   remain visible, and may reappear when the store is reopened. On a full disk, call again
    ///   after freeing space. A store that was opened read-only always returns
    ///   [`Error::ReadOnly`](crate::Error::ReadOnly): it cannot sync writes of another process.
    /// * [`Error::Closed`](crate::Error::Closed),
    ///   [`Error::ForkedChild`](crate::Error::ForkedChild).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("key", "value")?;
    /// let sequence = db.snapshot().sequence();
    /// db.wait_durable(sequence)?;
    /// assert!(db.durable_sequence() >= sequence);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn wait_durable(&self, sequence: u64) -> Result<()> {
        let store = self.accept()?;
        if store.options.read_only && sequence > 0 {
            // Another process may not have synced the writes that this store has read.
            store.versions.check_writable()?;
        }
        store.writer.make_durable_to(store, sequence)
    }
}
