//! Closes a store explicitly: with its last handle, or while other handles exist.

use std::{error, fmt, sync::Arc, time::Duration};

use super::Db;
use crate::{
    Durability, Error, Keyspace, Result, handle::Handle, handle_counts::HandleKind,
    store::open_store::OpenStore,
};

impl Db {
    /// Closes the store as the drop of its last handle does, and returns errors.
    ///
    /// After `Ok`, every acknowledged write of any durability survives a power cut. All threads of
    /// the store have ended, and any process may open the store. Flushes and compactions in flight
    /// are cancelled. Memtables are not flushed: the next opening replays the log.
    ///
    /// If other handles of any kind exist, the call makes all acknowledged writes durable and fails
    /// with [`Error::StillOpen`], which counts the handles by kind. If several threads close the
    /// last handles concurrently, all may fail. [`shutdown`](Self::shutdown) closes the store even
    /// if other handles exist.
    ///
    /// Writes nothing if the store was opened [read-only](crate::Options::read_only).
    ///
    /// # Errors
    ///
    /// [`CloseError::into_db`] returns the handle if the store is still open.
    ///
    /// * [`Error::StillOpen`] if other handles exist.
    /// * [`Error::Io`], or [`Error::ReadOnly`] with its cause. Each write has the [`Durability`]
    ///   that it requested, so writes with [`Durability::Memory`] may be lost. On a full disk, call
    ///   [`persist`](Self::persist) before, and retry it after freeing space.
    /// * [`Error::Closed`] after a [`shutdown`](Self::shutdown).
    /// * [`Error::ForkedChild`] in a [forked child](Self#forks).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let users = db.keyspace("users")?;
    /// users.insert("7", "anna")?;
    /// drop(users);
    /// db.close()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn close(self) -> Result<(), CloseError> {
        let (tree, read_options) = (Arc::clone(self.default.tree()), self.default.read_options());
        let open = Arc::clone(self.open_store());
        if let Err(error) = persist_for_others(&open) {
            return Err(CloseError::new(error, Some(self)));
        }
        drop(self);
        match Arc::try_unwrap(open) {
            Ok(last) => {
                // Its memtables must be freed before the store leaves its memory pool.
                drop(tree);
                last.end().map_err(|error| CloseError::new(error, None))
            }
            Err(open) => {
                let (path, handles) = (open.store().tables.folder.clone(), open.handles().get());
                let handle = Handle::new(open, HandleKind::Db);
                let db = Self { default: Keyspace::new(handle, tree, read_options) };
                Err(CloseError::new(Error::StillOpen { path, handles }, Some(db)))
            }
        }
    }

    /// Closes the store even if other handles exist. All further calls of any handle, iterators
    /// included, fail with [`Error::Closed`]. An iterator yields the error once, and is then at its
    /// end. An iterator at its end yields no error.
    ///
    /// Cancels flushes, compactions, `compact`, `verify` and `reencrypt` in flight. Waits up to
    /// `timeout` for these and for writes in flight. The close itself syncs the log and unlinks
    /// obsolete files; `timeout` does not limit it. After `Ok` the store is closed as by
    /// [`close`](Self::close), and may be opened again while the old handles exist. Does nothing if
    /// the store is closed.
    ///
    /// Does not wait for reads in flight. A lookup in flight returns its result or an error. The
    /// closure of a `get_with` may still run after the call returns. Such reads keep memory and
    /// open files, but no files on disk.
    ///
    /// Must not be called by a listener: the call would wait up to `timeout` for the work that
    /// called the listener.
    ///
    /// # Errors
    ///
    /// [`Error::StillBusy`] if work in flight did not end within `timeout`. All calls are refused
    /// and the store stays locked, until another `shutdown`, or the drop of the last handle, closes
    /// it. Other errors are those of [`close`](Self::close); the store is closed then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let users = db.keyspace("users")?;
    /// db.shutdown(Duration::from_secs(10))?;
    /// assert!(matches!(users.get("anna"), Err(sievedb::Error::Closed)));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.open_store().shutdown(timeout)
    }
}

/// Makes all writes durable if `open` has handles other than the one being closed.
fn persist_for_others(open: &Arc<OpenStore>) -> Result<()> {
    let store = open.accept()?;
    // The store may be closed by a drop later, which cannot report an error.
    let has_others = Arc::strong_count(open) > 2;
    if has_others && !store.options.read_only {
        store.writer.persist(store, Durability::Disk)
    } else {
        Ok(())
    }
}

/// The error of [`Db::close`], with the handle if the store is still open.
///
/// `?` converts it into an [`Error`] and drops the handle. In a `Box<dyn Error>` the handle keeps
/// the store open and locked until the box is dropped.
#[derive(Debug)]
pub struct CloseError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    error: Error,
    db: Option<Db>,
}

impl CloseError {
    pub(crate) fn new(error: Error, db: Option<Db>) -> Self {
        Self(Box::new(Parts { error, db }))
    }

    /// Returns the error.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// Returns the handle, which remains usable. `None` if the store is closed and only its last
    /// writes failed.
    #[must_use]
    pub fn into_db(self) -> Option<Db> {
        self.0.db
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Self {
        error.0.error
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.error.fmt(f)
    }
}

impl error::Error for CloseError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.error.source()
    }
}
