//! The log of a store that another process writes.
//!
//! The manifest names each segment before its first batch, and the start record of a segment
//! records the end of the previous one. So the manifest alone determines the next segment, and the
//! end of the previous one. Bytes that are no record, at the end of the newest segment, may be an
//! unfinished record, and end the log until the next refresh.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use sievedb_format::SequenceNumber;

use super::{
    chain::Segments,
    replay::{ReplayedBatch, ReplayedSegment, check_batch},
};
use crate::{
    Result,
    fs::Fs,
    log::{Next, Position, Reader, RecordType, Start},
};

/// The part of a log read so far.
#[derive(Debug)]
pub(crate) struct FollowedLog {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    store_id: u128,
    /// Segments read so far, oldest first. Reading continues in the last one.
    segments: Vec<ReplayedSegment>,
    /// Reader of the last segment, if it is open.
    reader: Option<Reader>,
    /// The last read stopped before the end that it found.
    is_paused: bool,
}

/// The result of reading a log up to its current end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Followed {
    ToEnd,
    /// Enough bytes were read: call again to continue.
    Paused,
    /// Segments in between are missing, or records were withdrawn: replay the whole log.
    Interrupted,
}

impl FollowedLog {
    /// Continues after the replayed `segments`.
    pub(crate) const fn new(
        fs: Arc<dyn Fs>,
        folder: PathBuf,
        store_id: u128,
        segments: Vec<ReplayedSegment>,
    ) -> Self {
        Self { fs, folder, store_id, segments, reader: None, is_paused: false }
    }

    /// Returns the segments read so far, oldest first.
    pub(crate) fn segments(&self) -> &[ReplayedSegment] {
        &self.segments
    }

    /// Removes segments that the manifest does not name. `logs` are the named ones.
    pub(crate) fn retain(&mut self, logs: &BTreeMap<u64, u64>) {
        self.segments.retain(|segment| logs.contains_key(&segment.id));
    }

    /// Passes the new batches to `apply`. `logs` are the segments that the manifest names, each
    /// with the secret of its header. Pauses after the batch with which the payloads reach
    /// `bytes_max` bytes. Bytes appended during a pause are not read before the next end.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`], errors of `apply`.
    pub(crate) fn read(
        &mut self,
        logs: &BTreeMap<u64, u64>,
        bytes_max: u64,
        mut apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
    ) -> Result<Followed> {
        let mut bytes_left = bytes_max;
        loop {
            let Some(&ReplayedSegment { id, bytes, .. }) = self.segments.last() else {
                // Data that was written and flushed meanwhile left no trace in the log.
                let is_empty = logs.is_empty();
                return Ok(if is_empty { Followed::ToEnd } else { Followed::Interrupted });
            };
            if self.reader.is_none() {
                if !logs.contains_key(&id) {
                    return Ok(Followed::Interrupted);
                }
                let Some((mut reader, _)) = self.open(id, logs)? else {
                    return Ok(Followed::Interrupted);
                };
                reader.resume(bytes);
                self.reader = Some(reader);
            }
            let next = match logs.range(id + 1..).next() {
                Some((&next, _)) => {
                    let Some((reader, start)) = self.open(next, logs)? else {
                        return Ok(Followed::Interrupted);
                    };
                    let previous =
                        start.previous.filter(|it| it.file_id == id && it.offset >= bytes);
                    let Some(end) = previous else { return Ok(Followed::Interrupted) };
                    Some((next, reader, end.offset))
                }
                None => None,
            };
            let limit = next.as_ref().map(|(_, _, end)| *end);
            let end = self.read_segment(limit, &mut bytes_left, &mut apply)?;
            if self.is_paused {
                return Ok(Followed::Paused);
            }
            let Some((next, reader, limit)) = next else {
                let is_named = logs.contains_key(&id);
                return Ok(if is_named { Followed::ToEnd } else { Followed::Interrupted });
            };
            if end != limit {
                return Ok(Followed::Interrupted);
            }
            let last_sequence = self.last_sequence();
            let bytes = reader.offset();
            self.segments.push(ReplayedSegment { id: next, bytes, last_sequence });
            self.reader = Some(reader);
        }
    }

    fn last_sequence(&self) -> SequenceNumber {
        self.segments.last().map_or(0, |segment| segment.last_sequence)
    }

    /// Continues in the last segment, up to `limit` if that is its end, or pauses once `bytes_left`
    /// is 0. Returns the end of the read part.
    fn read_segment(
        &mut self,
        limit: Option<u64>,
        bytes_left: &mut u64,
        apply: &mut impl FnMut(ReplayedBatch<'_>) -> Result<()>,
    ) -> Result<u64> {
        let (Some(reader), Some(segment)) = (&mut self.reader, self.segments.last_mut()) else {
            return Ok(0);
        };
        if !std::mem::take(&mut self.is_paused) {
            reader.reload()?;
        }
        limit.into_iter().for_each(|limit| reader.set_limit(limit));
        while let Next::Record(record) = reader.next()? {
            if record.record_type != RecordType::Seal {
                let (sequence, offset) = (record.sequence, record.offset);
                let batch = check_batch(sequence, record.payload, segment.last_sequence);
                let batch = batch.map_err(|reason| reader.corrupt(offset, reason))?;
                let last = sequence + batch.entries() - 1;
                let position = Position { file_id: segment.id, offset };
                // Uncompressed length: the log may have the payload compressed.
                *bytes_left = bytes_left.saturating_sub(batch.payload().len() as u64);
                let (path, lost) = (reader.path(), &[][..]);
                apply(ReplayedBatch { path, position, sequence, batch, lost })?;
                segment.last_sequence = last;
            }
            segment.bytes = reader.offset();
            if *bytes_left == 0 {
                self.is_paused = true;
                break;
            }
        }
        Ok(reader.offset())
    }

    /// Opens one of the segments `logs` after its start record. Returns `None` if the file is
    /// missing.
    fn open(&self, id: u64, logs: &BTreeMap<u64, u64>) -> Result<Option<(Reader, Start)>> {
        let unnamed = Segments::unnamed(&self.fs, &self.folder, self.store_id, &[]);
        Segments { secrets: logs, ..unnamed }.open_existing_begun(id)
    }
}
