//! The end of background work.

use std::{cell::Cell, time::Duration};

use super::{Scheduler, Unlinker};
use crate::clock::{Clock, SystemClock};

thread_local! {
    /// Number of [`InlineWork`] of this thread, for any store.
    static INLINE: Cell<usize> = const { Cell::new(0) };
}

/// This thread does background work in place of a worker until the guard is dropped.
#[derive(Debug)]
pub(super) struct InlineWork<'a>(&'a Scheduler);

impl<'a> InlineWork<'a> {
    /// Called before a claim: a close that sees none has shut down before it.
    pub(super) fn begin(scheduler: &'a Scheduler) -> Self {
        INLINE.set(INLINE.get() + 1);
        scheduler.state.lock().inline += 1;
        Self(scheduler)
    }
}

impl Drop for InlineWork<'_> {
    fn drop(&mut self) {
        INLINE.set(INLINE.get() - 1);
        let mut state = self.0.state.lock();
        state.inline -= 1;
        self.0.progress.notify_all();
    }
}

impl Scheduler {
    /// Ends the workers after the work that they have claimed. No more is claimed.
    pub(crate) fn shut_down(&self) {
        self.state.lock().shut_down = true;
        self.wake();
    }

    /// Waits until no claimed work and no unlink is in flight, for at most `timeout`. Returns
    /// whether none is.
    ///
    /// Called after [`shut_down`](Self::shut_down): no more is claimed.
    pub(crate) fn wait_for_claimed(&self, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut state = self.state.lock();
        while state.claims() > state.abandoned || state.unlinker != Unlinker::None {
            let Some(left) = timeout.checked_sub(clock.now()) else { return false };
            self.progress.wait_for(&mut state, left);
        }
        true
    }

    /// Waits until no other thread does background work in place of a worker: a
    /// [`RoomFuture`](crate::RoomFuture) does, and keeps no handle.
    ///
    /// Called after [`shut_down`](Self::shut_down): no more is claimed.
    pub(in crate::store) fn wait_for_inline_work(&self) {
        if INLINE.get() > 0 {
            // A listener closes the store within the work of this thread, which ends afterwards.
            return;
        }
        let mut state = self.state.lock();
        while state.inline > 0 {
            self.progress.wait(&mut state);
        }
    }

    /// Returns whether the store is being closed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.state.lock().shut_down
    }
}
