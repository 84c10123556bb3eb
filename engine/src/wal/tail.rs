//! Reads the batches of a log while a writer appends to it.
//!
//! Takes no lock: the caller passes the segment with the next batch, and its written length. A tail
//! may read another process's log: then the manifest and the start records name the segments.

use std::{path::PathBuf, sync::Arc};

use sievedb_format::{Corruption, SequenceNumber};

use super::{batch::Batch, chain::Segments, replay::check_batch};
use crate::{
    Error, Result,
    fs::Fs,
    log::{Next, Position, Reader, RecordType},
};

/// The written part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TailSegment {
    pub(crate) id: u64,
    /// Secret of its header, if the manifest named the segment at the caller's look-up.
    pub(crate) secret: Option<u64>,
    /// End of the written records.
    pub(crate) bytes: u64,
    /// Sequence number of the last entry in the written part.
    pub(crate) last_sequence: SequenceNumber,
}

/// A batch with its position in the history.
#[derive(Debug, Clone)]
pub(crate) struct TailBatch {
    /// Sequence number of the first entry.
    pub(crate) first: SequenceNumber,
    /// Sequence number of the last entry.
    pub(crate) last: SequenceNumber,
    pub(crate) batch: Batch,
    /// Start of its record.
    offset: u64,
}

/// Reads batches in order. Holds at most one open file, and a window of at most about 1 MiB.
#[derive(Debug)]
pub(crate) struct LogTail {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    store_id: u128,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    reader: Reader,
    /// Last sequence number read from the segment.
    last: SequenceNumber,
}

impl LogTail {
    pub(crate) const fn new(fs: Arc<dyn Fs>, folder: PathBuf, store_id: u128) -> Self {
        Self { fs, folder, store_id, open: None }
    }

    /// Returns the first batch whose last sequence number is above `after`. `segment` is the first
    /// one that has such a batch, and `after` never decreases.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`] if the segment is missing, damaged, or ends early.
    pub(crate) fn next(
        &mut self,
        segment: &TailSegment,
        after: SequenceNumber,
    ) -> Result<TailBatch> {
        debug_assert!(segment.last_sequence > after, "the segment has no such batch");
        let is_open = self.open.as_ref().is_some_and(|open| open.reader.file_id() == segment.id);
        if !is_open {
            self.open = None;
            self.open = Some(self.open_segment(segment)?);
        }
        let open = self.open.as_mut().expect("it was just opened");
        open.reader.extend(segment.bytes)?;
        loop {
            let batch = open.next(segment.bytes)?;
            if batch.last > after {
                return Ok(batch);
            }
        }
    }

    /// Closes the segment, whose file was replaced.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Returns the error for `batch`, which `next` returned last and which cannot be decoded.
    pub(crate) fn corrupt(&self, batch: &TailBatch, source: Corruption) -> Error {
        match &self.open {
            Some(open) => open.reader.corrupt(batch.offset, source),
            None => Error::corrupt(&self.folder, 0, source),
        }
    }

    fn open_segment(&self, segment: &TailSegment) -> Result<OpenSegment> {
        let secrets = segment.secret.map(|secret| (segment.id, secret)).into_iter().collect();
        let written = Some(Position { file_id: segment.id, offset: segment.bytes });
        let unnamed = Segments::unnamed(&self.fs, &self.folder, self.store_id, &[]);
        let source = Segments { secrets: &secrets, written, ..unnamed };
        let (reader, _) = source.open_begun(segment.id)?;
        Ok(OpenSegment { reader, last: 0 })
    }
}

impl OpenSegment {
    /// Returns the next batch before `bytes`, up to which all records were written.
    fn next(&mut self, bytes: u64) -> Result<TailBatch> {
        let reader = &mut self.reader;
        loop {
            let end = reader.offset();
            let record = match reader.next()? {
                Next::Record(record) if record.record_type == RecordType::Seal => continue,
                Next::Record(record) => record,
                Next::End(reason) => {
                    let what = "segment of the log";
                    let short = Corruption::Truncated { what, need: bytes, have: end };
                    return Err(reader.corrupt(end, reason.unwrap_or(short)));
                }
            };
            let (first, offset) = (record.sequence, record.offset);
            let batch = check_batch(first, record.payload, self.last);
            let batch = batch.map_err(|reason| reader.corrupt(offset, reason))?;
            self.last = first + batch.entries() - 1;
            return Ok(TailBatch { first, last: self.last, batch, offset });
        }
    }
}
