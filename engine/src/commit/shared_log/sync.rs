//! Syncs of the log: one thread syncs for all waiting threads.

use std::sync::Arc;

use sievedb_format::SequenceNumber;

use super::{
    super::{
        InFlight, PanicGuard, SyncedWaiters,
        log_segment::{LogFiles, Segment},
    },
    LogHost, SharedLog,
};
use crate::{
    Result,
    sync::atomic::Ordering::{Acquire, Release},
    wal::replay::ReplayedSegment,
};

/// Minimum payload, in bytes, for which the record is passed to the operating system before its
/// thread waits for the sync.
const WRITTEN_ALONE_BYTES: usize = 16 << 10;

impl SharedLog {
    /// Makes everything placed up to `sequence` durable, unless it is.
    pub(crate) fn sync_to(&self, host: &impl LogHost, sequence: SequenceNumber) -> Result<()> {
        self.sync(host, sequence, None, |_| ()).map(drop)
    }

    /// Makes `write` durable, unless it is. Extends the segment for more durable writes. Returns
    /// the threads whose writes were synced along with it.
    ///
    /// The thread that synced `write` may also have inserted and completed it.
    pub(crate) fn sync_through(
        &self,
        host: &impl LogHost,
        write: &Arc<InFlight>,
    ) -> Result<SyncedWaiters> {
        // Runs during the sync of another thread. The next syncing thread writes short records at
        // once.
        if write.write.payload.len() >= WRITTEN_ALONE_BYTES {
            self.write_through(host, write)?;
        }
        let synced = self.sync_writes_with_others(host, write.last, Some(write));
        // The append failed in another thread, which was to sync this write too.
        write.failure().map_or(synced, Err)
    }

    /// Makes everything placed up to `sequence` durable, unless it is. Extends the segment for more
    /// durable writes.
    pub(crate) fn sync_writes(&self, host: &impl LogHost, sequence: SequenceNumber) -> Result<()> {
        self.sync_writes_with_others(host, sequence, None).map(drop)
    }

    /// As [`sync_writes`](Self::sync_writes), and also returns the threads whose writes were
    /// synced.
    fn sync_writes_with_others(
        &self,
        host: &impl LogHost,
        sequence: SequenceNumber,
        write: Option<&Arc<InFlight>>,
    ) -> Result<SyncedWaiters> {
        self.sync(host, sequence, write, |files| {
            if let Some(writer) = &mut files.writer {
                writer.reserve(host.segment_bytes());
            }
        })
    }

    /// Makes everything placed up to `sequence` durable, unless it is. Calls `prepare` before the
    /// sync. Returns the other threads whose writes are now durable.
    fn sync(
        &self,
        host: &impl LogHost,
        sequence: SequenceNumber,
        write: Option<&Arc<InFlight>>,
        prepare: impl FnOnce(&mut LogFiles),
    ) -> Result<SyncedWaiters> {
        if self.synced.load(Acquire) >= sequence {
            return Ok(SyncedWaiters::default());
        }
        let Some(mut turn) = self.sync_turns.take(&self.synced, sequence, write)? else {
            return Ok(SyncedWaiters::default());
        };
        turn.gather();
        let _guard = PanicGuard::new(host);
        let (written, unsynced) = {
            let mut files = self.files.lock();
            let appended = self.write_pending(host, &mut files);
            if self.written.load(Acquire) < sequence {
                appended?;
            }
            prepare(&mut files);
            (self.written.load(Acquire), files.unsynced())
        };
        host.check_writable()?;
        if host.counts_unsynced() {
            self.synced.store(written, Release);
        }
        // Syncs the oldest first: a hole in the history would be worse than a lost end.
        turn.time(|| unsynced.iter().try_for_each(|segment| segment.sync(host)))?;
        let mut files = self.files.lock();
        // A sync of the previous holder of this lock may have failed. The syncs above then reported
        // no error.
        host.check_writable()?;
        files.mark_synced(&unsynced);
        drop(files);
        self.synced.store(written, Release);
        Ok(turn.pass_on())
    }

    /// Makes the segments below `floor`, which accept no records, durable with their seals. Returns
    /// them, oldest first.
    pub(crate) fn sync_below(
        &self,
        host: &impl LogHost,
        floor: u64,
    ) -> Result<Vec<ReplayedSegment>> {
        let _guard = PanicGuard::new(host);
        let mut unsynced = self.files.lock().unsynced();
        unsynced.retain(|segment| segment.id < floor);
        for segment in &unsynced {
            segment.sync(host)?;
        }
        let mut files = self.files.lock();
        // As in `sync`: the error may have been reported to another thread.
        host.check_writable()?;
        files.mark_synced(&unsynced);
        let below = files.segments.iter().take_while(|segment| segment.id < floor);
        Ok(below.map(Segment::replayed).collect())
    }
}
