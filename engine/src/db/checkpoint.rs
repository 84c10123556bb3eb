//! Checkpoints of a store.

use std::path::Path;

use super::Db;
use crate::{Checkpoint, Result};

impl Db {
    /// Creates a checkpoint in the directory `path`, which must be missing or empty: a copy of the
    /// store at one point in time. Writes continue.
    ///
    /// The checkpoint has all writes that were visible before the call, of any
    /// [`Durability`](crate::Durability), and batches as a whole. It is an independent store: it
    /// can be opened, written, moved, and deleted. Durable at return.
    ///
    /// Tables and log segments are hard links, which take no space until the store unlinks its own
    /// files. So the call takes time in proportion to the number of files, plus a sync of the log.
    /// The store may append to the newest log segment after the call; the checkpoint ignores these
    /// bytes. Files that cannot be linked are copied: on another file system, at the link limit of
    /// a file, or without permission. Files that become obsolete during the call are kept until it
    /// ends.
    ///
    /// Damaged and quarantined tables are linked unchanged. A
    /// [read-only](crate::Options::read_only) store can be checkpointed too; its log is copied. A
    /// [follower](crate::Options::follow) cannot. The call waits for a refresh of a
    /// [`Replica`](crate::Replica), which reads from its backup set, and fails after one that
    /// failed, until the next one succeeds.
    ///
    /// # Errors
    ///
    /// After an error, the directory has no store, and files of the call are removed. If the
    /// process was killed during the call, delete the directory, which cannot be opened as a store.
    ///
    /// * [`Error::DirectoryNotEmpty`](crate::Error::DirectoryNotEmpty),
    ///   [`Error::NotADirectory`](crate::Error::NotADirectory).
    /// * [`Error::DirectoriesOverlap`](crate::Error::DirectoriesOverlap): `path` is inside the
    ///   directory of the store, or contains it.
    /// * [`Error::Locked`](crate::Error::Locked): another checkpoint to `path` is in progress.
    /// * [`Error::Following`](crate::Error::Following): the store is a follower.
    /// * [`Error::ReadOnly`](crate::Error::ReadOnly): a write or sync of the store has failed, so
    ///   its state on the disk is unknown.
    /// * [`Error::Io`](crate::Error::Io): a failure that concerns only `path`, such as a full disk,
    ///   has no effect on the store.
    /// * [`Error::Closed`](crate::Error::Closed),
    ///   [`Error::ForkedChild`](crate::Error::ForkedChild).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// let db = sievedb::Db::open(path)?;
    /// db.insert("key", "value")?;
    /// let checkpoint = db.checkpoint(&copy)?;
    /// assert_eq!(checkpoint.sequence, db.snapshot().sequence());
    /// db.remove("key")?;
    ///
    /// let copy = sievedb::Db::open(copy)?;
    /// assert_eq!(copy.get("key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        self.default.open_store().accept()?.checkpoint(path.as_ref())
    }
}
