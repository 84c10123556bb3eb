//! Turns of threads that sync the log.

use std::{mem, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering::Acquire},
};

/// Turns of threads that sync the log, one at a time, for all that wait.
///
/// Each waiter has a lock of its own. The next thread to sync is notified first, so that the disk
/// does not wait for threads that are done. With one lock for all, a write of eight threads on 16
/// cores took the time of three syncs.
#[derive(Debug, Default)]
pub(super) struct SyncTurns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A thread has the turn.
    is_taken: bool,
    /// Waiters in order of arrival.
    waiting: Vec<Arc<Waiter>>,
}

/// A thread that waits for a sync up to `sequence`.
#[derive(Debug)]
struct Waiter {
    sequence: SequenceNumber,
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// Reason of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The sync is done.
    Synced,
    /// It is its turn.
    Turn,
}

/// Threads whose writes another thread synced. Drop notifies them.
///
/// Notified before the write of that thread is complete, most of them would wait for it once more:
/// writes become visible in order.
#[derive(Debug, Default)]
#[must_use = "complete the own write first"]
pub(crate) struct SyncedWaiters(Vec<Arc<Waiter>>);

/// The turn to sync. Drop passes it on and notifies the threads that need no sync.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a SyncTurns,
    synced: &'a AtomicU64,
}

impl SyncTurns {
    /// Waits until `synced` reaches `sequence`, or it is the caller's turn to sync.
    pub(super) fn take<'a>(
        &'a self,
        synced: &'a AtomicU64,
        sequence: SequenceNumber,
    ) -> Option<Turn<'a>> {
        let mut state = self.state.lock();
        if synced.load(Acquire) >= sequence {
            return None;
        }
        if !mem::replace(&mut state.is_taken, true) {
            return Some(Turn { turns: self, synced });
        }
        let waiter =
            Arc::new(Waiter { sequence, call: Mutex::default(), called: Condvar::default() });
        state.waiting.push(Arc::clone(&waiter));
        drop(state);
        match waiter.wait() {
            Call::Synced => None,
            Call::Turn => Some(Turn { turns: self, synced }),
        }
    }
}

impl Waiter {
    fn wait(&self) -> Call {
        let mut call = self.call.lock();
        loop {
            if let Some(call) = *call {
                return call;
            }
            self.called.wait(&mut call);
        }
    }

    fn call(&self, call: Call) {
        *self.call.lock() = Some(call);
        self.called.notify_all();
    }
}

impl Turn<'_> {
    /// Passes the turn on. Returns the threads that need no sync any more.
    pub(super) fn pass_on(self) -> SyncedWaiters {
        // Drop passes it on again otherwise.
        let turn = mem::ManuallyDrop::new(self);
        turn.give()
    }

    fn give(&self) -> SyncedWaiters {
        let synced = self.synced.load(Acquire);
        let mut state = self.turns.state.lock();
        let waiting = mem::take(&mut state.waiting);
        let (done, mut left): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|waiter| waiter.sequence <= synced);
        let next = (!left.is_empty()).then(|| left.remove(0));
        state.is_taken = next.is_some();
        state.waiting = left;
        drop(state);
        if let Some(next) = next {
            next.call(Call::Turn);
        }
        SyncedWaiters(done)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.give());
    }
}

impl Drop for SyncedWaiters {
    fn drop(&mut self) {
        for waiter in &self.0 {
            waiter.call(Call::Synced);
        }
    }
}
