//! Closes a store while handles live, or with its last one.

use std::{sync::Arc, time::Duration};

use super::Db;
use crate::{
    CloseError, Durability, Keyspace, Result,
    handles::{Handle, HandleKind},
    store::open_store::OpenStore,
};

impl Db {
    /// Closes the store, as the drop of its last handle does, and reports failures.
    ///
    /// After `Ok`, every acknowledged write, whatever its durability, survives the loss of power; all threads
    /// of the store have ended; and any process may open it. Flushes and compactions in flight are
    /// cancelled. The log holds what is in memtables: the next opening reads it, unless it was
    /// [flushed](Self::flush).
    ///
    /// While other handles of any kind live, clones in other threads among them, this makes all acknowledged
    /// writes durable and fails with [`Error::StillOpen`], which counts these handles by kind. Of several
    /// threads that close the last handles at once, all may get that: [`shutdown`](Self::shutdown) closes a
    /// store whatever handles it has.
    ///
    /// # Errors
    ///
    /// [`CloseError::into_db`] returns the handle, unless the store is closed all the same.
    ///
    /// [`Error::StillOpen`] if other handles live. [`Error::Io`], or [`Error::ReadOnly`] with the cause if the
    /// store had become so: each write has what its [`Durability`] promised and no more, so writes with
    /// [`Durability::Memory`] may be lost. To make room on a full disk and try again, call
    /// [`persist`](Self::persist) before. [`Error::Closed`] after a [`shutdown`](Self::shutdown), and
    /// [`Error::ForkedChild`] in a [forked child](Self#forks).
    ///
    /// A store that was opened [read-only](crate::Options::read_only) has nothing to write.
    ///
    /// [`Error::Closed`]: crate::Error::Closed
    /// [`Error::ForkedChild`]: crate::Error::ForkedChild
    /// [`Error::StillOpen`]: crate::Error::StillOpen
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::ReadOnly`]: crate::Error::ReadOnly
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// let users = db.keyspace("users")?;
    /// users.insert("7", "anna")?;
    /// drop(users);
    /// db.close()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn close(self) -> Result<(), CloseError> {
        let (tree, read_options) = (Arc::clone(self.tree()), self.read_options());
        let open = Arc::clone(self.open_store());
        if let Err(error) = persist_for_others(&open) {
            return Err(CloseError::new(error, Some(self)));
        }
        drop(self);
        match Arc::try_unwrap(open) {
            Ok(last) => last.end().map_err(|error| CloseError::new(error, None)),
            Err(open) => {
                let (path, handles) = (open.store().tables.folder.clone(), open.handles().get());
                let handle = Handle::new(open, HandleKind::Db);
                let db = Self { default: Keyspace::new(handle, tree, read_options) };
                Err(CloseError::new(crate::Error::StillOpen { path, handles }, Some(db)))
            }
        }
    }

    /// Closes the store though other handles live. From now on every call of any handle answers
    /// [`Error::Closed`](crate::Error::Closed), iterators included.
    ///
    /// Waits for writes, flushes and compactions in flight, up to `timeout`; flushes, compactions, `compact`
    /// and `verify` are cancelled. Does not wait for reads in flight: a lookup that has begun returns its answer
    /// or an error, and the closure of a `get_with` may run on after this returns. They keep the memory and the
    /// open files that they read, and nothing that is on disk. After `Ok` the store is closed as by
    /// [`close`](Self::close), and may be opened again while the old handles live. Does nothing for a store
    /// that is closed. Not for listeners: the work in flight would include their own.
    ///
    /// # Errors
    ///
    /// [`Error::StillBusy`](crate::Error::StillBusy) if work in flight did not end in time: all calls are refused, the store stays
    /// locked, and another call, or the drop of the last handle, closes it.
    /// Else as [`close`](Self::close), and the store is closed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// let users = db.keyspace("users")?;
    /// db.shutdown(Duration::from_secs(10))?;
    /// assert!(matches!(users.get("anna"), Err(sievedb::Error::Closed)));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.open_store().shutdown(timeout)
    }
}

/// Makes everything durable if `open` has handles beside the one that is being closed.
fn persist_for_others(open: &Arc<OpenStore>) -> Result<()> {
    let store = open.accept()?;
    // Whoever closes the store later may drop a handle, which cannot report an error.
    let has_others = Arc::strong_count(open) > 2;
    if has_others && !store.options.read_only { store.persist(Durability::Disk) } else { Ok(()) }
}
