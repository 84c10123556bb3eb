//! Whose turn it is to sync the log, and who waits for that.

use std::{mem, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering::Acquire},
};

/// Turns of those who sync the log, one at a time, for all who wait.
///
/// Each waiter is woken by itself: first the next one to sync, so that the disk does not wait for
/// those who are done, then these. On one lock, which each of them takes to look whether it is
/// done, they woke one after the other before the next sync began: of eight threads on 16 cores a
/// write took the time of three syncs.
#[derive(Debug, Default)]
pub(super) struct SyncTurns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody has the turn.
    is_taken: bool,
    /// In the order in which they came.
    waiting: Vec<Arc<Waiter>>,
}

/// One that waits for a sync of everything up to `sequence`.
#[derive(Debug)]
struct Waiter {
    sequence: SequenceNumber,
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// Why a waiter is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// What it waits for is done.
    Synced,
    /// It is its turn.
    Turn,
}

/// The turn of one who syncs; passed on by drop.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a SyncTurns,
    synced: &'a AtomicU64,
}

impl SyncTurns {
    /// Waits until everything up to `sequence` is synced, as `synced` tells, or it is the caller's
    /// turn to do so.
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
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
        for waiter in done {
            waiter.call(Call::Synced);
        }
    }
}
