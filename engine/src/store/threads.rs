//! Threads of an open store.

use std::sync::Arc;

use super::{Store, scheduler::Scheduler, store_thread::StoreThread};
use crate::Result;

/// Threads of an open store.
#[derive(Debug, Default)]
pub(super) struct Threads {
    workers: Vec<StoreThread>,
    /// Writes the file `STATS`. Workers may be busy with a long compaction.
    stats_writer: Option<StoreThread>,
    /// Refreshes a store that follows another process.
    refresher: Option<StoreThread>,
    /// Syncs the log for asynchronous commits: `None` before the first one, and without workers.
    syncer: Option<StoreThread>,
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
            self.start_stats_writer(store)?;
        }
        Ok(())
    }

    fn start_refresher(&mut self, store: &Arc<Store>) -> Result<()> {
        let Some(interval) = store.options.follow_interval else { return Ok(()) };
        let thread =
            StoreThread::repeating("sievedb-follow", store, interval, Store::refresh_to_end)?;
        self.refresher = Some(thread);
        Ok(())
    }

    fn start_stats_writer(&mut self, store: &Arc<Store>) -> Result<()> {
        let Some(interval) = store.options.stats_file_interval else { return Ok(()) };
        store.write_stats_file();
        let thread =
            StoreThread::repeating("sievedb-stats", store, interval, Store::write_stats_file)?;
        self.stats_writer = Some(thread);
        Ok(())
    }

    /// Starts the thread for syncs, unless it runs or the store has no workers.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be started.
    pub(super) fn start_syncer(&mut self, store: &Arc<Store>) -> Result<()> {
        if store.options.has_workers() && self.syncer.is_none() {
            let sync = |store: &Store| store.writer.waits().run(store.writer.log(), store);
            let stopped = Arc::clone(store);
            let stop = move || stopped.writer.waits().stop();
            self.syncer = Some(StoreThread::start("sievedb-sync", store, sync, stop)?);
        }
        Ok(())
    }

    /// Waits for the end of all threads of a store that shuts down, except the one that writes the
    /// last statistics.
    pub(super) fn end(self) -> Option<StoreThread> {
        drop((self.refresher, self.syncer, self.workers));
        self.stats_writer
    }
}

fn start_worker(store: &Arc<Store>, number: usize) -> Result<StoreThread> {
    let work = move |store: &Store| {
        if number == 0 {
            store.tables.filter_arena.use_huge_pages();
        }
        Scheduler::work(store);
    };
    // The shutdown of the scheduler stops the workers.
    StoreThread::start(&format!("sievedb-worker-{number}"), store, work, || {})
}
