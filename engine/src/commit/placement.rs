//! Where a write gets its sequence numbers, its memtables and its turn in the log.

use std::{mem, sync::Arc};

use sievedb_format::{SEQUENCE_MAX, SequenceNumber};
use smallvec::SmallVec;

use super::{InFlight, PublishQueue, Write};
use crate::{
    Error, Result,
    log::{Payload, PendingRecord},
    read::tree::Tree,
};

/// Placed writes that are not in a log file yet, in sequence order.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    /// One needs no memory of its own: most writers are alone.
    pub(crate) records: SmallVec<[PendingRecord; 1]>,
    /// For each record the write if somebody waits for the log, `None` if it was acknowledged from
    /// memory.
    waiters: SmallVec<[Option<Arc<InFlight>>; 1]>,
}

impl PendingWrites {
    fn push(&mut self, record: PendingRecord, waiter: Option<Arc<InFlight>>) {
        self.records.push(record);
        self.waiters.push(waiter);
    }

    /// Tells those who wait that it was in vain, and keeps what was acknowledged.
    pub(crate) fn fail_waiters(self, error: &Error) -> Self {
        let mut kept = Self::default();
        for (record, waiter) in self.records.into_iter().zip(self.waiters) {
            match waiter {
                Some(waiter) => waiter.fail(error.clone()),
                None => kept.push(record, None),
            }
        }
        kept
    }

    fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.waiters.append(&mut later.waiters);
    }

    fn payload_bytes(&self) -> usize {
        self.records.iter().map(|record| record.payload.bytes().len()).sum()
    }
}

/// What the placement lock guards.
#[derive(Debug)]
pub(crate) struct Placement {
    last_placed: SequenceNumber,
    pending: PendingWrites,
    pending_bytes: usize,
    /// Where the first creation or removal of a keyspace stands that only the log knows of.
    keyspace_change: Option<SequenceNumber>,
    /// Where the one stands, at the earliest, that is on its way into the log.
    keyspace_change_begun: Option<SequenceNumber>,
}

/// Evaluates a condition in sequence order, under the placement lock, against everything placed
/// before, visible or not.
pub(crate) trait Validate {
    /// Whether the write may be placed.
    fn check(&mut self, placed: &Placed<'_>) -> Result<Verdict>;
}

/// What became of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// A write in flight decides, and may yet fail: ask again when this sequence number is visible.
    Undecided(SequenceNumber),
}

/// No condition.
#[derive(Debug)]
pub(crate) struct Always;

impl Validate for Always {
    fn check(&mut self, _: &Placed<'_>) -> Result<Verdict> {
        Ok(Verdict::Holds)
    }
}

/// What a condition may look at besides the trees: the writes that are placed and not visible yet.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    publish: &'a PublishQueue,
}

impl<'a> Placed<'a> {
    /// The writes in `publish`. The caller holds the placement lock.
    pub(crate) fn new(publish: &'a PublishQueue) -> Self {
        Self { publish }
    }

    /// The sequence number up to which the newest write in flight goes that touches `key`; `None`
    /// if there is none, so that what is visible decides.
    pub(crate) fn newest_in_flight(&self, tree: &Tree, key: &[u8]) -> Option<SequenceNumber> {
        self.publish.newest_in_flight(tree.id, key)
    }
}

impl Placement {
    /// Everything up to `last_placed` was placed before.
    pub(crate) fn new(last_placed: SequenceNumber) -> Self {
        Self {
            last_placed,
            pending: PendingWrites::default(),
            pending_bytes: 0,
            keyspace_change: None,
            keyspace_change_begun: None,
        }
    }

    pub(crate) fn last_placed(&self) -> SequenceNumber {
        self.last_placed
    }

    /// Length of the records that are in no file yet, in bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Gives `write` its sequence numbers and memtables, and queues its record. Tells whether a
    /// memtable was frozen.
    ///
    /// A memtable that is full is frozen first, so that a batch lies in one memtable as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], [`Error::SequenceNumbersExhausted`]; `write` is as it was then,
    /// and else taken.
    pub(crate) fn place(
        &mut self,
        publish: &PublishQueue,
        write: &mut Write,
        payload: Payload,
        waits: bool,
    ) -> Result<(Arc<InFlight>, bool)> {
        for target in &write.targets {
            target.tree.check()?;
        }
        let count = (write.entries.len() + write.keyspace_changes) as u64;
        let (first, last) = (self.last_placed + 1, self.last_placed + count);
        if last > SEQUENCE_MAX {
            return Err(Error::SequenceNumbersExhausted);
        }
        let mut froze = false;
        for target in &mut write.targets {
            if target.tree.is_full() {
                froze |= target.tree.freeze();
            }
            let active = Arc::clone(&target.tree.view().active);
            active.place(first, last);
            active.reserve(target.charge_bytes);
            target.memtable = Some(active);
        }
        self.last_placed = last;
        let record = PendingRecord { sequence: first, payload };
        self.pending_bytes += record.payload.bytes().len();
        let in_flight = Arc::new(InFlight::new(first, last, mem::take(write)));
        let waiter = waits.then(|| Arc::clone(&in_flight));
        self.pending.push(record, waiter);
        publish.push(Arc::clone(&in_flight));
        Ok((in_flight, froze))
    }

    /// Takes the queued writes, and tells up to which sequence number they go.
    pub(crate) fn take_pending(&mut self) -> (PendingWrites, SequenceNumber) {
        self.pending_bytes = 0;
        (mem::take(&mut self.pending), self.last_placed)
    }

    /// Puts writes back that could not be logged, before those queued since.
    pub(crate) fn put_back(&mut self, mut writes: PendingWrites) {
        self.pending_bytes += writes.payload_bytes();
        writes.append(mem::take(&mut self.pending));
        self.pending = writes;
    }

    /// A change of the keyspaces is about to be placed: the log must be kept from here on. One at a
    /// time.
    pub(crate) fn begin_keyspace_change(&mut self) {
        self.keyspace_change_begun = Some(self.last_placed + 1);
    }

    /// The change that was begun is in the log, which must be kept on until
    /// [`end_keyspace_changes`](Self::end_keyspace_changes), or it failed.
    pub(crate) fn finish_keyspace_change(&mut self, logged: bool) {
        let begun = self.keyspace_change_begun.take().filter(|_| logged);
        self.keyspace_change = self.keyspace_change.or(begun);
    }

    /// The manifest knows of every change that is in the log.
    pub(crate) fn end_keyspace_changes(&mut self) {
        self.keyspace_change = None;
    }

    /// Where the first change of the keyspaces stands that the manifest does not know of.
    pub(crate) fn keyspace_change(&self) -> Option<SequenceNumber> {
        self.keyspace_change.or(self.keyspace_change_begun)
    }
}
