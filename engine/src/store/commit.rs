//! The one way of a write: encode, place in the log, (sync), insert into memtables, publish.

use sievedb_format::SequenceNumber;

use super::{Store, memory::Room};
use crate::{
    Durability, Error, Result,
    commit::{InFlight, LogHost, Placed, Placement, Validate, Verdict, Write},
    log::{Payload, Position, Writer},
    manifest::VersionEdit,
    memory::MemoryUse,
    store::placed_write::PlacedWrite,
    sync::MutexGuard,
    wal::segment::NewSegment,
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
        self.check_writable()?;
        self.throttle(write)?;
        // A stronger write passes on what waits anyway.
        if durability == Durability::Memory
            && self.placement.lock().pending_bytes() as u64 >= self.pending_bytes_max()
        {
            self.log.write(self)?;
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
            self.background.wake();
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
    ) -> Result<Option<(PlacedWrite<'_>, bool)>> {
        // The checksum of the payload is computed here, outside the lock.
        let payload = Payload::new(write.payload.clone());
        let waits = durability > Durability::Memory;
        loop {
            let mut placement = self.placement.lock();
            // Under the lock: a close waits for what is placed.
            self.check_open()?;
            self.check_writable()?;
            match condition.check(&Placed::new(&self.publish))? {
                Verdict::Holds if self.room(write)? == Room::Wait => {
                    drop(placement);
                    self.stall(|| self.wait_for_room(write))?;
                }
                Verdict::Holds => {
                    let froze_largest = self.freeze_largest();
                    let placed = placement.place(&self.publish, write, payload, waits)?;
                    let (in_flight, froze) = placed;
                    let placed = PlacedWrite::new(self, in_flight);
                    return Ok(Some((placed, froze || froze_largest)));
                }
                Verdict::Fails => return Ok(None),
                Verdict::Undecided(sequence) => {
                    drop(placement);
                    self.publish.wait_visible(sequence);
                }
            }
        }
    }

    /// Brings a placed write as far as `durability` asks.
    pub(crate) fn make_durable(&self, write: &InFlight, durability: Durability) -> Result<()> {
        match durability {
            Durability::Memory => Ok(()),
            Durability::OsBuffer => self.log.write_through(self, write),
            Durability::Disk => self.log.sync_through(self, write),
        }
    }
}

impl LogHost for Store {
    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock()
    }

    fn segment_bytes(&self) -> u64 {
        self.options.log.segment_bytes(self.tables.memory.limit(MemoryUse::Memtables))
    }

    fn create_segment(&self, previous: Option<Position>, mark: Position) -> Result<Writer> {
        let tables = &self.tables;
        self.renew_manifest()?;
        let manifest = {
            let manifest = self.manifest.lock();
            // Under the lock: behind a failed sync the position would vouch for what is not there.
            self.check_writable()?;
            manifest.position()
        };
        let (store_id, id) = (tables.store_id, tables.new_file_id());
        let segment = NewSegment { store_id, id, manifest, previous, mark };
        let writer = segment.create(&*tables.fs, &tables.folder)?;
        let edit =
            VersionEdit { logs_created: vec![(id, writer.secret())], ..VersionEdit::default() };
        let named = self.edit_manifest(|_| Some(edit), |_| ());
        if named.is_err() {
            self.uncertain_files.lock().push(writer.path().clone());
        }
        named?;
        // The log may have become too long.
        self.background.wake();
        Ok(writer)
    }

    fn check_writable(&self) -> Result<()> {
        Self::check_writable(self)
    }

    fn poison(&self, cause: Error) -> Error {
        Self::poison(self, cause)
    }
}
