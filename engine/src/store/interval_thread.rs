//! A thread that repeats work at intervals.

use std::{sync::Arc, time::Duration};

use super::Store;
use crate::{
    Error, Result,
    sync::{
        Condvar, Mutex,
        thread::{self, JoinHandle},
    },
};

/// Thread that repeats work until it is dropped.
#[derive(Debug)]
pub(super) struct IntervalThread {
    end: Arc<End>,
    /// `None` once the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// Signal that ends the thread.
#[derive(Debug, Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl IntervalThread {
    /// Starts a thread that calls `work` after each `interval`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started.
    pub(super) fn start(
        name: &str,
        store: &Arc<Store>,
        interval: Duration,
        work: impl Fn(&Store) + Send + 'static,
    ) -> Result<Self> {
        let end = Arc::<End>::default();
        let (store_there, end_there) = (Arc::clone(store), Arc::clone(&end));
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || repeat(&store_there, &end_there, interval, work));
        let thread =
            thread.map_err(|error| Error::io("start a thread for", &store.tables.folder, error))?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for IntervalThread {
    fn drop(&mut self) {
        *self.end.has_come.lock() = true;
        self.end.comes.notify_all();
        let thread = self.thread.take();
        // A thread whose work drops the last handle, in a listener, cannot wait for itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            // A panic ends the work alone.
            let _ = thread.join();
        }
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
