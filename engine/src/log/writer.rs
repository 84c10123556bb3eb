//! Appends records to a file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb_format::{Corruption, Encode, FileHeader, SequenceNumber, checksum::crc32};

use super::{
    payload::PendingRecord,
    record::{FRAGMENT_BYTES_MAX, Position, RECORD_ALIGN, RecordHeader, RecordType},
    start::Start,
    transform::Transform,
};
use crate::{
    Error, Result,
    error::SYNC,
    fs::{AppendFile, Fs},
};

/// Maximum length of the buffer. A larger group is written in several appends: values need no
/// buffer of their own length, and copied bytes stay in the CPU cache.
pub(crate) const BUFFER_BYTES_MAX: usize = 128 << 10;

/// Reservation step of a file that is synced often. Each step costs one call, and one sync that
/// writes the length. A larger step would inflate the length of files, though not their space.
pub(super) const RESERVED_BYTES: u64 = 256 << 10;

/// Appends records to one file.
///
/// The first failure is final: the file may end in part of a record, so nothing can follow.
/// [`offset`](Self::offset) remains the end of the last good record, for the file that continues
/// this one.
#[derive(Debug)]
pub(crate) struct Writer {
    file: Arc<dyn AppendFile>,
    path: PathBuf,
    file_id: u64,
    /// Covered by the checksum of each record.
    secret: u64,
    /// End of the last good record.
    offset: u64,
    /// Bytes passed to the file; above `offset` only within a group and after a failure.
    written: u64,
    /// Length up to which the file was reserved.
    reserved: u64,
    /// Bytes after `written`.
    buffer: Vec<u8>,
    /// Error of each further append.
    closed: Option<Error>,
}

impl Writer {
    /// Creates a file with its header, its start record and the records of `first`, in one append,
    /// without a sync. Records carry `mark`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file may remain.
    pub(crate) fn create(
        fs: &dyn Fs,
        path: PathBuf,
        header: &FileHeader,
        start: &Start,
        first: &[PendingRecord],
        mark: Position,
    ) -> Result<Self> {
        let file = fs.create(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut writer = Self {
            file,
            path,
            file_id: header.file_id,
            secret: header.secret,
            offset: 0,
            written: 0,
            reserved: 0,
            buffer: Vec::with_capacity(4 << 10),
            closed: None,
        };
        writer.buffer.put(&header.encode());
        writer.encode((RecordType::Start, Transform::None), 0, mark, &[&start.encode()], None)?;
        writer.append(first, mark)?;
        Ok(writer)
    }

    /// Returns the random number in the file header.
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// Continues a file that ends at `end` and is durable as a whole. `secret` is that of its
    /// header.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn reopen(fs: &dyn Fs, path: PathBuf, end: Position, secret: u64) -> Result<Self> {
        let file = fs.open_append(&path).map_err(|e| Error::io("open", &path, e))?;
        let Position { file_id, offset } = end;
        let (written, buffer) = (offset, Vec::new());
        let (reserved, closed) = (0, None);
        Ok(Self { file, path, file_id, secret, offset, written, reserved, buffer, closed })
    }

    /// Appends a group of records, usually in one call of [`AppendFile::append`]. Every record
    /// carries `mark`, the current synced mark.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; then no record of the group is part of the log, and every later call fails.
    pub(crate) fn append(&mut self, records: &[PendingRecord], mark: Position) -> Result<()> {
        self.check_open()?;
        debug_assert!(self.buffer.is_empty() || self.offset == 0, "a group is being written");
        debug_assert!(mark <= self.position(), "{mark} is beyond the end of the log");
        for record in records {
            let bytes = record.payload.bytes();
            let total = (bytes.len() as u64).to_le_bytes();
            for (fragment, checksum) in record.payload.fragments() {
                let first = fragment.record_type == RecordType::First;
                let prefix = if first { &total[..] } else { &[] };
                let parts = [prefix, &bytes[fragment.range]];
                let form = (fragment.record_type, record.payload.transform());
                self.encode(form, record.sequence, mark, &parts, Some(checksum))?;
            }
        }
        self.end_group()
    }

    /// Extends the file beyond its records, up to `file_bytes_max`. A sync takes two thirds of the
    /// time if the length does not change. Readers find zeros after the last record.
    pub(crate) fn reserve(&mut self, file_bytes_max: u64) {
        let file_bytes = (self.offset + RESERVED_BYTES).min(file_bytes_max);
        if self.closed.is_some() || self.offset < self.reserved || file_bytes <= self.offset {
            return;
        }
        debug_assert_eq!(self.offset, self.written, "a group is being written");
        debug_assert!(self.reserved < file_bytes, "a file never shrinks");
        // Only an optimization: a failure is ignored, and not retried at each sync.
        let _ = self.file.reserve(file_bytes);
        self.reserved = file_bytes;
    }

    /// Appends the seal, the last record of a finished file.
    ///
    /// Sync before the call, so that `mark` covers everything before the seal, and after it, so
    /// that the seal survives: otherwise damage in the file may look like a torn tail.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn seal(&mut self, mark: Position) -> Result<()> {
        self.check_open()?;
        debug_assert!(self.buffer.is_empty(), "a group is being written");
        debug_assert!(mark <= self.position(), "{mark} is beyond the end of the log");
        self.encode((RecordType::Seal, Transform::None), 0, mark, &[], None)?;
        self.end_group()?;
        let what = "end of a sealed log";
        self.closed = Some(Error::corrupt(&self.path, self.offset, Corruption::Order { what }));
        Ok(())
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], final for the file.
    pub(crate) fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io(SYNC, &self.path, e))
    }

    /// Returns the file, for a sync concurrent with appends.
    pub(crate) const fn file(&self) -> &Arc<dyn AppendFile> {
        &self.file
    }

    pub(crate) const fn path(&self) -> &PathBuf {
        &self.path
    }

    pub(crate) const fn file_id(&self) -> u64 {
        self.file_id
    }

    /// Returns the end of the last good record, the logical end of the file. A failed append may
    /// leave later bytes.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the logical end with the file's number.
    pub(crate) const fn position(&self) -> Position {
        Position { file_id: self.file_id, offset: self.offset }
    }

    fn check_open(&self) -> Result<()> {
        self.closed.clone().map_or(Ok(()), Err)
    }

    fn write_buffer(&mut self) -> Result<()> {
        debug_assert!(self.closed.is_none(), "nothing follows a failed append");
        debug_assert!(self.buffer.len() <= BUFFER_BYTES_MAX);
        if let Err(source) = self.file.append(&self.buffer) {
            let error = Error::io("append to", &self.path, source);
            self.closed = Some(error.clone());
            self.buffer = Vec::new();
            return Err(error);
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of a group, which is then part of the log.
    fn end_group(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.write_buffer()?;
        }
        debug_assert!(self.offset <= self.written && self.buffer.is_empty());
        debug_assert!(self.written.is_multiple_of(RECORD_ALIGN as u64), "records are aligned");
        self.offset = self.written;
        Ok(())
    }

    /// Adds one record to the buffer, and writes the buffer each time it is full.
    fn encode(
        &mut self,
        (record_type, transform): (RecordType, Transform),
        sequence: SequenceNumber,
        mark: Position,
        payload: &[&[u8]],
        checksum: Option<u32>,
    ) -> Result<()> {
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        let payload_bytes = u32::try_from(bytes).expect("a fragment has at most 1 MiB");
        let payload_checksum = checksum.unwrap_or_else(|| crc32(payload));
        let header = RecordHeader {
            record_type,
            transform,
            payload_bytes,
            payload_checksum,
            sequence,
            mark,
        };
        let offset = self.written + self.buffer.len() as u64;
        debug_assert!(bytes <= FRAGMENT_BYTES_MAX, "a payload of {bytes} bytes is not split");
        debug_assert!(offset.is_multiple_of(RECORD_ALIGN as u64), "a record at {offset}");
        self.put(&header.encode(Position { file_id: self.file_id, offset }, self.secret))?;
        for part in payload {
            self.put(part)?;
        }
        let end = self.written + self.buffer.len() as u64;
        let padding = end.next_multiple_of(RECORD_ALIGN as u64) - end;
        self.put(&[0; RECORD_ALIGN][..padding as usize])
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.buffer.len() == BUFFER_BYTES_MAX {
                self.write_buffer()?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(BUFFER_BYTES_MAX - self.buffer.len()));
            let length = self.buffer.len() + now.len();
            if length > self.buffer.capacity() {
                // A power of two never exceeds the longest buffer.
                self.buffer.reserve_exact(length.next_power_of_two() - self.buffer.len());
            }
            self.buffer.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }
}

/// Draws the secret of a new file of records.
pub(crate) fn draw_secret(fs: &dyn Fs, path: &Path) -> Result<u64> {
    fs.random_u64().map_err(|e| Error::io("draw a random number for", path, e))
}
