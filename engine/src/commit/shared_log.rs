//! The log shared by all writers: one thread writes or syncs for all waiting writers (group
//! commit).

use std::{
    collections::{BTreeSet, VecDeque},
    path::Path,
    slice,
    sync::Arc,
};

use sievedb_format::SequenceNumber;

use super::{
    InFlight, LogSize, PanicGuard, Placement, WrittenSegment,
    log_segment::{LogFiles, Segment},
    sync_turns::SyncTurns,
};
use crate::{
    Durability, Error, Result,
    file_name::FileName,
    log::{PendingRecord, Position, Writer, values::ValueFile},
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    wal::replay::ReplayedSegment,
};

mod sync;

/// Operations of the store that the log requires.
pub(crate) trait LogHost {
    /// Takes the placement lock.
    fn placement(&self) -> MutexGuard<'_, Placement>;

    /// Length at which a segment is sealed.
    fn segment_bytes(&self) -> u64;

    /// Creates a segment that follows `previous`, durable and named by the manifest.
    fn create_segment(&self, previous: Option<Position>, mark: Position) -> Result<Writer>;

    /// Returns an error once the store is read-only.
    fn check_writable(&self) -> Result<()>;

    /// Makes the store read-only. Returns `cause`.
    fn poison(&self, cause: Error) -> Error;

    /// Calls `write` on a thread that may drop the last handle of the store. Notifies the listener
    /// afterwards if the store became read-only: within `write` the thread holds locks.
    fn report_after<T>(&self, write: impl FnOnce() -> T) -> T {
        write()
    }

    /// Returns `false` to plant a bug: the log is synced without the values of its records.
    fn syncs_values(&self) -> bool {
        true
    }

    /// Returns `true` to plant a bug: writes count as durable before the sync returns.
    fn counts_unsynced(&self) -> bool {
        false
    }
}

/// Divisor of the length of a full segment. The newest segment is replaced if none of its entries
/// is needed, and it has at least this part of the length.
const LEFT_SHARE: u64 = 16;

/// A blob file of a replayed log. It does not grow.
#[derive(Debug)]
struct WholeFile(u64);

impl ValueFile for WholeFile {
    fn id(&self) -> u64 {
        self.0
    }

    fn written(&self) -> Option<u64> {
        None
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The write-ahead log of an open store.
#[derive(Debug)]
pub(crate) struct SharedLog {
    files: Mutex<LogFiles>,
    /// Turns of syncs. One thread syncs at a time, and later ones share the next sync.
    sync_turns: SyncTurns,
    /// Sequence number up to which placed writes were passed to the operating system, or failed.
    written: AtomicU64,
    /// Sequence number up to which placed writes are durable, or failed.
    synced: AtomicU64,
}

/// The lock of a log whose newest segment accepts a record.
#[derive(Debug)]
pub(crate) struct LockedLog<'a> {
    written: &'a AtomicU64,
    files: MutexGuard<'a, LogFiles>,
}

impl LockedLog<'_> {
    /// Passes the record of a write to the operating system. `last` is its last sequence number,
    /// and no earlier record is queued.
    ///
    /// Begins no segment, because the caller may hold the placement lock. If the limit of segments
    /// was lowered meanwhile, this one exceeds it by the record.
    pub(crate) fn append(&mut self, record: &PendingRecord, last: SequenceNumber) -> Result<()> {
        debug_assert!(self.written.load(Acquire) < record.sequence, "a number of another write");
        self.files.append_to_newest(slice::from_ref(record), last)?;
        self.written.store(last, Release);
        Ok(())
    }
}

impl SharedLog {
    /// Creates a log without a segment. Tables have every write up to `sequence`.
    pub(crate) fn new(sequence: SequenceNumber) -> Self {
        Self {
            files: Mutex::new(LogFiles {
                writer: None,
                end: None,
                segments: VecDeque::new(),
                last_sequence: sequence,
                mark: Position::default(),
                syncs: 0,
            }),
            sync_turns: SyncTurns::default(),
            written: AtomicU64::new(sequence),
            synced: AtomicU64::new(sequence),
        }
    }

    /// Creates a log that continues `segments` in `folder`, up to the sequence number `sequence`.
    /// Every byte of the segments must be durable. The next record begins a new segment. In a
    /// read-only store, `value_files` have values of the segments.
    pub(crate) fn continued(
        sequence: SequenceNumber,
        folder: &Path,
        segments: &[ReplayedSegment],
        value_files: &BTreeSet<u64>,
    ) -> Self {
        let log = Self::new(sequence);
        log.replace(sequence, folder, segments, value_files);
        log
    }

    /// Replaces the contents of a read-only log: see [`continued`](Self::continued).
    pub(crate) fn replace(
        &self,
        sequence: SequenceNumber,
        folder: &Path,
        segments: &[ReplayedSegment],
        value_files: &BTreeSet<u64>,
    ) {
        let mut files = self.files.lock();
        debug_assert!(files.writer.is_none(), "no thread writes to the log");
        files.last_sequence = sequence;
        files.segments.clear();
        let position = |last: &ReplayedSegment| Position { file_id: last.id, offset: last.bytes };
        files.end = segments.last().map(position);
        files.mark = files.end.unwrap_or_default();
        files.segments.extend(segments.iter().map(
            |&ReplayedSegment { id, bytes, last_sequence }| {
                let path = FileName::Log(id).path(folder);
                let (values, value_bytes) = Default::default();
                Segment {
                    id,
                    path,
                    bytes,
                    last_sequence,
                    file: None,
                    synced_bytes: bytes,
                    values,
                    value_bytes,
                }
            },
        ));
        if let Some(newest) = files.segments.back_mut() {
            // Any segment may own the files: all are kept while the store is open.
            newest.values = value_files
                .iter()
                .map(|&id| Arc::new(WholeFile(id)) as Arc<dyn ValueFile>)
                .collect();
        }
        // Under the lock, which captures of the log take.
        self.written.store(sequence, Release);
        self.synced.store(sequence, Release);
    }

    /// Passes all placed records to the operating system.
    pub(crate) fn write(&self, host: &impl LogHost) -> Result<()> {
        let mut files = self.files.lock();
        self.write_pending(host, &mut files)
    }

    /// Passes the record of `write` to the operating system, unless that was done.
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

    /// Locks the log for one record. Returns `None` if another thread has the lock, or if the next
    /// record begins a segment.
    pub(crate) fn try_lock(&self, host: &impl LogHost) -> Option<LockedLog<'_>> {
        let files = self.files.try_lock()?;
        files.has_room(host).then_some(LockedLog { written: &self.written, files })
    }

    /// Returns the position up to which the log is known to be durable.
    pub(crate) fn mark(&self) -> Position {
        self.files.lock().mark
    }

    /// Returns the end of the newest segment; the default without segments.
    pub(crate) fn written_to(&self) -> Position {
        let files = self.files.lock();
        let newest = files.segments.back();
        newest.map_or_else(Position::default, |newest| Position {
            file_id: newest.id,
            offset: newest.bytes,
        })
    }

    /// Calls `read` with the last sequence number and the segments of the written log, oldest
    /// first. No record is written during the call.
    pub(crate) fn read_written<T>(
        &self,
        read: impl FnOnce(SequenceNumber, Vec<WrittenSegment>) -> T,
    ) -> T {
        let files = self.files.lock();
        let segments = files.segments.iter().map(WrittenSegment::new).collect();
        read(self.written.load(Acquire), segments)
    }

    /// Returns the size of the log.
    pub(crate) fn size(&self) -> LogSize {
        let files = self.files.lock();
        let bytes = files.segments.iter().map(Segment::bytes_with_values).sum();
        LogSize { segments: files.segments.len() as u64, bytes, syncs: files.syncs }
    }

    /// Returns the sequence number up to which writes were passed to the operating system, or
    /// failed.
    pub(crate) fn written(&self) -> SequenceNumber {
        self.written.load(Acquire)
    }

    /// Returns the sequence number up to which writes are durable, or failed.
    pub(crate) fn synced(&self) -> SequenceNumber {
        self.synced.load(Acquire)
    }

    /// Returns the sequence number up to which writes have this durability, or failed.
    pub(crate) fn reached(&self, durability: Durability) -> SequenceNumber {
        match durability {
            Durability::Memory => SequenceNumber::MAX,
            Durability::OsBuffer => self.written(),
            Durability::Disk => self.synced(),
        }
    }

    /// Returns the written part of the first segment with a record above `sequence`.
    pub(crate) fn segment_after(&self, sequence: SequenceNumber) -> Option<ReplayedSegment> {
        let files = self.files.lock();
        let mut segments = files.segments.iter();
        segments.find(|segment| segment.last_sequence > sequence).map(Segment::replayed)
    }

    /// Returns the last sequence number of the oldest segment, unless it accepts records.
    pub(crate) fn oldest_finished(&self) -> Option<SequenceNumber> {
        let files = self.files.lock();
        (files.segments.len() > 1).then(|| files.segments[0].last_sequence)
    }

    /// Returns the first segment with a record at or above `needed`. Older ones are obsolete.
    pub(crate) fn floor(&self, needed: SequenceNumber) -> Option<u64> {
        let files = self.files.lock();
        let newest = files.segments.back()?.id;
        let kept = files.segments.iter().find(|segment| segment.last_sequence >= needed);
        Some(kept.map_or(newest, |segment| segment.id))
    }

    /// Begins a new segment if all records of the newest one are below `needed`, and the newest one
    /// is long enough that its space and replay time matter.
    pub(crate) fn leave_flushed(&self, host: &impl LogHost, needed: SequenceNumber) -> Result<()> {
        let mut files = self.files.lock();
        let Some(newest) = files.segments.back() else { return Ok(()) };
        let is_long = newest.bytes_with_values() >= host.segment_bytes() / LEFT_SHARE;
        if !is_long || newest.last_sequence >= needed || files.writer.is_none() {
            return Ok(());
        }
        Self::begin_next(&mut files, host)
    }

    /// Begins a new segment. The previous one accepts no more records.
    #[cfg(feature = "encryption")]
    pub(crate) fn leave(&self, host: &impl LogHost) -> Result<()> {
        let mut files = self.files.lock();
        match files.segments.is_empty() {
            true => Ok(()),
            false => Self::begin_next(&mut files, host),
        }
    }

    /// Seals the newest segment if it accepts records, and begins a new one.
    fn begin_next(files: &mut LogFiles, host: &impl LogHost) -> Result<()> {
        let _guard = PanicGuard::new(host);
        let sealed = if files.writer.is_some() { files.seal_segment() } else { Ok(()) };
        let begun = sealed.and_then(|()| files.begin_segment(host));
        // Handled under the lock: a failed sync is not retried.
        begun.map_err(|error| if error.is_retryable() { error } else { host.poison(error) })
    }

    /// Removes the segments below `floor`, which the manifest no longer names. Returns the files
    /// with values of their records.
    pub(crate) fn remove_below(&self, floor: u64) -> Vec<Arc<dyn ValueFile>> {
        let mut files = self.files.lock();
        let obsolete = files.segments.partition_point(|segment| segment.id < floor);
        debug_assert!(files.segments.iter().is_sorted_by_key(|segment| segment.id));
        files.segments.drain(..obsolete).flat_map(|segment| segment.values).collect()
    }

    /// Returns `true` if the newest segment accepts no more records because an append to it failed.
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
        // The seals of earlier segments may follow the last write.
        self.sync_below(host, u64::MAX)?;
        let mut files = self.files.lock();
        let mark = files.mark;
        let ended = files.end.filter(|_| !files.segments.is_empty());
        let Some(writer) = &mut files.writer else { return Ok(ended) };
        writer.seal(mark)?;
        writer.sync_data()?;
        Ok(Some(writer.position()))
    }

    /// Writes all queued records, in one append. The caller holds the log-files lock.
    fn write_pending(&self, host: &impl LogHost, files: &mut LogFiles) -> Result<()> {
        // After a panic, records of other writers may be lost without a report.
        host.check_writable()?;
        let _guard = PanicGuard::new(host);
        let (group, last_placed) = host.placement().take_pending();
        debug_assert!(self.written.load(Acquire) <= last_placed, "the history shrinks");
        debug_assert!(
            self.synced.load(Acquire) <= self.written.load(Acquire),
            "synced, not written"
        );
        if let Err(error) = files.append(host, &group.records, group.last_sequence()) {
            // Fails writes that wait for the log. Writes acknowledged from memory stay queued, so
            // that a prefix of the history survives a crash.
            let error = if error.is_retryable() { error } else { host.poison(error) };
            host.placement().put_back(group.fail_waiters(&error));
            return Err(error);
        }
        self.written.store(last_placed, Release);
        Ok(())
    }
}
