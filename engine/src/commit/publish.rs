//! Publishes writes in sequence order, independent of the order in which they finish.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    ops::Deref,
    sync::{Arc, OnceLock},
    task::Waker,
    thread::panicking,
    time::Duration,
};

use sievedb_format::SequenceNumber;
use smallvec::SmallVec;

use super::{LogHost, SyncedWaiters, Write, wake_all};
use crate::{
    Error,
    clock::{Clock, SystemClock},
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
        thread::{self, Thread},
    },
};

/// A placed write that is not visible yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Sequence number of its first entry.
    pub(crate) first: SequenceNumber,
    /// Sequence number of its last entry.
    pub(crate) last: SequenceNumber,
    pub(crate) write: Write,
    done: AtomicBool,
    failure: OnceLock<Error>,
    /// The thread that waits until the write is visible.
    waiter: OnceLock<Thread>,
}

impl InFlight {
    pub(crate) fn new(first: SequenceNumber, last: SequenceNumber, write: Write) -> Self {
        Self {
            first,
            last,
            write,
            done: AtomicBool::new(false),
            failure: OnceLock::new(),
            waiter: OnceLock::new(),
        }
    }

    /// Reports to the thread that waits for the log that writing the record failed.
    pub(crate) fn fail(&self, error: Error) {
        // One thread takes each record from the queue, so it fails at most once.
        let _ = self.failure.set(error);
    }

    /// Returns `true` if the write is in the memtables, or never will be.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }

    /// Returns the reason if writing the record failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }
}

/// The writes in flight, in sequence order, and the newest visible sequence number.
#[derive(Debug)]
pub(crate) struct PublishQueue {
    visible: AtomicU64,
    queue: Mutex<Queue>,
    advanced: Condvar,
}

/// Identity of a caller that waits by a waker, one task at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WakerId(u64);

#[derive(Debug, Default)]
struct Queue {
    in_flight: VecDeque<Arc<InFlight>>,
    /// Tasks that wait for any write to become visible, the last one of each [`WakerId`].
    wakers: BTreeMap<WakerId, Waker>,
    next_waker: u64,
}

impl PublishQueue {
    /// Creates a queue after a history that is visible up to `visible`.
    pub(crate) fn new(visible: SequenceNumber) -> Self {
        Self { visible: AtomicU64::new(visible), queue: Mutex::default(), advanced: Condvar::new() }
    }

    /// Returns the newest sequence number that readers see. Memtables have every write up to it.
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.visible.load(Acquire)
    }

    /// Makes the history visible up to `sequence`, while the queue is empty and no write can be
    /// placed. Call [`notify`](Self::notify) afterwards.
    pub(crate) fn advance(&self, sequence: SequenceNumber) {
        debug_assert!(self.visible() <= sequence, "the history goes back");
        // Release: a reader that loads the number sees the memtable entries.
        self.visible.store(sequence, Release);
    }

    /// Adds a write. Called in sequence order, under the placement lock.
    pub(crate) fn push(&self, write: Arc<InFlight>) {
        let queue = &mut self.queue.lock().in_flight;
        debug_assert!(write.first <= write.last + 1, "a write has a range of numbers");
        debug_assert!(queue.back().is_none_or(|newest| newest.last < write.first));
        queue.push_back(write);
    }

    /// Records that `write` is in the memtables, or never will be. Publishes all writes without an
    /// unfinished write before them.
    pub(crate) fn complete(&self, write: &InFlight) {
        self.complete_all([write]);
    }

    /// As [`complete`](Self::complete), for several writes.
    fn complete_all<'a>(&self, writes: impl IntoIterator<Item = &'a InFlight>) {
        let mut queue = self.queue.lock();
        let mut holds_locks = false;
        for write in writes {
            debug_assert!(!write.is_done(), "a write is completed once");
            write.done.store(true, Relaxed);
            holds_locks |= write.write.keyspace_changes > 0;
        }
        let mut advanced = false;
        // Notified one by one: a condition variable would also wake the threads of later writes.
        let mut waiters: SmallVec<[Thread; 4]> = SmallVec::new();
        while queue.in_flight.front().is_some_and(|front| front.done.load(Relaxed)) {
            let front = queue.in_flight.pop_front().expect("the front was just seen");
            debug_assert!(self.visible.load(Relaxed) < front.first, "published out of order");
            // Release: a reader that loads the number sees the memtable entries.
            self.visible.store(front.last, Release);
            waiters.extend(front.waiter.get().cloned());
            advanced = true;
        }
        if advanced {
            self.advanced.notify_all();
            // A change of keyspaces wakes tasks after it has released its locks.
            let wakers = if holds_locks { BTreeMap::new() } else { mem::take(&mut queue.wakers) };
            drop(queue);
            waiters.iter().for_each(Thread::unpark);
            wake_all(wakers.into_values());
        }
    }

    /// Waits until `write` of this thread is visible.
    pub(crate) fn wait_published(&self, write: &InFlight) {
        if self.visible() >= write.last {
            return;
        }
        {
            // Set under the lock, so the thread that makes the write visible sees the waiter.
            let _queue = self.queue.lock();
            let _ = write.waiter.set(thread::current());
        }
        let mut has_parked = false;
        while self.visible() < write.last {
            thread::park();
            has_parked = true;
        }
        if has_parked {
            // The executor of the caller may park the thread, too: returns its token.
            thread::current().unpark();
        }
    }

    /// Notifies all waiters: more is visible, or the store is being closed.
    pub(crate) fn notify(&self) {
        let mut queue = self.queue.lock();
        self.advanced.notify_all();
        if queue.wakers.is_empty() {
            // The usual case. Iterating over the empty map would take 2 % of the time of a write.
            return;
        }
        let wakers = mem::take(&mut queue.wakers);
        drop(queue);
        wake_all(wakers.into_values());
    }

    /// Waits until more than `sequence` is visible or `is_over` returns `true`, for at most
    /// `timeout`.
    pub(crate) fn wait_beyond(
        &self,
        sequence: SequenceNumber,
        timeout: Duration,
        is_over: impl Fn() -> bool,
    ) {
        let clock = SystemClock::new();
        let mut queue = self.queue.lock();
        while self.visible() <= sequence && !is_over() {
            let left = timeout.saturating_sub(clock.now());
            if left.is_zero() {
                return;
            }
            self.advanced.wait_for(&mut queue, left);
        }
    }

    /// Returns an id for [`wake_beyond`](Self::wake_beyond).
    pub(crate) fn new_waker_id(&self) -> WakerId {
        let mut queue = self.queue.lock();
        queue.next_waker += 1;
        WakerId(queue.next_waker)
    }

    /// Wakes `waker` when more than `sequence` is visible or `is_over` returns `true`. Replaces the
    /// earlier waker of `id`. Returns `false` if either already holds.
    pub(crate) fn wake_beyond(
        &self,
        id: WakerId,
        sequence: SequenceNumber,
        waker: &Waker,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let mut queue = self.queue.lock();
        if self.visible() > sequence || is_over() {
            return false;
        }
        let before = match queue.wakers.get(&id) {
            Some(known) if known.will_wake(waker) => None,
            _ => queue.wakers.insert(id, waker.clone()),
        };
        // The drop of a waker may drop its task, and the handles of that.
        drop(queue);
        drop(before);
        true
    }

    /// Drops the waker of `id`.
    pub(crate) fn forget_waker(&self, id: WakerId) {
        let waker = self.queue.lock().wakers.remove(&id);
        drop(waker);
    }

    /// Waits until `sequence` is visible.
    pub(crate) fn wait_visible(&self, sequence: SequenceNumber) {
        if self.visible() >= sequence {
            return;
        }
        let mut queue = self.queue.lock();
        while self.visible() < sequence {
            self.advanced.wait(&mut queue);
        }
    }

    /// Waits until `sequence` is visible, for at most `timeout`. Returns `true` if it is.
    pub(crate) fn wait_visible_for(&self, sequence: SequenceNumber, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut queue = self.queue.lock();
        while self.visible() < sequence {
            let Some(left) = timeout.checked_sub(clock.now()) else { return false };
            self.advanced.wait_for(&mut queue, left);
        }
        true
    }

    /// Returns the writes in flight, in sequence order.
    pub(crate) fn in_flight(&self) -> Vec<Arc<InFlight>> {
        self.queue.lock().in_flight.iter().cloned().collect()
    }

    /// Returns the last sequence number of the newest write in flight to `key`.
    pub(crate) fn newest_in_flight(&self, keyspace: u64, key: &[u8]) -> Option<SequenceNumber> {
        let queue = self.queue.lock();
        let touches = |in_flight: &&Arc<InFlight>| in_flight.write.touches(keyspace, key);
        queue.in_flight.iter().rev().find(touches).map(|in_flight| in_flight.last)
    }
}

/// Makes the store read-only if a panic drops the guard.
///
/// Held while only this thread knows the state of the files. Created after the lock is taken, so
/// that it is dropped before the lock is released.
#[derive(Debug)]
#[must_use]
pub(crate) struct PanicGuard<'a, H: LogHost> {
    host: &'a H,
    /// The thread was unwinding from another panic when the guard was created.
    was_panicking: bool,
}

impl<'a, H: LogHost> PanicGuard<'a, H> {
    pub(crate) fn new(host: &'a H) -> Self {
        Self { host, was_panicking: panicking() }
    }
}

impl<H: LogHost> Drop for PanicGuard<'_, H> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            self.host.poison(Error::WorkerPanicked);
        }
    }
}

/// A placed write. Drop completes it, so that no later write waits for it.
///
/// If a panic drops it, the store becomes read-only: the log may have the write or not.
#[derive(Debug)]
pub(crate) struct PlacedWrite<'a, H: LogHost> {
    publish: &'a PublishQueue,
    in_flight: Arc<InFlight>,
    guard: Option<PanicGuard<'a, H>>,
}

impl<'a, H: LogHost> PlacedWrite<'a, H> {
    /// Guards a write that was placed in `publish` of the store `host`.
    pub(crate) fn new(host: &'a H, publish: &'a PublishQueue, in_flight: Arc<InFlight>) -> Self {
        Self { publish, in_flight, guard: Some(PanicGuard::new(host)) }
    }

    /// Returns the write.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Completes the write, and the short writes that were synced along with it. Then notifies
    /// their threads, and waits until everything up to the write is visible.
    ///
    /// A thread of a short write waits once, instead of waiting for its sync and then for its turn.
    pub(crate) fn publish(self, synced: SyncedWaiters) -> Arc<InFlight> {
        let (publish, in_flight) = (self.publish, Arc::clone(&self.in_flight));
        if !in_flight.is_done() {
            synced.insertable().for_each(|other| other.write.insert(other.first));
            publish.complete_all(synced.insertable().chain([&*in_flight]));
        }
        drop(self);
        drop(synced);
        publish.wait_published(&in_flight);
        debug_assert!(in_flight.is_done(), "a visible write is complete");
        debug_assert!(publish.visible() >= in_flight.last);
        in_flight
    }
}

impl<H: LogHost> Deref for PlacedWrite<'_, H> {
    type Target = InFlight;

    fn deref(&self) -> &InFlight {
        &self.in_flight
    }
}

impl<H: LogHost> Drop for PlacedWrite<'_, H> {
    fn drop(&mut self) {
        // Dropped first: after a panic, no write that waits for this one may be acknowledged.
        self.guard = None;
        if !self.in_flight.is_done() {
            self.publish.complete(&self.in_flight);
        }
    }
}
