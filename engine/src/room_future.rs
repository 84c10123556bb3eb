//! The future of a wait until writes are not delayed.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use crate::{
    Error, Result,
    read::tree::Tree,
    store::{Store, open_store::OpenStore},
};

/// Bytes of the entry that [`Keyspace::room`](crate::Keyspace::room) waits for.
pub(crate) const ROOM_BYTES: usize = 4 << 10;

/// A future that resolves when background work would not delay a write:
/// [`Keyspace::room`](crate::Keyspace::room), [`Keyspace::room_for`](crate::Keyspace::room_for),
/// [`Batch::room`](crate::Batch::room).
///
/// Any executor can await the future, and [`wait`](Self::wait) blocks. Another write may use the
/// room first, so the write may fail again. With
/// [`worker_threads(0)`](crate::Options::worker_threads), a poll does the background work on the
/// calling thread. The future does not keep the store open.
///
/// # Failures
///
/// * [`Error::WriteTooLarge`]: the batch exceeds the memory for memtables.
/// * [`Error::Io`]: the disk is full, which stops background work.
/// * [`Error::ReadOnly`], [`Error::Closed`], [`Error::ForkedChild`].
#[must_use = "a wait begins when it is polled, or by `wait`"]
pub struct RoomFuture {
    store: Weak<Store>,
    /// Memory of the write in memtables.
    bytes: u64,
    trees: Vec<Arc<Tree>>,
    /// Number of the wait in the store; `None` before the first poll.
    number: Option<u64>,
}

impl RoomFuture {
    pub(crate) fn new(open: &OpenStore, bytes: u64, trees: Vec<Arc<Tree>>) -> Self {
        Self { store: open.downgrade(), bytes, trees, number: None }
    }

    /// Creates the wait of a batch without writes, which ends at once.
    pub(crate) fn of_nothing() -> Self {
        Self { store: Weak::new(), bytes: 0, trees: Vec::new(), number: None }
    }

    /// Blocks until a write would not be delayed.
    ///
    /// # Errors
    ///
    /// As the [future](Self#failures).
    pub fn wait(self) -> Result<()> {
        match self.store()? {
            Some(store) => store.report_later(|| store.wait_until_room(self.bytes, &self.trees)),
            None => Ok(()),
        }
    }

    /// Returns the store; `None` for an empty write.
    fn store(&self) -> Result<Option<Arc<Store>>> {
        if self.bytes == 0 {
            return Ok(None);
        }
        let store = self.store.upgrade().ok_or(Error::Closed)?;
        store.check_open()?;
        Ok(Some(store))
    }
}

impl Future for RoomFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let store = match self.store() {
            Ok(Some(store)) => store,
            Ok(None) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error)),
        };
        if !store.options.has_workers() {
            // The listener may drop the last handle of the store.
            let wait = || store.wait_until_room(self.bytes, &self.trees);
            return Poll::Ready(store.report_later(wait));
        }
        if let Some(result) = store.poll_room(self.bytes, &self.trees) {
            return Poll::Ready(result);
        }
        store.scheduler.room_waits().add(&mut self.number, context.waker());
        // A worker may have made room before it saw the task.
        store.poll_room(self.bytes, &self.trees).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for RoomFuture {
    fn drop(&mut self) {
        // Otherwise the store would keep the task.
        if let Some(number) = self.number
            && let Some(store) = self.store.upgrade()
            && !store.is_forked()
        {
            store.scheduler.room_waits().remove(number);
        }
    }
}

impl fmt::Debug for RoomFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomFuture").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
