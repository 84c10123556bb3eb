//! Checks of a write before it is placed.

use sievedb_format::SequenceNumber;

use super::throttle::Room;
use crate::{
    Result,
    commit::{Placed, Placement, Validate, Verdict, Write},
    store::Store,
};

/// Result of a check of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    ConditionFails,
    /// Check again when this sequence number, of a clear of a keyspace, is visible.
    AfterClear(SequenceNumber),
    /// Check again after the ingest into the target with this index.
    AfterIngest(usize),
    /// Check again when memtables have room.
    NoRoom,
    /// Check again when this sequence number is visible: see [`Verdict::Undecided`].
    Undecided(SequenceNumber),
}

impl Store {
    /// Checks whether `write` may be placed. The caller holds the placement lock, and releases it
    /// before it waits. `has_turn` if the write has the turn for room.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed), [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// [`Error::WriteTooLarge`](crate::Error::WriteTooLarge), and those of the condition.
    pub(super) fn admit(
        &self,
        placement: &mut Placement,
        has_turn: bool,
        write: &Write,
        condition: &mut impl Validate,
    ) -> Result<Admission> {
        // Under the lock: a close waits for what is placed.
        self.check_open()?;
        self.versions.check_writable()?;
        // Before the condition, which the clear may change.
        let clear = write.targets.iter().find_map(|target| target.tree.clear_in_flight());
        if let Some(clear) = clear {
            return Ok(Admission::AfterClear(clear));
        }
        let ingesting = write.targets.iter().position(|target| target.tree.is_ingesting());
        if let Some(target) = ingesting {
            return Ok(Admission::AfterIngest(target));
        }
        match condition.check(&mut Placed::new(placement, self.writer.publish()))? {
            Verdict::Fails => return Ok(Admission::ConditionFails),
            Verdict::Undecided(sequence) => return Ok(Admission::Undecided(sequence)),
            Verdict::Holds => {}
        }
        let is_behind_turn = !has_turn && self.is_behind_turn(write.charge_bytes());
        if is_behind_turn || self.room(write.charge_bytes())? == Room::Wait {
            return Ok(Admission::NoRoom);
        }
        Ok(Admission::Granted)
    }
}
