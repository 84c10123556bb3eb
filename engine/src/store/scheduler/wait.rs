//! Waiting for background work.

use std::time::Duration;

use super::whole::WholeRequests;
use crate::{Error, Result, store::Store};

/// How long a thread of a store without workers waits before it looks for work again.
const INLINE_LOOKS: Duration = Duration::from_millis(10);

impl Store {
    /// Waits until `done` returns `true`, as a result of background work. `done` gets the keyspaces
    /// that wait to be compacted as a whole.
    ///
    /// # Errors
    ///
    /// The reason why `done` cannot become true: the store is read-only or closed, or the disk is
    /// full.
    pub(crate) fn wait_for_work(&self, mut done: impl FnMut(&WholeRequests) -> bool) -> Result<()> {
        self.run_inline();
        let mut state = self.scheduler.state.lock();
        loop {
            if done(&state.whole) {
                return Ok(());
            }
            self.versions.check_writable()?;
            if state.shut_down {
                return Err(Error::Closed);
            }
            if let Some(error) = &state.no_space {
                return Err(error.clone());
            }
            self.scheduler.progress.wait(&mut state);
        }
    }

    /// Waits until no background work can be done.
    ///
    /// # Errors
    ///
    /// As [`wait_for_work`](Self::wait_for_work).
    pub(crate) fn wait_until_idle(&self) -> Result<()> {
        // A lookup may have held a filter for so long that the job let its room be.
        self.filters_have_room();
        self.scheduler.retry();
        self.freeze_asked();
        // A worker that was asked before has frozen its memtable then.
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
            if let Some(error) = state.no_space.as_ref().or(state.filters.why_put_off()) {
                return Err(error.clone());
            }
            if self.options.worker_threads == 0 {
                // Another store of the pool may have caused work since, which only this thread
                // does.
                self.scheduler.progress.wait_for(&mut state, INLINE_LOOKS);
                drop(state);
                self.run_inline();
                state = self.scheduler.state.lock();
            } else {
                self.scheduler.progress.wait(&mut state);
            }
        }
        drop(state);
        self.scheduler.unneeded.free();
        self.unlink_obsolete();
        Ok(())
    }
}
