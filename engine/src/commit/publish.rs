//! Writes become visible in sequence order, whatever order they finish in.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sievedb_format::SequenceNumber;

use super::Write;
use crate::{
    Error,
    clock::{Clock, SystemClock},
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// A write that was placed in the log and is not visible yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Sequence number of its first entry.
    pub(crate) first: SequenceNumber,
    /// Sequence number of its last entry.
    pub(crate) last: SequenceNumber,
    pub(crate) write: Write,
    done: AtomicBool,
    failure: OnceLock<Error>,
}

impl InFlight {
    pub(crate) fn new(first: SequenceNumber, last: SequenceNumber, write: Write) -> Self {
        Self { first, last, write, done: AtomicBool::new(false), failure: OnceLock::new() }
    }

    /// Tells the thread that waits for the log that the record could not be written.
    pub(crate) fn fail(&self, error: Error) {
        // Each record is taken from the queue by one thread, so it fails at most once.
        let _ = self.failure.set(error);
    }

    /// Returns whether the write is in the memtables, or never will be.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Relaxed)
    }

    /// Returns why the record could not be written, if it could not.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }
}

/// The writes in flight, in sequence order, and the newest visible sequence number.
#[derive(Debug)]
pub(crate) struct PublishQueue {
    visible: AtomicU64,
    queue: Mutex<VecDeque<Arc<InFlight>>>,
    advanced: Condvar,
}

impl PublishQueue {
    /// Everything up to `visible` is visible.
    pub(crate) fn new(visible: SequenceNumber) -> Self {
        Self { visible: AtomicU64::new(visible), queue: Mutex::default(), advanced: Condvar::new() }
    }

    /// The newest sequence number that readers see: every write up to it is in the memtables.
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.visible.load(Acquire)
    }

    /// Adds a write. Called in sequence order, under the placement lock.
    pub(crate) fn push(&self, write: Arc<InFlight>) {
        self.queue.lock().push_back(write);
    }

    /// Notes that `write` is in the memtables, or never will be, and makes visible what can be.
    pub(crate) fn complete(&self, write: &InFlight) {
        let mut queue = self.queue.lock();
        write.done.store(true, Relaxed);
        let mut advanced = false;
        while queue.front().is_some_and(|front| front.done.load(Relaxed)) {
            let front = queue.pop_front().expect("the front was just seen");
            // Release: whoever sees the number sees the memtable entries too.
            self.visible.store(front.last, Release);
            advanced = true;
        }
        if advanced {
            self.advanced.notify_all();
        }
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

    /// Waits until `sequence` is visible, for at most `timeout`. Returns whether it is.
    pub(crate) fn wait_visible_for(&self, sequence: SequenceNumber, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut queue = self.queue.lock();
        while self.visible() < sequence {
            let Some(left) = timeout.checked_sub(clock.now()) else { return false };
            self.advanced.wait_for(&mut queue, left);
        }
        true
    }

    /// The last sequence number of the newest write in flight that touches `key`, if any does.
    pub(crate) fn newest_in_flight(&self, keyspace: u64, key: &[u8]) -> Option<SequenceNumber> {
        let queue = self.queue.lock();
        let touches = |in_flight: &&Arc<InFlight>| in_flight.write.touches(keyspace, key);
        queue.iter().rev().find(touches).map(|in_flight| in_flight.last)
    }
}
