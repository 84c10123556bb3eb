//! A short write, of one entry below 1 KiB, while no other write is queued or in flight: see
//! [`commit_sole`].

use sievedb_format::SequenceNumber;

use super::admission::Admission;
use crate::{
    Result,
    commit::{Validate, Write, commit_sole},
    store::{Store, logged_values::VALUE_BYTES_MIN},
};

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The write is visible up to this number. `true` if a memtable was frozen.
    Visible(SequenceNumber, bool),
    ConditionFails,
    /// The write is unchanged, and must be queued.
    Queue,
}

impl Store {
    /// Commits `write` with the durability of the operating system, if it is short and there is no
    /// other one.
    ///
    /// # Errors
    ///
    /// The write is not visible, and `write` is unchanged.
    pub(super) fn commit_sole(
        &self,
        write: &mut Write,
        condition: &mut impl Validate,
    ) -> Result<Attempt> {
        // Under these locks nothing is compressed or written to a blob file, and no range
        // tombstones are sorted.
        let is_short = (write.payload.len() as u64) < VALUE_BYTES_MIN;
        if !is_short || !matches!(&write.entries[..], [entry] if !entry.is_range()) {
            return Ok(Attempt::Queue);
        }
        let mut refusal = None;
        let (log, publish) = (self.writer.log(), self.writer.publish());
        let sole = commit_sole(self, log, publish, write, |placement, write| {
            match self.admit(placement, false, write, condition)? {
                Admission::Granted => Ok(Some(self.begin_placing(placement))),
                other => {
                    refusal = Some(other);
                    Ok(None)
                }
            }
        })?;
        if let Some((numbers, froze_largest)) = sole {
            return Ok(Attempt::Visible(numbers.last, numbers.froze || froze_largest));
        }
        match refusal {
            Some(Admission::ConditionFails) => return Ok(Attempt::ConditionFails),
            // The next check expects the decision. No write is in flight, so none is awaited.
            Some(Admission::Undecided(_)) => condition.decide()?,
            _ => {}
        }
        Ok(Attempt::Queue)
    }
}
