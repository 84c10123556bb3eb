//! Syncs of the log: one thread syncs for all that wait.

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

/// Minimum payload, in bytes, of a record that is passed to the operating system before it waits
/// for its sync.
const WRITTEN_ALONE_BYTES: usize = 16 << 10;

impl SharedLog {
    /// Makes everything placed up to `sequence` durable, unless that is done.
    pub(crate) fn sync_to(&self, host: &impl LogHost, sequence: SequenceNumber) -> Result<()> {
        self.sync(host, sequence, None, |_| ()).map(drop)
    }

    /// Makes `write` durable, unless that is done. Extends the segment for more durable writes.
    /// Returns the threads whose writes were synced along with it.
    ///
    /// The thread that synced `write` may have inserted and completed it, too.
    pub(crate) fn sync_through(
        &self,
        host: &impl LogHost,
        write: &Arc<InFlight>,
    ) -> Result<SyncedWaiters> {
        // During the sync of another thread. That thread's successor writes short records at once.
        if write.write.payload.len() >= WRITTEN_ALONE_BYTES {
            self.write_through(host, write)?;
        }
        let synced = self.sync_writes_with_others(host, write.last, Some(write));
        // The append failed under a thread that was to sync, too.
        write.failure().map_or(synced, Err)
    }

    /// Makes everything placed up to `sequence` durable, unless that is done. Extends the segment
    /// for more durable writes.
    pub(crate) fn sync_writes(&self, host: &impl LogHost, sequence: SequenceNumber) -> Result<()> {
        self.sync_writes_with_others(host, sequence, None).map(drop)
    }

    /// As [`sync_writes`](Self::sync_writes), and returns the threads whose writes were synced,
    /// too.
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

    /// Makes everything placed up to `sequence` durable, unless that is done. Calls `prepare`
    /// before the sync. Returns the other threads whose writes are durable now.
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
        // Oldest first: a hole in the history would be worse than a lost end.
        turn.time(|| unsynced.iter().try_for_each(|segment| segment.sync(host)))?;
        let mut files = self.files.lock();
        // A sync by the previous holder of this lock may have failed: these reported no error then.
        host.check_writable()?;
        files.mark_synced(&unsynced);
        drop(files);
        self.synced.store(written, Release);
        Ok(turn.pass_on())
    }

    /// Makes the segments below `floor`, which take no records, durable with their seals. Returns
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
        // As in `sync`: an error of another thread vouches for nothing.
        host.check_writable()?;
        files.mark_synced(&unsynced);
        let below = files.segments.iter().take_while(|segment| segment.id < floor);
        Ok(below.map(Segment::replayed).collect())
    }
}
