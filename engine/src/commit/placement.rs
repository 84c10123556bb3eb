//! Places writes: assigns sequence numbers, memtables and a position in the log.

use std::{mem, sync::Arc};

use sievedb_format::{SEQUENCE_MAX, SequenceNumber};
use smallvec::SmallVec;

use super::{
    InFlight, PublishQueue, Write,
    key_slots::{KeySlot, KeySlots},
    watches::{WatchId, WatchedKeys, Watches, WrittenKey},
};
use crate::{
    Error, Result,
    log::{Payload, PendingRecord, values::LoggedValues},
    read::tree::Tree,
};

/// Placed writes that are not in a log file yet, in sequence order.
#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    /// One record needs no heap memory: most groups are small.
    pub(crate) records: SmallVec<[PendingRecord; 1]>,
    /// Origin of each record.
    origins: SmallVec<[Origin; 1]>,
}

/// The write of a queued record.
#[derive(Debug)]
struct Origin {
    /// Last sequence number of the write.
    last: SequenceNumber,
    /// The write if it waits for the log; `None` if it is acknowledged from memory.
    waiter: Option<Arc<InFlight>>,
}

impl PendingWrites {
    fn push(&mut self, record: PendingRecord, origin: Origin) {
        self.records.push(record);
        self.origins.push(origin);
    }

    /// Returns the last sequence number of the records; 0 without records.
    pub(crate) fn last_sequence(&self) -> SequenceNumber {
        self.origins.last().map_or(0, |origin| origin.last)
    }

    /// Fails the waiting writes. Returns those that were acknowledged.
    pub(crate) fn fail_waiters(self, error: &Error) -> Self {
        let mut kept = Self::default();
        for (record, origin) in self.records.into_iter().zip(self.origins) {
            match origin.waiter {
                Some(waiter) => waiter.fail(error.clone()),
                None => kept.push(record, origin),
            }
        }
        kept
    }

    fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.origins.append(&mut later.origins);
    }

    fn payload_bytes(&self) -> usize {
        self.records.iter().map(queued_bytes).sum()
    }
}

/// Returns the length of a record and of its values, including those beside the log. A crash may
/// lose all of them.
fn queued_bytes(record: &PendingRecord) -> usize {
    let values = record.payload.values().map_or(0, LoggedValues::bytes);
    record.payload.bytes().len() + usize::try_from(values).unwrap_or(usize::MAX)
}

/// Result of [`Placement::number`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered {
    /// Number of its first entry.
    pub(crate) first: SequenceNumber,
    /// Number of its last entry.
    pub(crate) last: SequenceNumber,
    /// A memtable was frozen.
    pub(crate) froze: bool,
}

/// State under the placement lock.
#[derive(Debug)]
pub(crate) struct Placement {
    last_placed: SequenceNumber,
    pending: PendingWrites,
    pending_bytes: usize,
    /// Sequence number of the first change of keyspaces that is only in the log.
    keyspace_change: Option<SequenceNumber>,
    /// Least sequence number of the change of keyspaces in flight.
    keyspace_change_begun: Option<SequenceNumber>,
    slots: KeySlots,
    watches: Watches,
}

/// Evaluates a condition in sequence order, under the placement lock. The condition sees everything
/// placed before, visible or not.
pub(crate) trait Validate {
    /// Decides whether the write may be placed.
    fn check(&mut self, placed: &mut Placed<'_>) -> Result<Verdict>;

    /// Returns `true` if the condition always holds.
    fn is_none(&self) -> bool {
        false
    }

    /// Resolves undecided conditions, without the placement lock. Called before the next check.
    fn decide(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Result of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// A write in flight decides, and may fail. Check again when this sequence number is visible.
    Undecided(SequenceNumber),
}

/// No condition.
#[derive(Debug)]
pub(crate) struct Always;

impl Validate for Always {
    fn check(&mut self, _: &mut Placed<'_>) -> Result<Verdict> {
        Ok(Verdict::Holds)
    }

    fn is_none(&self) -> bool {
        true
    }
}

/// All placed writes, which a condition reads in addition to the trees.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    placement: &'a mut Placement,
    publish: &'a PublishQueue,
}

impl<'a> Placed<'a> {
    /// Wraps the state under the placement lock, which the caller holds.
    pub(crate) fn new(placement: &'a mut Placement, publish: &'a PublishQueue) -> Self {
        Self { placement, publish }
    }

    /// Returns the last sequence number placed to any key of `slot`; 0 if there is none since the
    /// store was opened.
    pub(crate) fn last_in_slot(&self, slot: KeySlot) -> SequenceNumber {
        let last = self.placement.slots.last(slot);
        debug_assert!(last <= self.placement.last_placed, "{last} was not placed");
        last
    }

    /// Returns the last sequence number placed.
    pub(crate) fn last_placed(&self) -> SequenceNumber {
        self.placement.last_placed
    }

    /// Begins to look for `keys` in writes, including those in flight.
    pub(crate) fn watch(&mut self, keys: Arc<dyn WatchedKeys>) -> WatchId {
        let in_flight = self.publish.in_flight();
        self.placement.watches.begin(keys, &in_flight)
    }

    /// Returns the first key of the watch that was written since the last call.
    pub(crate) fn take_watched(&mut self, watch: WatchId) -> Option<WrittenKey> {
        self.placement.watches.take(watch)
    }

    /// Returns the newest sequence number that readers see.
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.publish.visible()
    }

    /// Returns the last sequence number of the newest write in flight to `key`. Searches all writes
    /// in flight.
    pub(crate) fn newest_in_flight(&self, tree: &Tree, key: &[u8]) -> Option<SequenceNumber> {
        self.publish.newest_in_flight(tree.id, key)
    }
}

impl Placement {
    /// Creates the placement after a history that ends at `last_placed`.
    pub(crate) fn new(last_placed: SequenceNumber) -> Self {
        Self {
            last_placed,
            pending: PendingWrites::default(),
            pending_bytes: 0,
            keyspace_change: None,
            keyspace_change_begun: None,
            slots: KeySlots::new(),
            watches: Watches::default(),
        }
    }

    pub(crate) fn last_placed(&self) -> SequenceNumber {
        self.last_placed
    }

    /// Returns the length of the queued records and of their values, in bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Returns `true` if no write is queued or in flight: everything placed is visible.
    pub(crate) fn is_idle(&self, publish: &PublishQueue) -> bool {
        self.pending.records.is_empty() && publish.visible() == self.last_placed
    }

    /// Assigns sequence numbers and memtables to `write`, and queues its record. Returns `true` if
    /// a memtable was frozen.
    ///
    /// # Errors
    ///
    /// As [`number`](Self::number).
    pub(crate) fn place(
        &mut self,
        publish: &PublishQueue,
        write: &mut Write,
        payload: Payload,
        waits: bool,
    ) -> Result<(Arc<InFlight>, bool)> {
        let Numbered { first, last, froze } = self.number(publish, write)?;
        let record = PendingRecord { sequence: first, payload };
        self.pending_bytes += queued_bytes(&record);
        let in_flight = Arc::new(InFlight::new(first, last, mem::take(write)));
        let waiter = waits.then(|| Arc::clone(&in_flight));
        self.pending.push(record, Origin { last, waiter });
        publish.push(Arc::clone(&in_flight));
        Ok((in_flight, froze))
    }

    /// Assigns sequence numbers and memtables to `write`. The caller logs its record before it
    /// releases the placement lock, unless it queues the record.
    ///
    /// A full memtable is frozen first: a batch is never divided over two memtables.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], [`Error::SequenceNumbersExhausted`]; `write` is unchanged.
    pub(crate) fn number(&mut self, publish: &PublishQueue, write: &mut Write) -> Result<Numbered> {
        for target in &write.targets {
            target.tree.check()?;
        }
        let count = (write.entries.len() + write.keyspace_changes) as u64;
        let (first, last) = (self.last_placed + 1, self.last_placed + count);
        debug_assert!(count > 0, "an empty write has no sequence number");
        debug_assert!(publish.visible() <= self.last_placed, "visible before it was placed");
        if last > SEQUENCE_MAX {
            return Err(Error::SequenceNumbersExhausted);
        }
        let mut froze = false;
        for target in &mut write.targets {
            let mut active = Arc::clone(&target.tree.view().active);
            if active.memtable.is_full() && target.tree.freeze() {
                froze = true;
                active = Arc::clone(&target.tree.view().active);
            }
            active.place(first, last);
            active.reserve(target.charge_bytes);
            target.memtable = Some(active);
        }
        write.prefetch_filters();
        if let Some(tree) = &write.clears {
            tree.begin_clear(first);
        }
        self.last_placed = last;
        self.slots.note(write, last);
        self.watches.note(write);
        Ok(Numbered { first, last, froze })
    }

    pub(crate) fn end_watch(&mut self, watch: WatchId) {
        self.watches.end(watch);
    }

    /// Removes and returns the queued writes. Also returns the last sequence number placed, which
    /// may belong to a failed write.
    pub(crate) fn take_pending(&mut self) -> (PendingWrites, SequenceNumber) {
        debug_assert_eq!(self.pending_bytes, self.pending.payload_bytes());
        debug_assert!(self.pending.records.iter().all(|it| it.sequence <= self.last_placed));
        self.pending_bytes = 0;
        (mem::take(&mut self.pending), self.last_placed)
    }

    /// Puts back writes that could not be logged, before later ones.
    pub(crate) fn put_back(&mut self, mut writes: PendingWrites) {
        self.pending_bytes += writes.payload_bytes();
        writes.append(mem::take(&mut self.pending));
        debug_assert!(writes.records.is_sorted_by_key(|record| record.sequence));
        debug_assert_eq!(writes.records.len(), writes.origins.len());
        self.pending = writes;
    }

    /// Begins a change of keyspaces, one at a time. The log must be kept from this position on.
    pub(crate) fn begin_keyspace_change(&mut self) {
        debug_assert!(self.keyspace_change_begun.is_none(), "one change at a time");
        debug_assert!(self.keyspace_change.is_none_or(|first| first <= self.last_placed));
        self.keyspace_change_begun = Some(self.last_placed + 1);
    }

    /// Ends the current change. If it is `logged`, the log must be kept until
    /// [`end_keyspace_changes`](Self::end_keyspace_changes).
    pub(crate) fn finish_keyspace_change(&mut self, logged: bool) {
        debug_assert!(self.keyspace_change_begun.is_some(), "no change was begun");
        let begun = self.keyspace_change_begun.take().filter(|_| logged);
        debug_assert!(begun.is_none_or(|begun| begun <= self.last_placed), "logged, not placed");
        self.keyspace_change = self.keyspace_change.or(begun);
    }

    /// Records that the manifest has all changes of keyspaces in the log.
    pub(crate) fn end_keyspace_changes(&mut self) {
        self.keyspace_change = None;
    }

    /// Returns the sequence number of the first change of keyspaces that the manifest lacks.
    pub(crate) fn keyspace_change(&self) -> Option<SequenceNumber> {
        self.keyspace_change.or(self.keyspace_change_begun)
    }
}
