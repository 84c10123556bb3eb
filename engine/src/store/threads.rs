//! Threads of an open store.

use std::sync::Arc;

use super::{
    Store, interval_thread::IntervalThread, scheduler::Scheduler, stats_file::StatsWriter,
    sync_thread::SyncThread,
};
use crate::{
    Error, Result,
    sync::thread::{self, JoinHandle},
};

/// Threads of an open store.
#[derive(Debug, Default)]
pub(super) struct Threads {
    workers: Vec<JoinHandle<()>>,
    stats_writer: Option<StatsWriter>,
    /// Refreshes a store that follows another process.
    refresher: Option<IntervalThread>,
    /// `None` before the first asynchronous commit, and without workers.
    syncer: Option<SyncThread>,
}

impl Threads {
    /// Starts the threads that the options of `store` require.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a thread cannot be started; those before it run.
    pub(super) fn start(&mut self, store: &Arc<Store>) -> Result<()> {
        if store.options.follow {
            self.start_refresher(store)?;
        }
        if !store.options.read_only {
            for number in 0..store.options.worker_threads {
                self.workers.push(start_worker(store, number)?);
            }
            self.stats_writer = StatsWriter::start(store)?;
        }
        Ok(())
    }

    fn start_refresher(&mut self, store: &Arc<Store>) -> Result<()> {
        let Some(interval) = store.options.follow_interval else { return Ok(()) };
        let thread =
            IntervalThread::start("sievedb-follow", store, interval, Store::refresh_to_end)?;
        self.refresher = Some(thread);
        Ok(())
    }

    /// Starts the thread for syncs, unless it runs or the store has no workers.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be started.
    pub(super) fn start_syncer(&mut self, store: &Arc<Store>) -> Result<()> {
        if store.options.has_workers() && self.syncer.is_none() {
            self.syncer = Some(SyncThread::start(store)?);
        }
        Ok(())
    }

    /// Waits for the end of all threads of a store that shuts down, except the one that writes the
    /// last statistics.
    pub(super) fn end(self) -> Option<StatsWriter> {
        drop((self.refresher, self.syncer));
        for worker in self.workers {
            // A worker that drops the last handle, in a listener, cannot wait for itself. A worker
            // that panicked has reported it already.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join();
            }
        }
        self.stats_writer
    }
}

fn start_worker(store: &Arc<Store>, number: usize) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(store);
    let thread = thread::Builder::new().name(format!("sievedb-worker-{number}"));
    let started = thread.spawn(move || {
        if number == 0 {
            shared.tables.filter_arena.use_huge_pages();
        }
        Scheduler::work(&shared);
    });
    started.map_err(|error| Error::io("start a worker for", &store.tables.folder, error))
}
