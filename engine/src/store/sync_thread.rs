//! The thread that syncs the log for asynchronous commits.

use std::sync::Arc;

use super::Store;
use crate::{
    Error, Result,
    sync::thread::{self, JoinHandle},
};

/// A thread that syncs the log while commits wait for it, until it is dropped.
#[derive(Debug)]
pub(super) struct SyncThread {
    store: Arc<Store>,
    /// `None` once the thread has ended.
    thread: Option<JoinHandle<()>>,
}

impl SyncThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started.
    pub(super) fn start(store: &Arc<Store>) -> Result<Self> {
        let (store, shared) = (Arc::clone(store), Arc::clone(store));
        let thread = thread::Builder::new().name("sievedb-sync".to_owned());
        let sync = move || shared.writer.waits().run(shared.writer.log(), &*shared);
        let thread = thread.spawn(sync);
        let thread =
            thread.map_err(|error| Error::io("start a thread for", &store.tables.folder, error))?;
        Ok(Self { store, thread: Some(thread) })
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.store.writer.waits().stop();
        let thread = self.thread.take();
        // A thread whose sync makes the store read-only may drop the last handle, in a listener.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}
