//! Waits for background work.

use std::time::Duration;

use super::{Scheduler, State, requests::RangeRequests};
use crate::{
    Error, Result,
    store::{Store, writer::stall::Awaited},
    sync::MutexGuard,
};

/// Interval at which a waiting thread checks for work of another store of the pool, or for memory
/// that a reader has freed.
const INLINE_LOOKS: Duration = Duration::from_millis(10);

impl Scheduler {
    /// Waits until some work was done, or for 10 ms.
    pub(in crate::store) fn wait_for_progress(&self) {
        self.progress.wait_for(&mut self.state.lock(), INLINE_LOOKS);
    }

    /// Lets waiting threads check their conditions. The caller holds the lock of the state.
    pub(in crate::store) fn notify_waiting(&self) {
        self.progress.notify_all();
    }

    /// Returns the error of a full disk that stops the `awaited` work.
    pub(in crate::store) fn no_space_for(&self, awaited: Awaited) -> Option<Error> {
        self.state.lock().no_space_for(awaited)
    }
}

impl State {
    fn no_space_for(&self, awaited: Awaited) -> Option<Error> {
        let full_disk = &self.full_disk;
        let error = match awaited {
            Awaited::Flushes => full_disk.flush_error(),
            Awaited::Any { compactions_of } => {
                full_disk.error().or_else(|| full_disk.refused_of(compactions_of?))
            }
        };
        error.cloned()
    }
}

impl Store {
    /// Waits until the `awaited` work makes `done` return `true`. `done` gets the requests to
    /// compact ranges.
    ///
    /// # Errors
    ///
    /// `done` cannot become true: the store is read-only or closed, or the disk is full.
    pub(in crate::store) fn wait_for(
        &self,
        awaited: Awaited,
        mut done: impl FnMut(&RangeRequests) -> bool,
    ) -> Result<()> {
        self.run_inline();
        let mut state = self.scheduler.state.lock();
        loop {
            if done(&state.requests) {
                return Ok(());
            }
            self.versions.check_writable()?;
            if state.shut_down {
                return Err(Error::Closed);
            }
            if let Some(error) = state.no_space_for(awaited) {
                return Err(error);
            }
            state = self.wait_for_step(state);
        }
    }

    /// Waits for progress of background work. Without workers, takes steps every 10 ms: another
    /// thread or store of the pool may have left work.
    fn wait_for_step<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.options.worker_threads > 0 {
            self.scheduler.progress.wait(&mut state);
            return state;
        }
        self.scheduler.progress.wait_for(&mut state, INLINE_LOOKS);
        drop(state);
        self.run_inline();
        self.scheduler.state.lock()
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    ///
    /// As [`wait_for`](Self::wait_for).
    pub(crate) fn wait_until_idle(&self) -> Result<()> {
        // A lookup may have held a filter for so long that its room was not used.
        self.filters.retry_stuck();
        self.scheduler.retry();
        self.freeze_asked();
        self.freeze_skipped();
        // Waits for a worker that freezes a memtable.
        drop(self.writer.placement());
        self.run_inline();
        if self.options.read_only {
            return Ok(());
        }
        let mut state = self.scheduler.state.lock();
        loop {
            self.versions.check_writable()?;
            if self.is_idle(&mut state) {
                break;
            }
            if state.shut_down {
                return Err(Error::Closed);
            }
            let full_disk = &state.full_disk;
            let full = full_disk.error().or_else(|| full_disk.refused());
            if let Some(error) = full.or_else(|| full_disk.filter_error()) {
                return Err(error.clone());
            }
            state = self.wait_for_step(state);
        }
        drop(state);
        self.scheduler.unneeded.free();
        self.unlink_obsolete();
        self.versions.check_writable()
    }
}
