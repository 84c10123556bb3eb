//! Turns of threads that sync the log.

use std::{mem, sync::Arc, thread::panicking, time::Duration};

use sievedb_format::SequenceNumber;

use super::{InFlight, sync_group::SyncGroup};
use crate::{
    Error, Result,
    clock::{Clock, SystemClock},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Acquire},
    },
};

/// Maximum payload of a write, in bytes, that the syncing thread inserts too.
///
/// Longer writes are inserted by their own threads, in parallel.
const INSERTED_BYTES_MAX: usize = 1 << 10;

/// Turns of threads that sync the log, one at a time, for all waiting threads.
///
/// Each waiter has a lock of its own. The next thread to sync is notified first, so that the disk
/// does not wait for threads that are done. With one lock for all, a write of eight threads on 16
/// cores took the time of three syncs.
#[derive(Debug, Default)]
pub(super) struct SyncTurns {
    state: Mutex<State>,
    /// Notified when the thread with the turn has the writers that it waits for.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A thread has the turn.
    is_taken: bool,
    /// Waiters in order of arrival.
    waiting: Vec<Arc<Waiter>>,
    /// Number of waiters at which the thread with the turn is notified; 0 if it does not wait.
    awaited: usize,
    group: SyncGroup,
}

/// A thread that waits for a sync up to `sequence`.
#[derive(Debug)]
struct Waiter {
    sequence: SequenceNumber,
    /// Write of the waiter, if another thread may insert it.
    write: Option<Arc<InFlight>>,
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// Reason of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The sync is done. The write is also done if it is complete.
    Synced,
    /// The waiter has the turn.
    Turn,
    /// The thread that synced the write panicked when it inserted writes.
    Panicked,
}

/// Threads whose writes another thread synced. A drop notifies them.
///
/// If they were notified before the write of that thread is complete, most of them would wait
/// again: writes become visible in order.
#[derive(Debug, Default)]
#[must_use = "complete the own write first"]
pub(crate) struct SyncedWaiters {
    waiters: Vec<Arc<Waiter>>,
    /// A destructor writes while the thread unwinds: the panic preceded the sync.
    was_panicking: bool,
}

/// The turn to sync. A drop passes it on, and notifies the threads that need no sync.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a SyncTurns,
    synced: &'a AtomicU64,
    /// Duration of the sync.
    sync_time: Duration,
}

impl SyncTurns {
    /// Waits until `synced` reaches `sequence`, or the caller has the turn to sync.
    ///
    /// Another thread may insert and complete `write` meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerPanicked`]: `write` is durable, and may be in its memtable.
    pub(super) fn take<'a>(
        &'a self,
        synced: &'a AtomicU64,
        sequence: SequenceNumber,
        write: Option<&Arc<InFlight>>,
    ) -> Result<Option<Turn<'a>>> {
        let mut state = self.state.lock();
        if synced.load(Acquire) >= sequence {
            return Ok(None);
        }
        if !mem::replace(&mut state.is_taken, true) {
            return Ok(Some(Turn::new(self, synced)));
        }
        let (call, called) = (Mutex::default(), Condvar::default());
        let waiter = Arc::new(Waiter { sequence, write: write.cloned(), call, called });
        state.waiting.push(Arc::clone(&waiter));
        let is_gathered = state.awaited == state.waiting.len();
        drop(state);
        if is_gathered {
            self.gathered.notify_all();
        }
        match waiter.wait() {
            Call::Synced => Ok(None),
            Call::Turn => Ok(Some(Turn::new(self, synced))),
            Call::Panicked => Err(Error::WorkerPanicked),
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

    /// Returns the write if it is short and logged, and contains only entries.
    fn insertable(&self) -> Option<&InFlight> {
        let in_flight = self.write.as_deref()?;
        let write = &in_flight.write;
        let is_short = write.payload.len() <= INSERTED_BYTES_MAX;
        (is_short && write.keyspace_changes == 0 && in_flight.failure().is_none())
            .then_some(in_flight)
    }
}

impl SyncedWaiters {
    /// Returns the short writes among those that were synced. Their threads wait until the drop.
    pub(super) fn insertable(&self) -> impl Iterator<Item = &InFlight> {
        self.waiters.iter().filter_map(|waiter| waiter.insertable())
    }
}

impl<'a> Turn<'a> {
    const fn new(turns: &'a SyncTurns, synced: &'a AtomicU64) -> Self {
        Self { turns, synced, sync_time: Duration::ZERO }
    }

    /// Waits for the other writers that the next sync is expected to serve.
    pub(super) fn gather(&self) {
        let mut state = self.turns.state.lock();
        let writers = state.waiting.len() + 1;
        let Some(wait) = state.group.begin(writers) else { return };
        let clock = SystemClock::new();
        let begun = clock.now();
        state.awaited = wait.writers - 1;
        loop {
            let before = state.waiting.len();
            state = self.turns.state.wait_briefly(state, &self.turns.gathered, wait.pause);
            let now = state.waiting.len();
            if now == before || now >= state.awaited || clock.now() - begun >= wait.limit {
                break;
            }
        }
        state.awaited = 0;
        let writers = state.waiting.len() + 1;
        state.group.note_wait(wait, writers);
    }

    /// Calls `sync`, and records its duration.
    pub(super) fn time<T>(&mut self, sync: impl FnOnce() -> T) -> T {
        let clock = SystemClock::new();
        let begun = clock.now();
        let synced = sync();
        self.sync_time = clock.now() - begun;
        synced
    }

    /// Passes the turn on. Returns the threads that no longer need a sync.
    pub(super) fn pass_on(self) -> SyncedWaiters {
        // Without `ManuallyDrop`, the drop would pass the turn on again.
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
        let waiting = left.len() + usize::from(state.is_taken);
        state.group.note_sync(self.sync_time, done.len() + 1, waiting);
        state.waiting = left;
        drop(state);
        if let Some(next) = next {
            next.call(Call::Turn);
        }
        SyncedWaiters { waiters: done, was_panicking: panicking() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.give());
    }
}

impl Drop for SyncedWaiters {
    fn drop(&mut self) {
        // A panic may have left a write half inserted.
        let panicked = panicking() && !self.was_panicking;
        let call = if panicked { Call::Panicked } else { Call::Synced };
        for waiter in &self.waiters {
            waiter.call(call);
        }
    }
}
