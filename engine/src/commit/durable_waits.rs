//! Visible writes that wait for durability, without one thread each.

use std::{
    mem,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use sievedb_format::SequenceNumber;

use super::{LogHost, SharedLog, wake_all};
use crate::{
    Durability, Error, Result,
    sync::{Condvar, Mutex},
};

/// A visible write that becomes durable in the background.
#[derive(Debug)]
pub(crate) struct DurableWait {
    /// Last sequence number of the write.
    sequence: SequenceNumber,
    durability: Durability,
    state: Mutex<WaitState>,
    resolved: Condvar,
}

#[derive(Debug, Default)]
struct WaitState {
    /// `None` until the write is durable, or its sync failed.
    result: Option<Result<()>>,
    /// The task that polled last.
    waker: Option<Waker>,
}

impl DurableWait {
    pub(crate) fn new(sequence: SequenceNumber, durability: Durability) -> Self {
        Self { sequence, durability, state: Mutex::default(), resolved: Condvar::new() }
    }

    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Ends the wait with `result`.
    pub(crate) fn resolve(&self, result: Result<()>) {
        let mut state = self.state.lock();
        debug_assert!(state.result.is_none(), "a wait ends once");
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        self.resolved.notify_all();
        wake_all(waker);
    }

    /// Returns the result if there is one. Otherwise wakes the task of `context` later.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<SequenceNumber>> {
        let mut state = self.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone().map(|()| self.sequence));
        }
        let waker = context.waker();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            let before = state.waker.replace(waker.clone());
            // The drop of a waker may drop its task, and the handles of that, which ends the wait.
            drop(state);
            drop(before);
        }
        Poll::Pending
    }

    /// Blocks until the result is set.
    pub(crate) fn wait(&self) -> Result<SequenceNumber> {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone().map(|()| self.sequence);
            }
            self.resolved.wait(&mut state);
        }
    }

    /// Ends the wait after an attempt to make the write durable. An earlier attempt may have
    /// succeeded.
    fn resolve_after(&self, attempt: &Result<()>, log: &SharedLog) {
        let is_durable = log.reached(self.durability) >= self.sequence;
        self.resolve(if is_durable { Ok(()) } else { attempt.clone() });
    }
}

/// All waits of a store. One thread makes them durable in groups, and collects the next group
/// during a sync.
#[derive(Debug, Default)]
pub(crate) struct DurableWaits {
    state: Mutex<State>,
    added: Condvar,
}

/// Number of waits from which on those of durable writes are searched for.
const LOOKS_FROM: usize = 64;

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Arc<DurableWait>>,
    /// Twice the number of waits that the last search has left.
    next_search: usize,
    /// The thread has ended. The close ends later waits.
    is_stopped: bool,
    /// Result of the close.
    closed: Option<Result<()>>,
}

impl State {
    /// Removes the waits of writes that are durable by now, once their number has doubled. Without
    /// a thread no other call may remove those of dropped futures.
    fn take_reached(&mut self, log: &SharedLog) -> Vec<Arc<DurableWait>> {
        if self.waiting.len() < self.next_search.max(LOOKS_FROM) {
            return Vec::new();
        }
        let is_reached = |wait: &Arc<DurableWait>| log.reached(wait.durability) >= wait.sequence;
        let (reached, waiting) = mem::take(&mut self.waiting).into_iter().partition(is_reached);
        self.waiting = waiting;
        self.next_search = 2 * self.waiting.len();
        reached
    }
}

impl DurableWaits {
    /// Adds a wait for the write that ends with `sequence`.
    pub(crate) fn add(
        &self,
        log: &SharedLog,
        sequence: SequenceNumber,
        durability: Durability,
    ) -> Arc<DurableWait> {
        let wait = Arc::new(DurableWait::new(sequence, durability));
        if log.reached(durability) >= sequence {
            wait.resolve(Ok(()));
            return wait;
        }
        let mut state = self.state.lock();
        if let Some(closed) = state.closed.clone() {
            drop(state);
            wait.resolve_after(&closed, log);
            return wait;
        }
        // The thread waits only while no waits exist.
        if state.waiting.is_empty() {
            self.added.notify_all();
        }
        state.waiting.push(Arc::clone(&wait));
        let reached = state.take_reached(log);
        drop(state);
        for reached in reached {
            reached.resolve(Ok(()));
        }
        wait
    }

    /// Makes waits durable until [`stop`](Self::stop).
    pub(crate) fn run(&self, log: &SharedLog, host: &impl LogHost) {
        while let Some(group) = self.next_group() {
            complete(group, log, host);
        }
    }

    /// Makes all current waits durable, on the calling thread.
    pub(crate) fn run_present(&self, log: &SharedLog, host: &impl LogHost) {
        let group = mem::take(&mut self.state.lock().waiting);
        complete(group, log, host);
    }

    fn next_group(&self) -> Option<Vec<Arc<DurableWait>>> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if !state.waiting.is_empty() {
                return Some(mem::take(&mut state.waiting));
            }
            self.added.wait(&mut state);
        }
    }

    /// Ends [`run`](Self::run) after the current group.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.added.notify_all();
    }

    /// Ends all current and later waits after the store was `closed`.
    pub(crate) fn end(&self, log: &SharedLog, closed: &Result<()>) {
        let mut state = self.state.lock();
        state.closed = Some(closed.clone());
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        for wait in waiting {
            wait.resolve_after(closed, log);
        }
    }
}

/// Makes the waits of a group durable: first those that need no sync.
fn complete(group: Vec<Arc<DurableWait>>, log: &SharedLog, host: &impl LogHost) {
    let is_on_disk = |wait: &Arc<DurableWait>| wait.durability == Durability::Disk;
    let (on_disk, in_os): (Vec<_>, Vec<_>) = group.into_iter().partition(is_on_disk);
    host.report_after(|| {
        complete_alike(&in_os, log, || log.write(host), host);
        let last = on_disk.iter().map(|wait| wait.sequence).max();
        complete_alike(&on_disk, log, || log.sync_writes(host, last.unwrap_or_default()), host);
    });
}

/// Calls `attempt`, which makes all `waits` durable, and ends them.
fn complete_alike(
    waits: &[Arc<DurableWait>],
    log: &SharedLog,
    attempt: impl FnOnce() -> Result<()>,
    host: &impl LogHost,
) {
    if waits.is_empty() {
        return;
    }
    let attempted = panic::catch_unwind(AssertUnwindSafe(attempt));
    let attempted = attempted.unwrap_or_else(|_| Err(host.poison(Error::WorkerPanicked)));
    for wait in waits {
        wait.resolve_after(&attempted, log);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::{collections::BTreeSet, path::Path, task::Wake};

    use super::*;

    /// A task that is dropped with its waker, and then ends the wait of another one.
    struct Ends(Arc<DurableWait>);

    impl Wake for Ends {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Ends {
        fn drop(&mut self) {
            assert!(self.0.state.try_lock().is_some(), "the lock is held");
        }
    }

    /// Also without a thread, and if no task polls.
    #[test]
    fn waits_of_durable_writes_are_removed() {
        let (log, waits) = (SharedLog::new(0), DurableWaits::default());
        let first = waits.add(&log, 1, Durability::Disk);
        for sequence in 2..1_000 {
            let _ = waits.add(&log, sequence, Durability::Disk);
            log.replace(sequence - 1, Path::new("db"), &[], &BTreeSet::new());
            let waiting = waits.state.lock().waiting.len();
            assert!(waiting <= LOOKS_FROM, "{waiting} waits of {sequence} writes");
        }
        assert!(matches!(first.poll(&Context::from_waker(Waker::noop())), Poll::Ready(Ok(1))));
        let last = waits.add(&log, 1_000, Durability::Disk);
        assert!(last.poll(&Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn the_waker_of_an_earlier_task_is_dropped_without_the_lock() {
        let wait = Arc::new(DurableWait::new(1, Durability::Disk));
        let earlier = Waker::from(Arc::new(Ends(Arc::clone(&wait))));
        assert!(wait.poll(&Context::from_waker(&earlier)).is_pending());
        drop(earlier);
        assert!(wait.poll(&Context::from_waker(Waker::noop())).is_pending());
    }
}
