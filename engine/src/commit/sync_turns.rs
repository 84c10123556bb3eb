//! Turns of threads that sync the log.

use std::{mem, sync::Arc, thread::panicking, time::Duration};

use sievedb_format::SequenceNumber;

use super::{InFlight, Write, sync_group::SyncGroup};
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
/// Threads that wait for the same sync are notified by one call: a call for each of them takes
/// longer than the sync, and each notified thread interrupts the next call.
#[derive(Debug, Default)]
pub(super) struct SyncTurns {
    state: Mutex<State>,
    /// Notified when the thread with the turn has the writers that it waits for.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A thread has the turn, or was given it.
    is_taken: bool,
    /// Threads that wait for the next sync.
    round: Round,
    /// Number of waiters at which the thread with the turn is notified; 0 if it does not wait.
    awaited: usize,
    group: SyncGroup,
}

/// Threads that wait for the same sync.
#[derive(Debug, Default)]
struct Round {
    waiters: usize,
    /// Their writes that another thread may insert.
    writes: Vec<Arc<InFlight>>,
    /// `None` until a thread joins: most writes need no sync.
    calls: Option<Arc<Calls>>,
}

/// The notification of a round.
#[derive(Debug, Default)]
struct Calls {
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// Reason of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// The sync of all is over. Writes are also done if they are complete.
    Over,
    /// One of them has the turn.
    Turn,
    /// The thread that synced the writes panicked when it inserted them.
    Panicked,
}

/// Threads whose writes another thread synced. A drop notifies them.
///
/// If they were notified before the write of that thread is complete, most of them would wait
/// again: writes become visible in order.
#[derive(Debug, Default)]
#[must_use = "complete the own write first"]
pub(crate) struct SyncedWaiters {
    round: Round,
    /// A destructor writes while the thread unwinds: the panic preceded the sync.
    was_panicking: bool,
}

/// The turn to sync. A drop passes it on, and notifies the threads of the sync.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a SyncTurns,
    /// Threads that wait for this sync, once it has begun.
    round: Round,
    /// Duration of the sync; `None` if there was none.
    sync_time: Option<Duration>,
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
        synced: &AtomicU64,
        sequence: SequenceNumber,
        write: Option<&Arc<InFlight>>,
    ) -> Result<Option<Turn<'a>>> {
        loop {
            let mut state = self.state.lock();
            if synced.load(Acquire) >= sequence {
                return Ok(None);
            }
            if !mem::replace(&mut state.is_taken, true) {
                return Ok(Some(Turn::new(self)));
            }
            let calls = state.round.join(write);
            let is_gathered = state.awaited == state.round.waiters;
            drop(state);
            if is_gathered {
                self.gathered.notify_all();
            }
            match calls.wait() {
                // Without the lock, which all others of the round would wait for.
                Call::Over if synced.load(Acquire) >= sequence => return Ok(None),
                // Its append failed.
                Call::Over if write.is_some_and(|write| write.failure().is_some()) => {
                    return Ok(None);
                }
                // That of another write failed, or the sync.
                Call::Over => {}
                Call::Turn => {
                    self.state.lock().round.leave(write);
                    let turn = Turn::new(self);
                    // A long record is written before its thread waits, and the last sync may have
                    // covered it. The drop passes the turn on.
                    let is_synced = synced.load(Acquire) >= sequence;
                    return Ok((!is_synced).then_some(turn));
                }
                Call::Panicked => return Err(Error::WorkerPanicked),
            }
        }
    }
}

impl Round {
    /// Adds a thread, whose `write` another thread may insert if it is short and has only entries.
    fn join(&mut self, write: Option<&Arc<InFlight>>) -> Arc<Calls> {
        self.waiters += 1;
        self.writes.extend(write.filter(|write| is_insertable(&write.write)).cloned());
        Arc::clone(self.calls.get_or_insert_default())
    }

    /// Removes a thread that has the turn. The others wait for its sync.
    fn leave(&mut self, write: Option<&Arc<InFlight>>) {
        self.waiters -= 1;
        self.writes.retain(|other| !write.is_some_and(|write| Arc::ptr_eq(write, other)));
    }
}

fn is_insertable(write: &Write) -> bool {
    write.payload.len() <= INSERTED_BYTES_MAX && write.keyspace_changes == 0
}

impl Calls {
    fn wait(&self) -> Call {
        let mut call = self.call.lock();
        loop {
            match *call {
                Some(Call::Turn) => return call.take().expect("it was just seen"),
                Some(call) => return call,
                None => self.called.wait(&mut call),
            }
        }
    }

    fn call_one(&self) {
        *self.call.lock() = Some(Call::Turn);
        self.called.notify_one();
    }

    fn call_all(&self, reason: Call) {
        *self.call.lock() = Some(reason);
        self.called.notify_all();
    }
}

impl SyncedWaiters {
    /// Returns the short writes among those that were synced. Their threads wait until the drop.
    pub(super) fn insertable(&self) -> impl Iterator<Item = &InFlight> {
        self.round.writes.iter().map(|write| &**write).filter(|write| write.failure().is_none())
    }
}

impl<'a> Turn<'a> {
    fn new(turns: &'a SyncTurns) -> Self {
        Self { turns, round: Round::default(), sync_time: None }
    }

    /// Waits for the other writers that the next sync is expected to serve. Later writers wait for
    /// the sync after it.
    pub(super) fn gather(&mut self) {
        let mut state = self.turns.state.lock();
        let writers = state.round.waiters + 1;
        if let Some(wait) = state.group.begin(writers) {
            let clock = SystemClock::new();
            let begun = clock.now();
            state.awaited = wait.writers - 1;
            loop {
                let before = state.round.waiters;
                state = self.turns.state.wait_briefly(state, &self.turns.gathered, wait.pause);
                let now = state.round.waiters;
                if now == before || now >= state.awaited || clock.now() - begun >= wait.limit {
                    break;
                }
            }
            state.awaited = 0;
            let writers = state.round.waiters + 1;
            state.group.note_wait(wait, writers);
        }
        self.round = mem::take(&mut state.round);
    }

    /// Calls `sync`, and records its duration.
    pub(super) fn time<T>(&mut self, sync: impl FnOnce() -> T) -> T {
        let clock = SystemClock::new();
        let begun = clock.now();
        let synced = sync();
        self.sync_time = Some(clock.now() - begun);
        synced
    }

    /// Passes the turn on. Returns the threads that no longer need a sync.
    pub(super) fn pass_on(self) -> SyncedWaiters {
        // Without `ManuallyDrop`, the drop would pass the turn on again.
        let mut turn = mem::ManuallyDrop::new(self);
        turn.give()
    }

    fn give(&mut self) -> SyncedWaiters {
        let round = mem::take(&mut self.round);
        let mut state = self.turns.state.lock();
        let waiting = state.round.waiters;
        if let Some(sync_time) = self.sync_time {
            state.group.note_sync(sync_time, round.waiters + 1, waiting);
        }
        // The last one of a round may have left it.
        let next = state.round.calls.clone().filter(|_| waiting > 0);
        state.is_taken = next.is_some();
        drop(state);
        if let Some(next) = next {
            next.call_one();
        }
        SyncedWaiters { round, was_panicking: panicking() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.give());
    }
}

impl Drop for SyncedWaiters {
    fn drop(&mut self) {
        let Some(calls) = &self.round.calls else { return };
        // A panic may have left a write half inserted.
        let panicked = panicking() && !self.was_panicking;
        calls.call_all(if panicked { Call::Panicked } else { Call::Over });
    }
}
