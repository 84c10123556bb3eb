//! Tasks that wait until background work no longer delays writes.

use std::{mem, task::Waker, time::Duration};

use crate::{
    commit::wake_all,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Longest wait of a worker while tasks wait: readers free memory without a notification.
const LOOKS: Duration = Duration::from_millis(10);

/// The tasks that wait. Workers wake all of them after each step, and each checks for room again.
#[derive(Debug, Default)]
pub(crate) struct RoomWaits {
    has_any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl RoomWaits {
    /// Adds a task. It must check for room afterwards: there may have been some before.
    pub(crate) fn add(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.has_any.store(true, SeqCst);
    }

    /// Wakes all tasks. The caller holds no lock.
    pub(crate) fn wake(&self) {
        if !self.has_any.load(SeqCst) {
            return;
        }
        let wakers = {
            let mut wakers = self.wakers.lock();
            self.has_any.store(false, SeqCst);
            mem::take(&mut *wakers)
        };
        wake_all(wakers);
    }

    /// Returns the longest wait of a worker that would wait for at most `wait_max`.
    pub(super) fn limit(&self, wait_max: Option<Duration>) -> Option<Duration> {
        match self.has_any.load(SeqCst) {
            true => Some(wait_max.map_or(LOOKS, |most| most.min(LOOKS))),
            false => wait_max,
        }
    }
}
