//! Commits writes: throttles, places, logs and publishes them in sequence order.
//!
//! | file             | content                                                     |
//! |------------------|-------------------------------------------------------------|
//! | `mod`            | the history, and the steps of a write                       |
//! | [`admission`]    | checks of a write before it is placed                       |
//! | [`sole`]         | a short write while there is no other one                   |
//! | [`throttle`]     | delays of writes, by the debt of background work            |
//! | [`stall`]        | writes that are refused instead, and waits for room         |
//! | [`room_turn`]    | the turn of a write that waits for room                     |
//! | [`rewrite_log`]  | the log segment that replaces a replayed log after a crash  |
//!
//! The steps are those of [`commit`](crate::commit), and so are the locks: sync turn, log files,
//! placement, publish queue, in this order. The placement lock stops all writes.

mod admission;
pub(super) mod rewrite_log;
pub(super) mod room_turn;
mod sole;
pub(crate) mod stall;
pub(super) mod throttle;

use std::{mem, sync::Arc, time::Duration};

use sievedb_format::SequenceNumber;
use sievedb_sstable::BlobReference;

use self::{
    admission::Admission,
    room_turn::{RoomTurn, RoomTurns},
    sole::Attempt,
    stall::{OnStall, Stall},
    throttle::{Pressure, Room, pressure, stall_reason},
};
use super::Store;
use crate::{
    Durability, Error, Result, StallReason,
    commit::{
        DurableWait, DurableWaits, InFlight, LogHost, Placed, PlacedWrite, Placement, PublishQueue,
        SharedLog, SyncedWaiters, Validate, Write,
    },
    log::Payload,
    memory::MemoryUse,
    sync::{Mutex, MutexGuard},
};

/// Queued log records, in bytes, from which on a write of [`Durability::Memory`] passes them to the
/// operating system.
const PENDING_BYTES_MAX: u64 = 1 << 20;

/// The same as a part of the limit of memtables: the budget does not include these records.
const PENDING_SHARE: u64 = 64;

/// History of an open store: what was placed, what is in the log, what is visible.
#[derive(Debug)]
pub(crate) struct Writer {
    placement: Mutex<Placement>,
    publish: PublishQueue,
    log: SharedLog,
    waits: DurableWaits,
    room_turns: RoomTurns,
    /// First sequence numbers of writes that failed although the log may have their records. Only
    /// in a store that became read-only.
    refused: Mutex<Vec<SequenceNumber>>,
}

impl Writer {
    /// Creates a writer behind a history that ends at `last_sequence`.
    pub(super) fn new(last_sequence: SequenceNumber, log: SharedLog) -> Self {
        Self {
            placement: Mutex::new(Placement::new(last_sequence)),
            publish: PublishQueue::new(last_sequence),
            log,
            waits: DurableWaits::default(),
            room_turns: RoomTurns::default(),
            refused: Mutex::default(),
        }
    }

    /// Stops all writes until the guard is dropped.
    pub(crate) fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock()
    }

    /// Calls `look` with everything placed so far, under the placement lock.
    pub(crate) fn look_at_placed<T>(&self, look: impl FnOnce(&mut Placed<'_>) -> T) -> T {
        look(&mut Placed::new(&mut self.placement(), &self.publish))
    }

    pub(super) const fn publish(&self) -> &PublishQueue {
        &self.publish
    }

    pub(super) const fn log(&self) -> &SharedLog {
        &self.log
    }

    pub(super) const fn waits(&self) -> &DurableWaits {
        &self.waits
    }

    pub(super) const fn room_turns(&self) -> &RoomTurns {
        &self.room_turns
    }

    /// Begins to wait until the visible write that ends with `sequence` has this `durability`.
    pub(super) fn await_durable(
        &self,
        sequence: SequenceNumber,
        durability: Durability,
    ) -> Arc<DurableWait> {
        self.waits.add(&self.log, sequence, durability)
    }

    /// Ends all waits for durability after the store was `closed`.
    pub(super) fn end_waits(&self, closed: &Result<()>) {
        self.waits.end(&self.log, closed);
    }

    /// Returns the sequence number up to which writes are on the disk, or failed.
    pub(crate) fn durable(&self) -> SequenceNumber {
        self.log.synced()
    }

    /// Makes everything up to `sequence` durable.
    ///
    /// # Errors
    ///
    /// [`Error::NotWritten`], [`Error::Io`], [`Error::ReadOnly`].
    pub(crate) fn make_durable_to(
        &self,
        host: &impl LogHost,
        sequence: SequenceNumber,
    ) -> Result<()> {
        if self.durable() >= sequence {
            return Ok(());
        }
        host.check_writable()?;
        let newest = self.placement().last_placed();
        if sequence > newest {
            return Err(Error::NotWritten { sequence, newest });
        }
        self.log.sync_writes(host, sequence)
    }

    /// Notes that `write` failed although the log may have its record, before it is published.
    fn refuse(&self, write: &InFlight) {
        if write.failure().is_none() {
            self.refused.lock().push(write.first);
        }
    }

    /// Returns whether the write that begins with `first` failed.
    pub(super) fn is_refused(&self, first: SequenceNumber) -> bool {
        self.refused.lock().contains(&first)
    }

    /// Returns the newest sequence number that readers see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.publish.visible()
    }

    /// Makes all acknowledged writes as durable as `durability`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub(crate) fn persist(&self, host: &impl LogHost, durability: Durability) -> Result<()> {
        host.check_writable()?;
        match durability {
            Durability::Memory => Ok(()),
            Durability::OsBuffer => self.log.write(host),
            Durability::Disk => {
                let last_placed = self.placement().last_placed();
                self.log.sync_to(host, last_placed)
            }
        }
    }
}

impl Store {
    /// Commits `write`. Returns its last sequence number once it is durable and visible; `None` if
    /// `condition` does not hold.
    ///
    /// # Errors
    ///
    /// The write is not visible, and `write` is unchanged. After an I/O error it may be found when
    /// the store is reopened.
    #[inline]
    pub(crate) fn commit(
        &self,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<SequenceNumber>> {
        self.commit_or(OnStall::Wait, write, durability, condition)
    }

    /// As [`commit`](Self::commit). `on_stall` sets whether it waits for background work.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit), and [`Error::WouldStall`].
    pub(crate) fn commit_or(
        &self,
        on_stall: OnStall,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<SequenceNumber>> {
        self.versions.check_writable()?;
        match on_stall {
            OnStall::Wait => self.throttle(write)?,
            OnStall::Refuse => self.refuse_stall(write)?,
        }
        if durability == Durability::OsBuffer {
            // A write that failed may have frozen a memtable.
            let attempt = self.commit_sole(write, condition);
            match attempt.inspect_err(|_| self.scheduler.wake())? {
                Attempt::Visible(last, wakes) => {
                    self.end_commit(write, wakes);
                    return Ok(Some(last));
                }
                Attempt::ConditionFails => return Ok(None),
                Attempt::Queue => {}
            }
        }
        // A more durable write passes the queued records on anyway.
        let mut passes_on = false;
        if durability == Durability::Memory {
            let queued_bytes = self.writer.placement().pending_bytes() as u64;
            let bytes_max = self.pending_bytes_max();
            if queued_bytes >= bytes_max {
                // An earlier write could not.
                self.writer.log().write(self)?;
            }
            passes_on = queued_bytes + write.payload.len() as u64 >= bytes_max;
        }
        let Some((placed, wakes)) = self.place(on_stall, write, durability, condition)? else {
            return Ok(None);
        };
        if passes_on {
            // The next write returns the error: this one promises memory only.
            let _ = self.writer.log().write(self);
        }
        let logged = self.make_durable(placed.in_flight(), durability);
        match &logged {
            // By the thread that synced it.
            Ok(_) if placed.is_done() => {}
            Ok(_) => placed.write.insert(placed.first),
            Err(_) => placed.write.release(),
        }
        let (synced, failed) = match logged {
            Ok(synced) => (synced, None),
            Err(error) => (SyncedWaiters::default(), Some(error)),
        };
        let in_flight = placed.publish(synced);
        if let Some(error) = failed {
            self.fit_cache_and_wake(wakes);
            *write = in_flight.write.unplaced();
            return Err(error);
        }
        self.end_commit(&in_flight.write, wakes);
        Ok(Some(in_flight.last))
    }

    /// Counts a visible `write`, and begins the work that it made due. It may have frozen a
    /// memtable.
    fn end_commit(&self, write: &Write, froze: bool) {
        self.fit_cache_and_wake(froze);
        self.count(write);
        self.run_inline();
    }

    /// Fits the block cache to the memtables. Notifies the workers if `froze`, a memtable was
    /// frozen, or if one is to be frozen.
    fn fit_cache_and_wake(&self, froze: bool) {
        let mut wakes = froze;
        if self.tables.memory.is_fit_due() {
            self.tables.fit_cache();
            // A worker freezes memtables once no thread writes.
            wakes |= self.has_idle_excess();
        }
        if wakes {
            self.scheduler.wake();
        }
    }

    /// Makes asynchronous commits durable on this thread, in a store without workers.
    pub(crate) fn sync_inline(&self) {
        if !self.options.has_workers() {
            self.writer.waits().run_present(self.writer.log(), self);
        }
    }

    fn pending_bytes_max(&self) -> u64 {
        (self.tables.memory.limit(MemoryUse::Memtables) / PENDING_SHARE).min(PENDING_BYTES_MAX)
    }

    /// Counts a write that is visible.
    fn count(&self, write: &Write) {
        if write.entries.is_empty() {
            // A change of keyspaces.
            return;
        }
        let counters = &self.tables.counters.local().writes;
        counters.batches.add(1);
        counters.entries.add(write.entries.len() as u64);
        counters.bytes.add(write.payload.len() as u64);
    }

    /// Places `write` in the history. Returns whether a memtable was frozen, too; `None` if
    /// `condition` does not hold.
    ///
    /// # Errors
    ///
    /// `write` is unchanged.
    pub(in crate::store) fn place(
        &self,
        on_stall: OnStall,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<(PlacedWrite<'_, Self>, bool)>> {
        let mut turn = None;
        let placed = self.place_in_turn(&mut turn, on_stall, write, durability, condition);
        self.end_turn(&mut turn);
        placed
    }

    /// Ends the turn of a write that waited for room, if it has one.
    pub(in crate::store) fn end_turn(&self, turn: &mut Option<RoomTurn<'_>>) {
        if turn.take().is_some() {
            // Tasks wait for its end.
            self.scheduler.wake();
        }
    }

    /// As [`place`](Self::place). If the write waits for room, its turn is in `turn` afterwards.
    fn place_in_turn<'a>(
        &'a self,
        turn: &mut Option<RoomTurn<'a>>,
        on_stall: OnStall,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<(PlacedWrite<'a, Self>, bool)>> {
        // Computes the checksum of the payload outside of the lock.
        let (payload, mut references) = self.payload(write, condition.is_none());
        let waits = durability > Durability::Memory;
        loop {
            let mut placement = self.writer.placement();
            match self.admit(&mut placement, turn.is_some(), write, condition)? {
                Admission::Granted => {
                    let froze_largest = self.begin_placing(&placement);
                    write.refer_to(mem::take(&mut references));
                    let placed = placement.place(self.writer.publish(), write, payload, waits);
                    let (in_flight, froze) = placed.inspect_err(|_| write.refer_to_none())?;
                    debug_assert_eq!(in_flight.last, placement.last_placed(), "not the newest");
                    debug_assert!(self.writer.visible() < in_flight.first, "visible too early");
                    let placed = PlacedWrite::new(self, self.writer.publish(), in_flight);
                    return Ok(Some((placed, froze || froze_largest)));
                }
                Admission::ConditionFails => return Ok(None),
                Admission::AfterClear(clear) => {
                    drop(placement);
                    self.stall(|| self.writer.publish().wait_visible(clear));
                }
                Admission::AfterIngest(target) => {
                    drop(placement);
                    self.end_turn(turn);
                    if on_stall == OnStall::Refuse {
                        return Err(Stall::INGEST.into());
                    }
                    self.stall(|| write.targets[target].tree.wait_ingested());
                }
                Admission::NoRoom => {
                    drop(placement);
                    if on_stall == OnStall::Refuse {
                        return Err(self.refusal(Stall::FULL, write.charge_bytes()));
                    }
                    self.stall(|| self.wait_for_room(turn, write.charge_bytes()))?;
                }
                Admission::Undecided(sequence) => {
                    drop(placement);
                    self.writer.publish().wait_visible(sequence);
                    condition.decide()?;
                }
            }
        }
    }

    /// Prepares to place a write that was admitted. Returns whether a memtable was frozen.
    fn begin_placing(&self, placement: &Placement) -> bool {
        let froze_largest = self.freeze_largest();
        self.versions.note_time(|| self.options.clock.now(), placement.last_placed());
        froze_largest
    }

    /// Returns the payload of `write`, and the places of its values in blob files. A condition may
    /// refuse the write: then its values stay in the log.
    fn payload(
        &self,
        write: &Write,
        is_unconditional: bool,
    ) -> (Payload, Vec<(usize, BlobReference)>) {
        let logged = if is_unconditional { self.log_values(write) } else { None };
        if let Some((values, references)) = logged {
            return (Payload::without(&write.payload, values), references);
        }
        let entries = write.entries.len() as u64;
        let compresses = self.options.log_compression;
        (Payload::of_batch(write.payload.clone(), entries, compresses), Vec::new())
    }

    /// Makes a placed write as durable as `durability`. Returns the threads whose writes were
    /// synced along with it.
    pub(in crate::store) fn make_durable(
        &self,
        write: &Arc<InFlight>,
        durability: Durability,
    ) -> Result<SyncedWaiters> {
        let made = match durability {
            Durability::Memory => Ok(SyncedWaiters::default()),
            Durability::OsBuffer => {
                self.writer.log().write_through(self, write).map(|()| SyncedWaiters::default())
            }
            Durability::Disk => self.writer.log().sync_through(self, write),
        };
        made.inspect_err(|_| self.writer.refuse(write))
    }

    /// Counts the time that a writer spends in `wait`.
    fn stall<T>(&self, wait: impl FnOnce() -> T) -> T {
        let clock = &self.options.clock;
        let start = clock.now();
        let waited = wait();
        let counters = &self.tables.counters.local().writes;
        counters.stalls.add(1);
        counters.stalled_us.add(clock.now().saturating_sub(start).as_micros() as u64);
        waited
    }

    /// Delays a write by the worst debt, or waits while it stops writes.
    ///
    /// # Errors
    ///
    /// The error of the background work; [`Error::WriteTooLarge`].
    pub(in crate::store) fn throttle(&self, write: &Write) -> Result<()> {
        let mut longest = match self.room(write.charge_bytes())? {
            Room::Delay(delay) => delay,
            // Placing waits: under its lock no other write takes the room.
            Room::Wait | Room::Never(_) => Duration::ZERO,
        };
        if self.scheduler.merges_tables() {
            longest = longest.max(self.tables_delay());
        }
        let mut stopped = Vec::new();
        for target in &write.targets {
            let debt = self.debt(&target.tree);
            match pressure(debt) {
                Pressure::Delay(delay) => longest = longest.max(delay),
                Pressure::Stop => stopped.push((&target.tree, stall_reason(debt))),
            }
        }
        if !longest.is_zero() {
            self.stall(|| self.options.clock.sleep(longest));
        }
        for (tree, reason) in stopped {
            if self.options.worker_threads == 0 {
                // No worker retries after a full disk.
                self.scheduler.retry();
            }
            let is_over = || tree.is_dropped() || pressure(self.debt(tree)) != Pressure::Stop;
            let awaited = Stall::of_tree(tree, reason, None).awaited();
            if reason != StallReason::Flushes {
                self.scheduler.note_stopped(tree.id);
            }
            self.stall(|| self.wait_for(awaited, |_| is_over()))?;
        }
        Ok(())
    }
}
