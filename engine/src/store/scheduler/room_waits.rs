//! Tasks that wait until background work no longer delays writes.

use std::{collections::BTreeMap, mem, task::Waker, time::Duration};

use crate::{
    commit::wake_all,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// Longest wait of a worker while tasks wait: readers free memory without a notification.
const LOOKS: Duration = Duration::from_millis(10);

/// The tasks that wait. Workers wake all of them after each step, and during a compaction after
/// each ring of the bell. Each task checks for room again.
#[derive(Debug, Default)]
pub(crate) struct RoomWaits {
    has_any: AtomicBool,
    state: Mutex<State>,
    /// Rings of the bell before tasks were woken by [`wake_after`](Self::wake_after).
    rings: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// By the number of the wait.
    wakers: BTreeMap<u64, Waker>,
    last: u64,
}

impl RoomWaits {
    /// Adds the task of the wait with this number, which is set if it is `None`. The task must
    /// check for room afterwards: there may have been some before.
    pub(crate) fn add(&self, number: &mut Option<u64>, waker: &Waker) {
        let mut state = self.state.lock();
        let number = *number.get_or_insert_with(|| {
            state.last += 1;
            state.last
        });
        let before = state.wakers.insert(number, waker.clone());
        self.has_any.store(true, SeqCst);
        // The drop of a waker may drop its task, which removes other waits.
        drop(state);
        drop(before);
    }

    /// Removes the task of the wait with this number.
    pub(crate) fn remove(&self, number: u64) {
        let mut state = self.state.lock();
        let removed = state.wakers.remove(&number);
        self.has_any.store(!state.wakers.is_empty(), SeqCst);
        drop(state);
        drop(removed);
    }

    /// Wakes all tasks. The caller holds no lock.
    pub(crate) fn wake(&self) {
        if !self.has_any.load(SeqCst) {
            return;
        }
        let wakers = {
            let mut state = self.state.lock();
            self.has_any.store(false, SeqCst);
            mem::take(&mut state.wakers)
        };
        wake_all(wakers.into_values());
    }

    /// Wakes all tasks if the bell rang since the last call. It has rung `rings` times. The caller
    /// holds no lock.
    pub(super) fn wake_after(&self, rings: u64) {
        if self.rings.fetch_max(rings, SeqCst) < rings {
            self.wake();
        }
    }

    /// Returns the longest wait of a worker that would wait for at most `wait_max`.
    pub(super) fn limit(&self, wait_max: Option<Duration>) -> Option<Duration> {
        match self.has_any.load(SeqCst) {
            true => Some(wait_max.map_or(LOOKS, |most| most.min(LOOKS))),
            false => wait_max,
        }
    }

    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn count(&self) -> usize {
        self.state.lock().wakers.len()
    }
}
