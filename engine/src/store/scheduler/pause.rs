//! Pauses of compactions at the request of the caller.

use super::{Scheduler, State};
use crate::{Error, Result, store::Store, sync::atomic::Ordering::Relaxed};

impl Scheduler {
    /// Returns whether no compaction begins, and those in flight are cancelled.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    fn set_pauses(&self, state: &mut State, pauses: usize) {
        state.pauses = pauses;
        self.is_paused.store(pauses > 0, Relaxed);
        self.bell.ring();
        // Also writers that wait for a compaction.
        self.progress.notify_all();
    }

    /// Ends one pause.
    pub(crate) fn resume_compactions(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.pauses > 0, "resumed once too often");
        let pauses = state.pauses.saturating_sub(1);
        self.set_pauses(&mut state, pauses);
    }
}

impl Store {
    /// Begins a pause: cancels the compactions in flight, waits for their end, and lets none begin.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::ReadOnly`] if a compaction in flight ended by a panic. There is
    /// no pause then.
    pub(crate) fn pause_compactions(&self) -> Result<()> {
        let mut state = self.scheduler.state.lock();
        let pauses = state.pauses + 1;
        self.scheduler.set_pauses(&mut state, pauses);
        state.requests.fail_all(None, &Error::CompactionsPaused);
        while !state.running.is_empty() {
            let may_end = self.versions.check_writable();
            let may_end = may_end.and(if state.shut_down { Err(Error::Closed) } else { Ok(()) });
            if let Err(error) = may_end {
                let pauses = state.pauses - 1;
                self.scheduler.set_pauses(&mut state, pauses);
                return Err(error);
            }
            self.scheduler.progress.wait(&mut state);
        }
        Ok(())
    }
}
