//! The one way of a write: encode, place in the log, (sync), insert into memtables, publish.

use sievedb_format::SequenceNumber;

use std::time::Duration;

use super::Store;
use crate::{
    Durability, Result,
    commit::{InFlight, Placed, PlacedWrite, Validate, Verdict, Write},
    log::Payload,
    memory::MemoryUse,
    store::writer::throttle::{Pressure, Room, pressure},
};

/// Log records that wait in memory before a write of [`Durability::Memory`] passes them on to the
/// operating system, in bytes.
const PENDING_BYTES_MAX: u64 = 1 << 20;

/// The same, as a share of what memtables may take: these records are no part of the budget.
const PENDING_SHARE: u64 = 64;

impl Store {
    /// Sends `write` down the pipeline, which takes it. Returns its last sequence number once it is
    /// as durable as asked and visible, or `None` if `condition` did not hold.
    ///
    /// # Errors
    ///
    /// Why the write is neither durable nor visible; `write` is as it was then. After an I/O error
    /// it may still come back when the store is reopened.
    pub(crate) fn commit(
        &self,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<SequenceNumber>> {
        self.versions.check_writable()?;
        self.throttle(write)?;
        // A stronger write passes on what waits anyway.
        if durability == Durability::Memory
            && self.writer.placement().pending_bytes() as u64 >= self.pending_bytes_max()
        {
            self.writer.log().write(self)?;
        }
        let Some((placed, mut wakes)) = self.place(write, durability, condition)? else {
            return Ok(None);
        };
        let logged = self.make_durable(&placed, durability);
        match &logged {
            Ok(()) => placed.write.insert(placed.first),
            Err(_) => placed.write.release(),
        }
        let in_flight = placed.publish();
        if self.tables.memory.is_fit_due() {
            self.tables.fit_cache();
            // A worker looks when nobody writes any more.
            wakes |= self.has_idle_excess();
        }
        if wakes {
            self.scheduler.wake();
        }
        if let Err(error) = logged {
            *write = in_flight.write.unplaced();
            return Err(error);
        }
        self.count(&in_flight.write);
        self.run_inline();
        Ok(Some(in_flight.last))
    }

    fn pending_bytes_max(&self) -> u64 {
        (self.tables.memory.limit(MemoryUse::Memtables) / PENDING_SHARE).min(PENDING_BYTES_MAX)
    }

    /// Counts a write that is visible.
    fn count(&self, write: &Write) {
        if write.entries.is_empty() {
            // A record about keyspaces.
            return;
        }
        let counters = &self.tables.counters.local().writes;
        counters.batches.add(1);
        counters.entries.add(write.entries.len() as u64);
        counters.bytes.add(write.payload.len() as u64);
    }

    /// Places `write`, and takes it: from here on it has its position in the history.
    ///
    /// # Errors
    ///
    /// Why it cannot be placed; `write` is as it was then.
    pub(crate) fn place(
        &self,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<(PlacedWrite<'_, Self>, bool)>> {
        // The checksum of the payload is computed here, outside the lock.
        let payload = Payload::new(write.payload.clone());
        let waits = durability > Durability::Memory;
        loop {
            let mut placement = self.writer.placement();
            // Under the lock: a close waits for what is placed.
            self.check_open()?;
            self.versions.check_writable()?;
            match condition.check(&Placed::new(self.writer.publish()))? {
                Verdict::Holds if self.room(write)? == Room::Wait => {
                    drop(placement);
                    self.stall(|| self.wait_for_room(write))?;
                }
                Verdict::Holds => {
                    let froze_largest = self.freeze_largest();
                    let placed = placement.place(self.writer.publish(), write, payload, waits)?;
                    let (in_flight, froze) = placed;
                    let placed = PlacedWrite::new(self, self.writer.publish(), in_flight);
                    return Ok(Some((placed, froze || froze_largest)));
                }
                Verdict::Fails => return Ok(None),
                Verdict::Undecided(sequence) => {
                    drop(placement);
                    self.writer.publish().wait_visible(sequence);
                }
            }
        }
    }

    /// Brings a placed write as far as `durability` asks.
    pub(crate) fn make_durable(&self, write: &InFlight, durability: Durability) -> Result<()> {
        match durability {
            Durability::Memory => Ok(()),
            Durability::OsBuffer => self.writer.log().write_through(self, write),
            Durability::Disk => self.writer.log().sync_through(self, write),
        }
    }

    /// Counts the time for which `wait` keeps a writer.
    pub(super) fn stall<T>(&self, wait: impl FnOnce() -> T) -> T {
        let clock = &self.options.clock;
        let start = clock.now();
        let waited = wait();
        let counters = &self.tables.counters.local().writes;
        counters.stalls.add(1);
        counters.stalled_us.add(clock.now().saturating_sub(start).as_micros() as u64);
        waited
    }

    /// Delays a write, or lets it wait, as the debt of its keyspaces demands.
    ///
    /// # Errors
    ///
    /// Why background work cannot catch up; [`WriteTooLarge`](crate::Error::WriteTooLarge).
    pub(crate) fn throttle(&self, write: &Write) -> Result<()> {
        match self.room(write)? {
            Room::Delay(Duration::ZERO) => {}
            Room::Delay(delay) => self.stall(|| self.options.clock.sleep(delay)),
            // Placing waits, where nobody can take the room away again.
            Room::Wait | Room::Never(_) => {}
        }
        match self.tables_delay() {
            Duration::ZERO => {}
            delay => self.stall(|| self.options.clock.sleep(delay)),
        }
        for target in &write.targets {
            match pressure(target.tree.debt()) {
                Pressure::Delay(Duration::ZERO) => {}
                Pressure::Delay(delay) => self.stall(|| self.options.clock.sleep(delay)),
                Pressure::Stop => {
                    if self.options.worker_threads == 0 {
                        // Nobody tries again by himself after a full disk.
                        self.scheduler.retry();
                    }
                    let tree = &target.tree;
                    let is_over = || tree.is_dropped() || pressure(tree.debt()) != Pressure::Stop;
                    self.stall(|| self.wait_for_work(|_| is_over()))?;
                }
            }
        }
        Ok(())
    }
}
