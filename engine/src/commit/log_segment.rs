//! The segments of an open log: which ones accept records, are open, and are durable.

use std::{collections::VecDeque, path::PathBuf, slice, sync::Arc};

use sievedb_format::SequenceNumber;

use super::{LogHost, PanicGuard, segment_file::SegmentFile};
use crate::{
    Result,
    log::{PendingRecord, Position, Writer, values::ValueFile},
    wal::replay::ReplayedSegment,
};

/// Maximum number of finished segments that are open because they are not synced. Each further
/// segment syncs the oldest.
const UNSYNCED_SEGMENTS_MAX: usize = 8;

/// Size of the log, and number of syncs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogSize {
    /// Number of segments.
    pub(crate) segments: u64,
    /// Length of all segments, and of the values of their records, in bytes.
    pub(crate) bytes: u64,
    /// Syncs of segments since the store was opened.
    pub(crate) syncs: u64,
}

/// A segment that the manifest names.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) last_sequence: SequenceNumber,
    /// Handle for the sync. `None` once the segment is finished and synced as a whole.
    pub(super) file: Option<Arc<SegmentFile>>,
    pub(super) synced_bytes: u64,
    /// Blob files with values of its records. They are kept as long as the segment.
    pub(super) values: Vec<Arc<dyn ValueFile>>,
    /// Length of the values of its records, in bytes.
    pub(super) value_bytes: u64,
}

impl Segment {
    /// Returns the segment as a later recovery finds it.
    pub(super) const fn replayed(&self) -> ReplayedSegment {
        let Self { id, bytes, last_sequence, .. } = *self;
        ReplayedSegment { id, bytes, last_sequence }
    }

    /// Returns the current state of the segment, or `None` if it is synced as a whole.
    pub(super) fn unsynced(&self) -> Option<Unsynced> {
        let file = self.file.as_ref().filter(|_| self.synced_bytes < self.bytes)?;
        let (path, file) = (self.path.clone(), Arc::clone(file));
        Some(Unsynced { id: self.id, bytes: self.bytes, path, file, values: self.values.clone() })
    }

    /// Returns the length of the records and of their values, in bytes.
    pub(super) const fn bytes_with_values(&self) -> u64 {
        self.bytes + self.value_bytes
    }

    /// Records the values of records before their append.
    fn note_values(&mut self, records: &[PendingRecord]) {
        for values in records.iter().filter_map(|record| record.payload.values()) {
            self.value_bytes += values.bytes();
            for file in &values.files {
                if !self.values.iter().rev().any(|known| known.id() == file.id()) {
                    self.values.push(Arc::clone(file));
                }
            }
        }
    }

    /// Closes the file of a finished segment once it is synced. The log may have thousands of
    /// segments, and a process has few descriptors.
    pub(super) fn close_if_synced(&mut self) {
        if self.synced_bytes >= self.bytes {
            self.file = None;
        }
    }
}

/// A segment, and its length written at one point in time.
#[derive(Debug)]
pub(crate) struct WrittenSegment {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    /// Length up to the end of its last record.
    pub(crate) bytes: u64,
    /// Ids and written lengths of the blob files with values of its records. The length is `None`
    /// if it does not grow.
    pub(crate) values: Vec<(u64, Option<u64>)>,
    /// `None` if the segment is synced as a whole.
    unsynced: Option<Unsynced>,
}

impl WrittenSegment {
    pub(super) fn new(segment: &Segment) -> Self {
        let Segment { id, ref path, bytes, .. } = *segment;
        let values = segment.values.iter().map(|file| (file.id(), file.written())).collect();
        Self { id, path: path.clone(), bytes, values, unsynced: segment.unsynced() }
    }

    /// Makes the segment durable up to its end, including its seal, even if the log has dropped it.
    /// A failure makes the store read-only.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn sync(&self, host: &impl LogHost) -> Result<()> {
        let _guard = PanicGuard::new(host);
        self.unsynced.as_ref().map_or(Ok(()), |unsynced| unsynced.sync(host))
    }
}

/// A segment at the beginning of a sync.
#[derive(Debug)]
pub(super) struct Unsynced {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    file: Arc<SegmentFile>,
    values: Vec<Arc<dyn ValueFile>>,
}

impl Unsynced {
    /// Syncs the values of its records, then the segment up to `bytes`: a record without its value
    /// is lost. A failure makes the store read-only.
    pub(super) fn sync(&self, host: &impl LogHost) -> Result<()> {
        if host.syncs_values() {
            let mut files = self.values.iter();
            files.try_for_each(|file| file.sync().map_err(|error| host.poison(error)))?;
        }
        self.file.sync(&self.path).map_err(|error| host.poison(error))
    }
}

/// State under the log-files lock.
#[derive(Debug)]
pub(super) struct LogFiles {
    /// The segment that accepts records. `None` before the first segment and after a full disk: the
    /// next record begins a new segment.
    pub(super) writer: Option<Writer>,
    /// End of the newest segment, for the start record of the next.
    pub(super) end: Option<Position>,
    /// Every segment that the manifest names, oldest first.
    pub(super) segments: VecDeque<Segment>,
    /// Last sequence number of the log, or of the tables if they have more.
    pub(super) last_sequence: SequenceNumber,
    pub(super) mark: Position,
    /// Syncs of segments.
    pub(super) syncs: u64,
}

impl LogFiles {
    /// Appends `records`, whose last sequence number is `last`, to a segment with room.
    pub(super) fn append(
        &mut self,
        host: &impl LogHost,
        records: &[PendingRecord],
        last: SequenceNumber,
    ) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        self.make_room(host)?;
        self.append_to_newest(records, last)
    }

    /// Appends `records`, whose last sequence number is `last`, to the newest segment, which
    /// accepts records.
    pub(super) fn append_to_newest(
        &mut self,
        records: &[PendingRecord],
        last: SequenceNumber,
    ) -> Result<()> {
        debug_assert!(
            records.iter().all(|it| it.sequence <= last),
            "the group ends before it begins"
        );
        debug_assert!(self.last_sequence < records[0].sequence, "numbers ascend");
        let mark = self.mark;
        let segment = self.segments.back_mut().expect("a writer has its segment");
        // Recorded before the append, which may fail and leave the record.
        segment.note_values(records);
        let writer = self.writer.as_mut().expect("it was just made");
        let start = writer.offset();
        let appended = writer.append(records, mark);
        let bytes = writer.offset();
        if appended.is_err() {
            // The segment ends before the group, regardless of the bytes in the file. Writes
            // acknowledged from memory are logged again, in the next segment.
            self.end_segment(start);
            return appended;
        }
        let segment = self.segments.back_mut().expect("a writer has its segment");
        segment.bytes = bytes;
        segment.last_sequence = last;
        self.last_sequence = last;
        Ok(())
    }

    /// Returns `true` if the newest segment accepts a record.
    pub(super) fn has_room(&self, host: &impl LogHost) -> bool {
        let newest = self.segments.back().filter(|_| self.writer.is_some());
        newest.is_some_and(|newest| newest.bytes_with_values() < host.segment_bytes())
    }

    /// Seals a full segment, and begins the next one if no segment accepts records.
    fn make_room(&mut self, host: &impl LogHost) -> Result<()> {
        if self.has_room(host) {
            return Ok(());
        }
        if self.writer.is_some() {
            self.seal_segment()?;
        }
        self.begin_segment(host)
    }

    /// Seals the current segment. It accepts no more records, even if sealing fails.
    pub(super) fn seal_segment(&mut self) -> Result<()> {
        let mark = self.mark;
        let writer = self.writer.as_mut().expect("only a segment with a writer is sealed");
        let end = writer.offset();
        let sealed = writer.seal(mark);
        let end = if sealed.is_ok() { writer.offset() } else { end };
        self.end_segment(end);
        sealed
    }

    /// Begins a segment that accepts records.
    pub(super) fn begin_segment(&mut self, host: &impl LogHost) -> Result<()> {
        self.limit_unsynced(host)?;
        let writer = host.create_segment(self.end, self.mark)?;
        self.add_segment(writer);
        Ok(())
    }

    /// Syncs the oldest segments until few are open. Requires that no segment accepts records.
    fn limit_unsynced(&mut self, host: &impl LogHost) -> Result<()> {
        let unsynced = self.unsynced();
        for segment in &unsynced[..unsynced.len().saturating_sub(UNSYNCED_SEGMENTS_MAX)] {
            segment.sync(host)?;
            self.mark_synced(slice::from_ref(segment));
        }
        Ok(())
    }

    /// Ends the newest segment at `offset`. Later bytes are ignored.
    fn end_segment(&mut self, offset: u64) {
        let writer = self.writer.take().expect("only a segment with a writer ends");
        self.end = Some(Position { file_id: writer.file_id(), offset });
        let segment = self.segments.back_mut().expect("a writer has its segment");
        segment.bytes = offset;
        segment.close_if_synced();
    }

    fn add_segment(&mut self, writer: Writer) {
        // The segment may end without a record, and be retained.
        let last_sequence = self.last_sequence;
        let path = writer.path().to_owned();
        let (id, bytes) = (writer.file_id(), writer.offset());
        debug_assert!(self.writer.is_none(), "two segments take records");
        debug_assert!(self.segments.back().is_none_or(|newest| newest.id < id), "ids ascend");
        // Synced and named by the manifest before its first record.
        let synced_bytes = bytes;
        let file = Some(Arc::new(SegmentFile::new(Arc::clone(writer.file()))));
        let (values, value_bytes) = Default::default();
        self.segments.push_back(Segment {
            id,
            path,
            bytes,
            last_sequence,
            file,
            synced_bytes,
            values,
            value_bytes,
        });
        self.writer = Some(writer);
    }

    pub(super) fn unsynced(&self) -> Vec<Unsynced> {
        self.segments.iter().filter_map(Segment::unsynced).collect()
    }

    pub(super) fn mark_synced(&mut self, synced: &[Unsynced]) {
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
