//! The future of an asynchronous commit.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use crate::{
    Durability, Result,
    commit::DurableWait,
    store::{Store, open_store::OpenStore},
};

/// The future of an asynchronous commit, which resolves when the commit is durable:
/// [`Batch::commit_async`](crate::Batch::commit_async),
/// [`Keyspace::insert_async`](crate::Keyspace::insert_async).
///
/// Resolves to the sequence number of the last write of the commit. Any executor can await the
/// future, and [`wait`](Self::wait) blocks. A background thread syncs the log. The thread starts
/// with the first asynchronous commit. With [`worker_threads(0)`](crate::Options::worker_threads),
/// each poll syncs on the calling thread.
///
/// Dropping the future does not cancel the write. The future does not keep the store open: a close
/// or drop of the store resolves the future after the last sync.
///
/// # Failures
///
/// Resolves to an error if the sync fails:
///
/// * [`Error::Io`](crate::Error::Io) of a failed sync. The store then rejects writes, and later
///   commits fail with [`Error::ReadOnly`](crate::Error::ReadOnly).
/// * [`Error::Io`](crate::Error::Io) of a full disk. The store keeps the write in memory: call
///   [`Db::wait_durable`](crate::Db::wait_durable) after freeing space.
/// * [`Error::ReadOnly`](crate::Error::ReadOnly): the store became read-only before the sync.
/// * [`Error::ForkedChild`](crate::Error::ForkedChild) in a forked child.
///
/// The write remains visible, and may reappear when the store is reopened.
#[must_use = "a failed sync is reported here; dropping does not cancel the write"]
pub struct CommitFuture {
    store: Weak<Store>,
    wait: Arc<DurableWait>,
}

impl CommitFuture {
    pub(crate) fn new(open: &OpenStore, wait: Arc<DurableWait>) -> Self {
        Self { store: open.downgrade(), wait }
    }

    /// Creates the future of a commit without writes: resolved, with the sequence number 0.
    pub(crate) fn of_nothing() -> Self {
        let wait = DurableWait::new(0, Durability::Memory);
        wait.resolve(Ok(()));
        Self { store: Weak::new(), wait: Arc::new(wait) }
    }

    /// Returns the sequence number of the last write of the commit, before it is durable; 0 for a
    /// commit without writes.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.wait.sequence()
    }

    /// Blocks until the commit is durable. Returns the sequence number of its last write.
    ///
    /// # Errors
    ///
    /// As the [future](Self#failures).
    pub fn wait(self) -> Result<u64> {
        self.advance()?;
        self.wait.wait()
    }

    /// Syncs, in a store without threads. Refuses in a forked child, where a thread of the parent
    /// may hold a lock of the wait.
    fn advance(&self) -> Result<()> {
        let Some(store) = self.store.upgrade() else { return Ok(()) };
        if store.is_forked() {
            return store.check_open();
        }
        store.sync_inline();
        Ok(())
    }
}

impl Future for CommitFuture {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        match self.advance() {
            Ok(()) => self.wait.poll(context),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl fmt::Debug for CommitFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitFuture").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
