//! Calls the compaction filter of a keyspace.
//!
//! A filter is code of the caller, and may panic. The compaction then fails.

use std::{
    mem,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use sievedb_format::{SequenceNumber, VALUE_BYTES_MAX};

use crate::{
    Error, Result,
    compaction_filter::{CompactionContext, CompactionFilter, Decision},
};

/// The filter of one compaction, and its state.
#[derive(Debug)]
pub(crate) struct Filtering {
    filter: Arc<dyn CompactionFilter>,
    keyspace: String,
    output_level: u8,
    /// No table outside of the compaction has older versions.
    is_bottommost: bool,
    /// The newest snapshot, which may see versions up to this sequence number.
    newest_snapshot: Option<SequenceNumber>,
    /// Keys before this one are removed; empty for none.
    skip_until: Vec<u8>,
    /// The next step is a seek to `skip_until`.
    is_seek_due: bool,
    has_changed: bool,
}

/// Effect of the filter on a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filtered {
    Kept,
    Removed,
    Replaced(Vec<u8>),
}

impl Filtering {
    /// Prepares a compaction of `keyspace` into `output_level`. Its readers were listed together
    /// with `newest_snapshot`.
    pub(crate) fn new(
        filter: Arc<dyn CompactionFilter>,
        keyspace: String,
        output_level: u8,
        is_bottommost: bool,
        newest_snapshot: Option<SequenceNumber>,
    ) -> Self {
        let (skip_until, is_seek_due, has_changed) = Default::default();
        Self {
            filter,
            keyspace,
            output_level,
            is_bottommost,
            newest_snapshot,
            skip_until,
            is_seek_due,
            has_changed,
        }
    }

    /// Returns `true` if the filter removed or replaced a value.
    pub(crate) const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns `true` if no snapshot sees a version with this sequence number.
    pub(super) fn may_change(&self, sequence: SequenceNumber) -> bool {
        self.newest_snapshot.is_none_or(|newest| newest < sequence)
    }

    /// Returns `true` if an earlier decision removes the version of `key` with this sequence
    /// number. Keys must be given in ascending order.
    pub(super) fn skips(&mut self, key: &[u8], sequence: SequenceNumber) -> bool {
        if self.skip_until.is_empty() {
            return false;
        }
        if *self.skip_until <= *key {
            self.skip_until.clear();
            self.is_seek_due = false;
            return false;
        }
        self.may_change(sequence)
    }

    /// Returns the key to seek to instead of the next step: no reader needs a version before it.
    pub(super) fn take_seek(&mut self) -> Option<&[u8]> {
        mem::take(&mut self.is_seek_due).then_some(&*self.skip_until)
    }

    /// Calls the filter for the newest value of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::CompactionFilterFailed`].
    pub(super) fn decide(&mut self, key: &[u8], value: &[u8]) -> Result<Filtered> {
        let context = CompactionContext::new(&self.keyspace, self.output_level, self.is_bottommost);
        let call = || self.filter.filter(&context, key, value);
        let decision = panic::catch_unwind(AssertUnwindSafe(call));
        let decision = decision.map_err(|_| self.error(key, "it panicked"))?;
        let filtered = match decision {
            Decision::Keep => return Ok(Filtered::Kept),
            Decision::Remove => Filtered::Removed,
            Decision::Replace(value) if value.len() <= VALUE_BYTES_MAX => Filtered::Replaced(value),
            Decision::Replace(_) => {
                return Err(self.error(key, "the new value is longer than 256 MiB"));
            }
            Decision::RemoveAndSkipUntil(until) => {
                if *until > *key {
                    self.skip_until = until;
                    self.is_seek_due = self.is_bottommost && self.newest_snapshot.is_none();
                }
                Filtered::Removed
            }
        };
        self.has_changed = true;
        Ok(filtered)
    }

    #[cold]
    fn error(&self, key: &[u8], reason: &'static str) -> Error {
        let (keyspace, filter) = (self.keyspace.as_str().into(), self.filter.name().into());
        Error::CompactionFilterFailed { keyspace, filter, key: key.into(), reason }
    }
}
