//! The part of the log that the change stream may read.

use std::{sync::Arc, task::Waker, time::Duration};

use sievedb_format::SequenceNumber;

use super::Store;
use crate::{
    Durability, Error, Result,
    commit::WakerId,
    manifest::retained::{RetainedChanges, RetainedLog},
    wal::{
        replay::ReplayedSegment,
        tail::{LogTail, TailSegment},
    },
};

impl Store {
    /// Returns a reader of this store's log.
    pub(crate) fn log_tail(&self) -> LogTail {
        let tables = &self.tables;
        LogTail::new(Arc::clone(&tables.fs), tables.folder.clone(), tables.store_id)
    }

    /// Checks that every batch above `after` is retained, and that `after` is not in the future.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesNotRetained`], [`Error::ChangesLost`].
    pub(crate) fn check_changes(&self, after: SequenceNumber) -> Result<()> {
        let newest = self.writer.visible();
        self.versions.read_manifest(|manifest| {
            let retained = self.retained(manifest.state().retained.as_ref())?;
            self.check_from(retained, after)?;
            if after > newest {
                return Err(Error::ChangesLost { since: after, oldest: retained.from, newest });
            }
            Ok(())
        })
    }

    fn retained<'r>(&self, retained: Option<&'r RetainedChanges>) -> Result<&'r RetainedChanges> {
        let path = || self.tables.folder.clone();
        retained.ok_or_else(|| Error::ChangesNotRetained { path: path() })
    }

    fn check_from(&self, retained: &RetainedChanges, after: SequenceNumber) -> Result<()> {
        if after >= retained.from {
            return Ok(());
        }
        let newest = self.writer.visible();
        Err(Error::ChangesLost { since: after, oldest: retained.from, newest })
    }

    /// Returns the sequence number up to which batches are visible, in the log, and as durable as
    /// `durability`. Writes or syncs the log only if that is `after`, and more is visible.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub(crate) fn changes_ready(
        &self,
        after: SequenceNumber,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let (visible, log) = (self.writer.visible(), self.writer.log());
        if self.follower.is_some() {
            return Ok(visible.max(after));
        }
        let is_durable = durability == Durability::Disk;
        let ready = visible.min(if is_durable { log.synced() } else { log.written() });
        if ready > after || visible <= after {
            return Ok(ready.max(after));
        }
        // A stream does not keep the store open.
        self.report_later(|| match is_durable {
            true => log.sync_to(self, visible),
            false => log.write(self),
        })?;
        Ok(visible)
    }

    /// Returns the first segment with a batch above `after`; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesLost`] if it was dropped.
    pub(crate) fn changes_segment(&self, after: SequenceNumber) -> Result<Option<TailSegment>> {
        // First: a segment that leaves the log meanwhile is retained before.
        let live = self.written_after(after);
        self.versions.read_manifest(|manifest| {
            let state = manifest.state();
            let retained = self.retained(state.retained.as_ref())?;
            self.check_from(retained, after)?;
            let mut older = retained.logs.iter();
            if let Some((&id, log)) = older.find(|(_, log)| log.last_sequence > after) {
                let &RetainedLog { secret, bytes, last_sequence, .. } = log;
                return Ok(Some(TailSegment { id, secret: Some(secret), bytes, last_sequence }));
            }
            Ok(live.map(|it| {
                let secret = state.logs.get(&it.id).copied();
                TailSegment { id: it.id, secret, bytes: it.bytes, last_sequence: it.last_sequence }
            }))
        })
    }

    /// Returns the first segment of the log with a record above `after`, as far as it was written.
    fn written_after(&self, after: SequenceNumber) -> Option<ReplayedSegment> {
        match &self.follower {
            Some(follower) => follower.segment_after(after),
            None => self.writer.log().segment_after(after),
        }
    }

    /// Waits until more than `sequence` is visible or `is_over`, for at most `timeout`.
    pub(crate) fn wait_for_changes(
        &self,
        sequence: SequenceNumber,
        timeout: Duration,
        is_over: impl Fn() -> bool,
    ) {
        self.writer.publish().wait_beyond(sequence, timeout, is_over);
    }

    /// As [`wait_for_changes`](Self::wait_for_changes), by a waker. Returns `false` if there is
    /// nothing to wait for.
    pub(crate) fn wake_for_changes(
        &self,
        id: WakerId,
        sequence: SequenceNumber,
        waker: &Waker,
        is_over: impl Fn() -> bool,
    ) -> bool {
        self.writer.publish().wake_beyond(id, sequence, waker, is_over)
    }

    /// Returns an id for [`wake_for_changes`](Self::wake_for_changes).
    pub(crate) fn new_waker_id(&self) -> WakerId {
        self.writer.publish().new_waker_id()
    }

    /// Drops the waker of a stream that ends.
    pub(crate) fn forget_waker(&self, id: WakerId) {
        self.writer.publish().forget_waker(id);
    }

    /// Returns the present end of the live segment `id`, if it has a batch above `after`.
    pub(crate) fn live_segment(&self, id: u64, after: SequenceNumber) -> Option<(u64, u64)> {
        let live = self.written_after(after)?;
        (live.id == id).then_some((live.bytes, live.last_sequence))
    }

    /// Returns whether the batch that begins with `first` was refused: its record is in the log,
    /// but its sync failed.
    pub(crate) fn is_refused(&self, first: SequenceNumber) -> bool {
        self.versions.is_read_only() && self.writer.is_refused(first)
    }
}
