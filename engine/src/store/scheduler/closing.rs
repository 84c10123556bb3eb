//! The end of background work.

use std::{cell::RefCell, ptr, time::Duration};

use super::{Scheduler, Unlinker};
use crate::clock::{Clock, SystemClock};

thread_local! {
    /// Addresses of the schedulers of each [`InlineWork`] of this thread.
    static INLINE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread does background work in place of a worker until the guard is dropped.
#[derive(Debug)]
pub(super) struct InlineWork<'a>(&'a Scheduler);

impl<'a> InlineWork<'a> {
    /// Called before a claim: a close that sees none has shut down before it.
    pub(super) fn begin(scheduler: &'a Scheduler) -> Self {
        INLINE.with_borrow_mut(|inline| inline.push(ptr::from_ref(scheduler).addr()));
        scheduler.state.lock().inline += 1;
        Self(scheduler)
    }
}

impl Drop for InlineWork<'_> {
    fn drop(&mut self) {
        INLINE.with_borrow_mut(Vec::pop);
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

    /// Waits until no claimed work, no unlink and no work in place of a worker is in flight, for at
    /// most `timeout`. Returns whether none is.
    ///
    /// Called after [`shut_down`](Self::shut_down): no more is claimed.
    pub(crate) fn wait_for_claimed(&self, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut state = self.state.lock();
        let own = self.inline_work_of_thread();
        while state.claims() > state.abandoned
            || state.unlinker != Unlinker::None
            || state.inline > own
        {
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
        let own = self.inline_work_of_thread();
        let mut state = self.state.lock();
        while state.inline > own {
            self.progress.wait(&mut state);
        }
    }

    /// Returns how often this thread does such work: a listener that closes the store within it
    /// cannot wait for its end.
    fn inline_work_of_thread(&self) -> usize {
        let address = ptr::from_ref(self).addr();
        INLINE.with_borrow(|inline| inline.iter().filter(|&&of| of == address).count())
    }

    /// Returns whether the store is being closed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.state.lock().shut_down
    }
}
