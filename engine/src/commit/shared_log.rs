//! The log that all writers share: whoever comes first writes, or syncs, for all who wait.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    slice,
    sync::Arc,
};

use sievedb_format::SequenceNumber;

use super::{
    InFlight, LogSize, PanicGuard, Placement,
    log_segment::{Segment, Unsynced},
    sync_turns::SyncTurns,
};
use crate::{
    Error, Result,
    file_name::FileName,
    log::{PendingRecord, Position, Writer},
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    wal::replay::ReplayedSegment,
};

/// What the log needs of the store around it.
pub(crate) trait LogHost {
    /// Takes the placement lock.
    fn placement(&self) -> MutexGuard<'_, Placement>;

    /// Length at which a segment is sealed.
    fn segment_bytes(&self) -> u64;

    /// Creates a segment that follows `previous`, durable and named by the manifest.
    fn create_segment(&self, previous: Option<Position>, mark: Position) -> Result<Writer>;

    /// Refuses to write once the store is read-only.
    fn check_writable(&self) -> Result<()>;

    /// Makes the store read-only. Returns `cause`.
    fn poison(&self, cause: Error) -> Error;
}

/// A segment that nobody needs is left if it has one part of so many of a whole one.
const LEFT_SHARE: u64 = 16;

/// Finished segments that are open because they are not synced. Each further one syncs the oldest.
const UNSYNCED_SEGMENTS_MAX: usize = 8;

/// The write-ahead log of an open store.
#[derive(Debug)]
pub(crate) struct SharedLog {
    files: Mutex<LogFiles>,
    /// One syncs at a time, and those who come meanwhile share the next sync.
    sync_turns: SyncTurns,
    /// What was placed up to here is with the operating system, or has failed.
    written: AtomicU64,
    /// What was placed up to here is on the disk, or has failed.
    synced: AtomicU64,
}

/// What the log-files lock guards.
#[derive(Debug)]
struct LogFiles {
    /// The segment that takes records. `None` before the first and after a full disk: the next
    /// record begins a new one.
    writer: Option<Writer>,
    /// Where the newest segment ends, for the start record of the next.
    end: Option<Position>,
    /// Every segment that the manifest names, oldest first.
    segments: VecDeque<Segment>,
    mark: Position,
    /// Syncs of segments.
    syncs: u64,
}

impl SharedLog {
    /// A log without a segment; everything up to `sequence` is durable in tables.
    pub(crate) fn new(sequence: SequenceNumber) -> Self {
        Self {
            files: Mutex::new(LogFiles {
                writer: None,
                end: None,
                segments: VecDeque::new(),
                mark: Position::default(),
                syncs: 0,
            }),
            sync_turns: SyncTurns::default(),
            written: AtomicU64::new(sequence),
            synced: AtomicU64::new(sequence),
        }
    }

    /// Creates a log that continues `segments` in `folder`, up to the sequence number `sequence`.
    /// Every byte of them must be durable. The next record begins a new segment.
    pub(crate) fn continued(
        sequence: SequenceNumber,
        folder: &Path,
        segments: &[ReplayedSegment],
    ) -> Self {
        let log = Self::new(sequence);
        let mut files = log.files.lock();
        let position = |last: &ReplayedSegment| Position { file_id: last.id, offset: last.bytes };
        files.end = segments.last().map(position);
        files.mark = files.end.unwrap_or_default();
        files.segments.extend(segments.iter().map(
            |&ReplayedSegment { id, bytes, last_sequence }| {
                let path = FileName::Log(id).path(folder);
                Segment { id, path, bytes, last_sequence, file: None, synced_bytes: bytes }
            },
        ));
        drop(files);
        log
    }

    /// Passes everything placed so far on to the operating system.
    pub(crate) fn write(&self, host: &impl LogHost) -> Result<()> {
        let mut files = self.files.lock();
        self.write_pending(host, &mut files)
    }

    /// Passes the record of `write` on to the operating system, unless somebody did.
    pub(crate) fn write_through(&self, host: &impl LogHost, write: &InFlight) -> Result<()> {
        let mut files = self.files.lock();
        if let Some(error) = write.failure() {
            return Err(error);
        }
        if self.written.load(Acquire) >= write.last {
            return Ok(());
        }
        self.write_pending(host, &mut files)
    }

    /// Makes everything placed up to `sequence` durable, unless somebody did.
    pub(crate) fn sync_to(&self, host: &impl LogHost, sequence: SequenceNumber) -> Result<()> {
        self.sync(host, sequence, |_| ())
    }

    /// Makes `write` durable, unless somebody did. Others like it will follow: the segment is made
    /// longer for them.
    pub(crate) fn sync_through(&self, host: &impl LogHost, write: &InFlight) -> Result<()> {
        self.write_through(host, write)?;
        self.sync(host, write.last, |files| {
            if let Some(writer) = &mut files.writer {
                writer.reserve(host.segment_bytes());
            }
        })
    }

    /// Makes everything placed up to `sequence` durable, unless somebody did; `prepare` is called
    /// before the sync.
    fn sync(
        &self,
        host: &impl LogHost,
        sequence: SequenceNumber,
        prepare: impl FnOnce(&mut LogFiles),
    ) -> Result<()> {
        if self.synced.load(Acquire) >= sequence {
            return Ok(());
        }
        let Some(_turn) = self.sync_turns.take(&self.synced, sequence) else { return Ok(()) };
        let _guard = PanicGuard::new(host);
        let (written, unsynced) = {
            let mut files = self.files.lock();
            if self.written.load(Acquire) < sequence {
                self.write_pending(host, &mut files)?;
            }
            prepare(&mut files);
            (self.written.load(Acquire), files.unsynced())
        };
        host.check_writable()?;
        // Oldest first: a hole in the history would be worse than a lost end.
        for segment in &unsynced {
            segment.sync(host)?;
        }
        let mut files = self.files.lock();
        // A sync by the previous holder of this lock may have failed: these reported no error then.
        host.check_writable()?;
        files.mark_synced(&unsynced);
        drop(files);
        self.synced.store(written, Release);
        Ok(())
    }

    /// The place up to which the log is known to be durable.
    pub(crate) fn mark(&self) -> Position {
        self.files.lock().mark
    }

    /// The newest segment and the end of what is written of it; the default if there is none.
    pub(crate) fn written_to(&self) -> Position {
        let files = self.files.lock();
        let newest = files.segments.back();
        newest.map_or_else(Position::default, |newest| Position {
            file_id: newest.id,
            offset: newest.bytes,
        })
    }

    /// How large it is.
    pub(crate) fn size(&self) -> LogSize {
        let files = self.files.lock();
        let bytes = files.segments.iter().map(|segment| segment.bytes).sum();
        LogSize { segments: files.segments.len() as u64, bytes, syncs: files.syncs }
    }

    /// The last sequence number of the oldest segment, unless it is the one that takes records.
    pub(crate) fn oldest_finished(&self) -> Option<SequenceNumber> {
        let files = self.files.lock();
        (files.segments.len() > 1).then(|| files.segments[0].last_sequence)
    }

    /// The first segment that has a record at or above `needed`; all older ones are obsolete.
    pub(crate) fn floor(&self, needed: SequenceNumber) -> Option<u64> {
        let files = self.files.lock();
        let newest = files.segments.back()?.id;
        let kept = files.segments.iter().find(|segment| segment.last_sequence >= needed);
        Some(kept.map_or(newest, |segment| segment.id))
    }

    /// Begins a new segment if the newest one, with every record below `needed`, is only kept
    /// because it is the newest, and long enough that its space and the time to read it at the next
    /// start matter.
    ///
    /// While others write, the newest segment has records that are needed, and nothing is done
    /// here.
    pub(crate) fn leave_flushed(&self, host: &impl LogHost, needed: SequenceNumber) -> Result<()> {
        let mut files = self.files.lock();
        let Some(newest) = files.segments.back() else { return Ok(()) };
        let is_long = newest.bytes >= host.segment_bytes() / LEFT_SHARE;
        if !is_long || newest.last_sequence >= needed || files.writer.is_none() {
            return Ok(());
        }
        let _guard = PanicGuard::new(host);
        let begun = files.seal_segment().and_then(|()| files.begin_segment(host));
        // Before anybody else gets hold of the files: what failed to be synced is not tried again.
        begun.map_err(|error| if error.is_passing() { error } else { host.poison(error) })
    }

    /// Forgets the segments below `floor`, which the manifest does not name any more, and returns
    /// their files.
    pub(crate) fn remove_below(&self, floor: u64) -> Vec<PathBuf> {
        let mut files = self.files.lock();
        let obsolete = files.segments.partition_point(|segment| segment.id < floor);
        files.segments.drain(..obsolete).map(|segment| segment.path).collect()
    }

    /// Returns whether the newest segment takes no more records: an append to it failed.
    pub(crate) fn is_ended(&self) -> bool {
        self.files.lock().writer.is_none()
    }

    /// Writes pending records, then syncs and seals the log, as a close does. Returns the position
    /// up to which the log is durable; `None` without segments.
    ///
    /// A segment that ended on a full disk is synced up to its end, and not sealed.
    pub(crate) fn close(&self, host: &impl LogHost) -> Result<Option<Position>> {
        let last_placed = host.placement().last_placed();
        self.sync_to(host, last_placed)?;
        let mut files = self.files.lock();
        let mark = files.mark;
        let ended = files.end.filter(|_| !files.segments.is_empty());
        let Some(writer) = &mut files.writer else { return Ok(ended) };
        writer.seal(mark)?;
        writer.sync_data()?;
        Ok(Some(writer.position()))
    }

    /// Writes all that is queued, in one append. The caller holds the log-files lock.
    fn write_pending(&self, host: &impl LogHost, files: &mut LogFiles) -> Result<()> {
        // After a panic, records of other writers may be lost, and these writers do not know it
        // yet.
        host.check_writable()?;
        let _guard = PanicGuard::new(host);
        let (group, last_placed) = host.placement().take_pending();
        if let Err(error) = files.append(host, &group.records, last_placed) {
            // Whoever waits is told; what was acknowledged from memory stays in the queue, so that
            // what survives a crash is a prefix of the history.
            let error = if error.is_passing() { error } else { host.poison(error) };
            host.placement().put_back(group.fail_waiters(&error));
            return Err(error);
        }
        self.written.store(last_placed, Release);
        Ok(())
    }
}

impl LogFiles {
    /// Appends `records`, whose last sequence number is `last`, to a segment with room.
    fn append(
        &mut self,
        host: &impl LogHost,
        records: &[PendingRecord],
        last: SequenceNumber,
    ) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mark = self.mark;
        let writer = self.writer_with_room(host)?;
        let start = writer.offset();
        let appended = writer.append(records, mark);
        let bytes = writer.offset();
        if appended.is_err() {
            // The segment ends before the group, whatever got into the file: what was acknowledged
            // from memory is logged once more, in the next segment.
            self.end_segment(start);
            return appended;
        }
        let segment = self.segments.back_mut().expect("a writer has its segment");
        segment.bytes = bytes;
        segment.last_sequence = last;
        Ok(())
    }

    /// The writer of the newest segment; seals the segment and begins the next one if it is full.
    fn writer_with_room(&mut self, host: &impl LogHost) -> Result<&mut Writer> {
        let full = |writer: &Writer| writer.offset() >= host.segment_bytes();
        if self.writer.as_ref().is_some_and(full) {
            self.seal_segment()?;
        }
        if self.writer.is_none() {
            self.begin_segment(host)?;
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    /// Seals the segment that takes records. It takes none from then on, also if that fails.
    fn seal_segment(&mut self) -> Result<()> {
        let mark = self.mark;
        let writer = self.writer.as_mut().expect("only a segment with a writer is sealed");
        let end = writer.offset();
        let sealed = writer.seal(mark);
        let end = if sealed.is_ok() { writer.offset() } else { end };
        self.end_segment(end);
        sealed
    }

    /// Begins the segment that takes records from now on.
    fn begin_segment(&mut self, host: &impl LogHost) -> Result<()> {
        self.limit_unsynced(host)?;
        let writer = host.create_segment(self.end, self.mark)?;
        self.add_segment(writer, 0);
        Ok(())
    }

    /// Syncs the oldest segments until few are open. Requires that no segment takes records.
    fn limit_unsynced(&mut self, host: &impl LogHost) -> Result<()> {
        let unsynced = self.unsynced();
        for segment in &unsynced[..unsynced.len().saturating_sub(UNSYNCED_SEGMENTS_MAX)] {
            segment.sync(host)?;
            self.mark_synced(slice::from_ref(segment));
        }
        Ok(())
    }

    /// Ends the newest segment at `offset`: what lies behind does not count.
    fn end_segment(&mut self, offset: u64) {
        let writer = self.writer.take().expect("only a segment with a writer ends");
        self.end = Some(Position { file_id: writer.file_id(), offset });
        let segment = self.segments.back_mut().expect("a writer has its segment");
        segment.bytes = offset;
        segment.close_if_synced();
    }

    fn add_segment(&mut self, writer: Writer, last_sequence: SequenceNumber) {
        let path = writer.path().to_owned();
        let (id, bytes, file) = (writer.file_id(), writer.offset(), Arc::clone(writer.file()));
        // Created, synced and named by the manifest before its first record.
        let synced_bytes = bytes;
        let file = Some(file);
        self.segments.push_back(Segment { id, path, bytes, last_sequence, file, synced_bytes });
        self.writer = Some(writer);
    }

    fn unsynced(&self) -> Vec<Unsynced> {
        self.segments.iter().filter_map(Segment::unsynced).collect()
    }

    fn mark_synced(&mut self, synced: &[Unsynced]) {
        self.syncs += synced.len() as u64;
        for done in synced {
            let at = self.segments.binary_search_by_key(&done.id, |segment| segment.id);
            if let Ok(at) = at {
                let is_finished = at + 1 < self.segments.len() || self.writer.is_none();
                let segment = &mut self.segments[at];
                segment.synced_bytes = segment.synced_bytes.max(done.bytes);
                if is_finished {
                    segment.close_if_synced();
                }
            }
            // Two threads may sync at once, one of them for the limit of open segments.
            self.mark = self.mark.max(Position { file_id: done.id, offset: done.bytes });
        }
    }
}
