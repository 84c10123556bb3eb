//! Reads of the replicated state.

use std::sync::Arc;

use tokio::sync::{RwLock, RwLockWriteGuard};

use crate::{Error, Result};

/// A handle that reads the replicated state, and never a partially installed snapshot.
///
/// An installation replaces the contents of the application's keyspaces in several commits. A node
/// that has lost its leadership may begin an installation between its linearizability check and the
/// following read.
#[derive(Debug, Clone)]
pub struct Reads {
    /// `true` if the contents are complete.
    complete: Arc<RwLock<bool>>,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { complete: Arc::new(RwLock::new(true)) }
    }

    /// Calls `read` while no snapshot is being installed. Waits asynchronously for the end of an
    /// installation.
    ///
    /// `read` runs on the calling thread, and delays installations. For a long read, return a
    /// [snapshot](sievedb::Db::snapshot) from `read`, which an installation does not change.
    ///
    /// Calls cannot be nested, which would deadlock: `read` is not asynchronous.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if an installation has failed: open the store again.
    pub async fn read<T>(&self, read: impl FnOnce() -> T) -> Result<T> {
        let complete = self.complete.read().await;
        if !*complete {
            let message = "an installation has failed; open the store again";
            return Err(Error::Snapshot(message.to_owned()));
        }
        Ok(read())
    }

    /// Waits for reads to end, and excludes further reads until the guard is dropped. The
    /// installation sets the guarded value to `false` when it begins and to `true` when it has
    /// succeeded.
    ///
    /// Blocks the thread, which must not run tasks.
    pub(crate) fn exclude(&self) -> RwLockWriteGuard<'_, bool> {
        self.complete.blocking_write()
    }
}
