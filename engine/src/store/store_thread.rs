//! A thread of an open store.

use std::{fmt, sync::Arc, time::Duration};

use super::Store;
use crate::{
    Error, Result,
    sync::{
        Condvar, Mutex,
        thread::{self, JoinHandle},
    },
};

/// A thread that a drop stops and waits for.
pub(super) struct StoreThread {
    stop: Box<dyn Fn() + Send>,
    /// `None` once the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// Signal that ends a thread.
#[derive(Debug, Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl StoreThread {
    /// Starts a thread that calls `work`, which returns after `stop` was called.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started.
    pub(super) fn start(
        name: &str,
        store: &Arc<Store>,
        work: impl FnOnce(&Store) + Send + 'static,
        stop: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::clone(store);
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || work(&shared));
        let thread =
            thread.map_err(|error| Error::io("start a thread for", &store.tables.folder, error))?;
        Ok(Self { stop: Box::new(stop), thread: Some(thread) })
    }

    /// Starts a thread that calls `work` after each `interval`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(super) fn repeating(
        name: &str,
        store: &Arc<Store>,
        interval: Duration,
        work: impl Fn(&Store) + Send + 'static,
    ) -> Result<Self> {
        let end = Arc::<End>::default();
        let end_there = Arc::clone(&end);
        let work = move |store: &Store| repeat(store, &end_there, interval, work);
        Self::start(name, store, work, move || {
            *end.has_come.lock() = true;
            end.comes.notify_all();
        })
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        (self.stop)();
        let thread = self.thread.take();
        // A thread whose work drops the last handle, in a listener, cannot wait for itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            // A panic ended only this thread. A worker has already reported it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for StoreThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

fn repeat(store: &Store, end: &End, interval: Duration, work: impl Fn(&Store)) {
    let mut has_come = end.has_come.lock();
    while !*has_come {
        end.comes.wait_for(&mut has_come, interval);
        if !*has_come {
            // The work takes locks, and a close waits for this one.
            drop(has_come);
            work(store);
            has_come = end.has_come.lock();
        }
    }
}
