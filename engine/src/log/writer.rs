//! Appends records to a file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb_format::{Corruption, Encode, FileHeader, SequenceNumber, checksum::crc32};

use super::{
    payload::PendingRecord,
    record::{Position, RECORD_ALIGN, RecordHeader, RecordType},
    start::Start,
};
use crate::{
    Error, Result,
    error::SYNC,
    fs::{AppendFile, Fs},
};

/// The longest buffer. A group above this is written in several appends: so no value needs a buffer
/// of its own length, and what is copied stays in the processor's cache.
pub(crate) const BUFFER_BYTES_MAX: usize = 128 << 10;

/// How far a file that is synced often is longer than its records. A step costs one call and one
/// sync that writes the length; more would show in the length of files, though not in the space
/// they take.
pub(super) const RESERVED_BYTES: u64 = 256 << 10;

/// Appends records to one file.
///
/// The first failure is final: the file may end in part of a record then, so nothing can follow.
/// [`offset`](Self::offset) still tells where the last good record ends, for the file that
/// continues this one.
#[derive(Debug)]
pub(crate) struct Writer {
    file: Arc<dyn AppendFile>,
    path: PathBuf,
    file_id: u64,
    /// Covered by the checksum of each record.
    secret: u64,
    /// Where the last good record ends.
    offset: u64,
    /// Bytes handed to the file; above `offset` only within a group and after a failure.
    written: u64,
    /// The length of the file, as far as it was made longer than its records.
    reserved: u64,
    /// What follows them.
    buffer: Vec<u8>,
    /// Why nothing can be appended any more.
    closed: Option<Error>,
}

impl Writer {
    /// Creates a file with its header, its start record and the records of `first`, in one append.
    ///
    /// Nothing is synced. Records carry `mark`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] as [`Fs::create`] and [`AppendFile::append`]; the file may be left behind.
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
        writer.encode(RecordType::Start, 0, mark, &[&start.encode()], None)?;
        writer.append(first, mark)?;
        Ok(writer)
    }

    /// Returns the random number in the file header.
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// Continues a file that ends at `end`, and of which every byte is durable. `secret` is that of
    /// its header.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] as [`Fs::open_append`].
    pub(crate) fn reopen(fs: &dyn Fs, path: PathBuf, end: Position, secret: u64) -> Result<Self> {
        let file = fs.open_append(&path).map_err(|e| Error::io("open", &path, e))?;
        let Position { file_id, offset } = end;
        let (written, buffer) = (offset, Vec::new());
        let (reserved, closed) = (0, None);
        Ok(Self { file, path, file_id, secret, offset, written, reserved, buffer, closed })
    }

    /// Appends a group of records, usually in one call of [`AppendFile::append`].
    ///
    /// `mark` is what is known to be durable now; every record carries it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file refuses; none of the group is part of the log then. That and every
    /// later call fails.
    pub(crate) fn append(&mut self, records: &[PendingRecord], mark: Position) -> Result<()> {
        self.check_open()?;
        for record in records {
            let bytes = record.payload.bytes();
            let total = (bytes.len() as u64).to_le_bytes();
            for (fragment, checksum) in record.payload.fragments() {
                let first = fragment.record_type == RecordType::First;
                let prefix = if first { &total[..] } else { &[] };
                let parts = [prefix, &bytes[fragment.range]];
                let (kind, sequence) = (fragment.record_type, record.sequence);
                self.encode(kind, sequence, mark, &parts, Some(checksum))?;
            }
        }
        self.end_group()
    }

    /// Makes the file longer than its records, up to `file_bytes_max`, unless it is: a sync takes
    /// two thirds of the time if the file keeps its length. Readers find zeros behind the last
    /// record.
    pub(crate) fn reserve(&mut self, file_bytes_max: u64) {
        let file_bytes = (self.offset + RESERVED_BYTES).min(file_bytes_max);
        if self.closed.is_some() || self.offset < self.reserved || file_bytes <= self.offset {
            return;
        }
        // Only for speed. Without it the file grows with each append; it is not tried at each sync
        // again.
        let _ = self.file.reserve(file_bytes);
        self.reserved = file_bytes;
    }

    /// Ends the file: the record that says that it is finished.
    ///
    /// Sync before, so that `mark` can vouch for everything before the seal, and after, so that the
    /// seal is found: only then is damage in the file never taken for a torn tail.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub(crate) fn seal(&mut self, mark: Position) -> Result<()> {
        self.check_open()?;
        self.encode(RecordType::Seal, 0, mark, &[], None)?;
        self.end_group()?;
        let what = "end of a sealed log";
        self.closed = Some(Error::corrupt(&self.path, self.offset, Corruption::Order { what }));
        Ok(())
    }

    /// Makes everything appended durable. Through [`file`](Self::file) this needs no `&Writer`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] as [`AppendFile::sync_data`]; final for the file.
    pub(crate) fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io(SYNC, &self.path, e))
    }

    /// The file, for a sync beside appends.
    pub(crate) const fn file(&self) -> &Arc<dyn AppendFile> {
        &self.file
    }

    /// The file's path.
    pub(crate) const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Number of the file.
    pub(crate) const fn file_id(&self) -> u64 {
        self.file_id
    }

    /// Where the last good record ends: the logical end of the file. What a failed append left
    /// behind lies beyond.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The logical end with the file's number.
    pub(crate) const fn position(&self) -> Position {
        Position { file_id: self.file_id, offset: self.offset }
    }

    fn check_open(&self) -> Result<()> {
        self.closed.clone().map_or(Ok(()), Err)
    }

    /// Hands the buffer to the file.
    fn write_buffer(&mut self) -> Result<()> {
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

    /// Writes what is left of a group, which then is part of the log.
    fn end_group(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.write_buffer()?;
        }
        self.offset = self.written;
        Ok(())
    }

    /// Adds one record to the buffer, which is handed to the file as often as it is full.
    fn encode(
        &mut self,
        record_type: RecordType,
        sequence: SequenceNumber,
        mark: Position,
        payload: &[&[u8]],
        checksum: Option<u32>,
    ) -> Result<()> {
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        let payload_bytes = u32::try_from(bytes).expect("a fragment has at most 1 MiB");
        let payload_checksum = checksum.unwrap_or_else(|| crc32(payload));
        let header = RecordHeader { record_type, payload_bytes, payload_checksum, sequence, mark };
        let offset = self.written + self.buffer.len() as u64;
        self.put(&header.encode(Position { file_id: self.file_id, offset }, self.secret))?;
        for part in payload {
            self.put(part)?;
        }
        // Everything before the record is aligned, what was written already too.
        let end = self.written + self.buffer.len() as u64;
        let padding = end.next_multiple_of(RECORD_ALIGN as u64) - end;
        self.put(&[0; RECORD_ALIGN][..padding as usize])
    }

    /// Adds bytes to the buffer.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.buffer.len() == BUFFER_BYTES_MAX {
                self.write_buffer()?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(BUFFER_BYTES_MAX - self.buffer.len()));
            let length = self.buffer.len() + now.len();
            if length > self.buffer.capacity() {
                // A power of two: never more than the longest.
                self.buffer.reserve_exact(length.next_power_of_two() - self.buffer.len());
            }
            self.buffer.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }
}

/// Draws the secret of a new file of records.
///
/// # Errors
///
/// [`Error::Io`] as [`Fs::random_u64`].
pub(crate) fn draw_secret(fs: &dyn Fs, path: &Path) -> Result<u64> {
    fs.random_u64().map_err(|e| Error::io("draw a random number for", path, e))
}
