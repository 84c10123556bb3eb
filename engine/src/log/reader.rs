//! Reads the records of a file.

pub(super) mod scan;

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{Corruption, FileHeader, SequenceNumber, file_header::HEADER_BYTES};

use super::{
    payload::TOTAL_BYTES,
    record::{Bad, FRAGMENT_BYTES_MAX, Position, RECORD_HEADER_BYTES, RecordHeader, RecordType},
    transform::Transform,
    values::{LostValue, ValueReader, ValueStop, referenced_files},
    window::Window,
};
use crate::{
    Error, Result,
    fs::{Fs, ReadFile},
};

/// First allocation of a joined payload, at most: a sparse file may claim any length.
const JOINED_BYTES_FIRST: usize = 4 * FRAGMENT_BYTES_MAX;

/// Reads the records of one file in order, in windows of at most about 1 MiB.
#[derive(Debug)]
pub(crate) struct Reader {
    window: Window,
    file_id: u64,
    /// Secret of the file header; `None` before it was read. Without it no record is valid.
    secret: Option<u64>,
    /// Logical end of the file.
    limit: u64,
    /// Start of the next record.
    offset: u64,
    sealed: bool,
    newest_mark: Position,
    /// `None` if records with values outside of the file are refused.
    values: Option<ValueReader>,
    /// Records below this offset are read without values that are lost.
    vouched: u64,
    /// Lost values of the last record.
    lost_values: Vec<LostValue>,
}

/// A record with its joined payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    /// Type: full for every payload, fragmented or not; start; or seal.
    pub(crate) record_type: RecordType,
    /// Number of the first entry of the batch in a log, or of the edit in a manifest.
    pub(crate) sequence: SequenceNumber,
    pub(crate) payload: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Record(Record),
    /// No more records. `None` if the file ends after a record or a seal. Otherwise the reason why
    /// the following bytes are no record.
    End(Option<Corruption>),
}

/// One record or fragment in the window.
#[derive(Debug)]
pub(crate) struct RawRecord {
    pub(crate) header: RecordHeader,
    payload: Range<usize>,
}

/// Reason for the lack of a record.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A crash can leave these bytes.
    Torn(Corruption),
    /// No crash can leave these bytes, or the file could not be read.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Reader {
    /// Opens file number `file_id`, without reading.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the length is unknown.
    pub(crate) fn new(file: Arc<dyn ReadFile>, path: PathBuf, file_id: u64) -> Result<Self> {
        let window = Window::new(file, path)?;
        Ok(Self {
            limit: window.file_bytes(),
            window,
            file_id,
            secret: None,
            offset: HEADER_BYTES as u64,
            sealed: false,
            newest_mark: Position::default(),
            values: None,
            vouched: 0,
            lost_values: Vec::new(),
        })
    }

    /// Makes the reader add the values to which records refer, from blob files in `folder`. A
    /// record with a missing or damaged value is a bad record.
    pub(crate) fn with_values(self, fs: &Arc<dyn Fs>, folder: &Path) -> Self {
        Self { values: Some(ValueReader::new(Arc::clone(fs), folder.to_owned())), ..self }
    }

    /// Makes the reader return records below `vouched`, which were durable with their values, even
    /// if values are [lost](Self::lost_values).
    pub(crate) const fn keep_below(&mut self, vouched: u64) {
        self.vouched = vouched;
    }

    /// Returns the lost values of the last record.
    pub(crate) fn lost_values(&self) -> &[LostValue] {
        &self.lost_values
    }

    /// Returns the ids of the blob files whose values were read so far.
    pub(crate) fn value_files(&self) -> impl Iterator<Item = u64> + '_ {
        self.values.iter().flat_map(ValueReader::files)
    }

    /// Returns the ids of the blob files to which the following records refer, without reading
    /// their values.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn referenced_files(&mut self) -> Result<BTreeSet<u64>> {
        let (mut files, mut offset) = (BTreeSet::new(), self.offset);
        while offset < self.limit {
            let record = match self.raw_record(offset) {
                Ok(record) => record,
                Err(Stop::Torn(_)) => break,
                Err(Stop::Failed(error)) => return Err(error),
            };
            let RecordHeader { record_type, transform, .. } = record.header;
            let total = match record_type {
                RecordType::Full => Some(0),
                RecordType::First => Some(TOTAL_BYTES),
                _ => None,
            };
            if let Some(total) = total.filter(|_| transform == Transform::Values) {
                let stored = self.raw_payload(&record).get(total..).unwrap_or_default();
                let found = referenced_files(stored);
                files.extend(found.map_err(|source| self.corrupt(offset, source))?);
            }
            offset += record.header.record_bytes() as u64;
        }
        Ok(files)
    }

    /// Returns the first bytes of the file, at most a file header.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn header(&mut self) -> Result<&[u8]> {
        let place = self.window.load(0, HEADER_BYTES)?;
        Ok(self.window.bytes(place))
    }

    /// Checks the file header against `want`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`] if this is another file.
    pub(crate) fn check_header(&mut self, want: &FileHeader) -> Result<()> {
        let checked = want.check(self.header()?);
        self.secret = Some(checked.map_err(|source| self.corrupt(0, source))?.secret);
        Ok(())
    }

    /// Reads the file header of any kind of file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn read_header(&mut self) -> Result<Result<FileHeader, Corruption>> {
        let found = FileHeader::decode(self.header()?);
        self.secret = found.as_ref().ok().map(|header| header.secret);
        Ok(found)
    }

    /// Returns the random number in the file header; 0 before it was read.
    pub(crate) fn secret(&self) -> u64 {
        self.secret.unwrap_or(0)
    }

    /// Ends the file at `offset`: a failed append left the later bytes.
    pub(crate) fn set_limit(&mut self, offset: u64) {
        self.limit = offset.min(self.window.file_bytes());
    }

    /// Limits the file to `file_bytes`, at the end of a record, after which a writer continues.
    /// Must precede reading.
    pub(crate) fn cut(&mut self, file_bytes: u64) {
        self.window.cut(file_bytes);
        self.limit = self.window.file_bytes();
    }

    /// Extends the limit to `file_bytes`, the end of a record, if the file is that long: a writer
    /// has appended since.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the length is unknown.
    pub(crate) fn extend(&mut self, file_bytes: u64) -> Result<()> {
        if file_bytes > self.limit {
            self.window.extend(file_bytes)?;
            self.limit = self.window.file_bytes();
        }
        Ok(())
    }

    /// Continues from the end of the last good record up to the current length of the file. Another
    /// process may have appended to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the length is unknown.
    pub(crate) fn reload(&mut self) -> Result<()> {
        self.window.reload()?;
        self.limit = self.window.file_bytes();
        Ok(())
    }

    /// Continues at `offset`, the end of a record.
    pub(crate) const fn resume(&mut self, offset: u64) {
        self.offset = offset;
    }

    pub(crate) const fn path(&self) -> &PathBuf {
        self.window.path()
    }

    pub(crate) const fn file_id(&self) -> u64 {
        self.file_id
    }

    /// Returns the length of the file when it was opened, or of the [cut](Self::cut) file.
    pub(crate) const fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// Returns the end of the last good record.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    #[cfg(test)]
    pub(super) fn window_bytes(&self) -> usize {
        self.window.buffer_bytes()
    }

    pub(crate) fn corrupt(&self, offset: u64, source: Corruption) -> Error {
        Error::corrupt(self.path(), offset, source)
    }

    /// Reads the next record, skipping ignorable ones. The first record is the start; nothing
    /// follows a seal.
    ///
    /// Costs one allocation, for the payload. A fragmented payload is allocated only if the file is
    /// long enough to hold it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, which never counts as the end of the log.
    /// [`Error::Corrupt`] if the checksum matches and the bytes break the format.
    pub(crate) fn next(&mut self) -> Result<Next> {
        while !self.sealed && self.offset < self.limit {
            match self.assemble() {
                Ok((record, end)) => {
                    self.offset = end;
                    self.sealed = record.record_type == RecordType::Seal;
                    if !matches!(record.record_type, RecordType::Ignorable(_)) {
                        return Ok(Next::Record(record));
                    }
                }
                Err(Stop::Torn(reason)) => return Ok(Next::End(Some(reason))),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Ok(Next::End(None))
    }

    /// Returns the record at the current offset, and its end.
    fn assemble(&mut self) -> Result<(Record, u64), Stop> {
        let offset = self.offset;
        self.lost_values.clear();
        let RawRecord { header, payload } = self.raw_record(offset)?;
        let end = offset + header.record_bytes() as u64;
        let is_first = offset == HEADER_BYTES as u64;
        let (payload, end) = match header.record_type {
            RecordType::Start if is_first => (self.copy(payload), end),
            RecordType::Full if !is_first => (self.copy(payload), end),
            RecordType::Seal | RecordType::Ignorable(_) if !is_first => (Bytes::new(), end),
            RecordType::First if !is_first => self.join(&header, payload, end)?,
            _ => return Err(self.broken(offset, Corruption::Order { what: "records of a log" })),
        };
        let payload = match header.record_type {
            RecordType::Seal | RecordType::Ignorable(_) => payload,
            _ if header.transform == Transform::Values => self.add_values(&payload)?,
            _ => header.transform.undo(payload).map_err(|bad| self.broken(offset, bad))?,
        };
        let record_type = match header.record_type {
            RecordType::First => RecordType::Full,
            other => other,
        };
        Ok((Record { offset, record_type, sequence: header.sequence, payload }, end))
    }

    /// Returns the payload of a record stored without its values.
    fn add_values(&mut self, stored: &[u8]) -> Result<Bytes, Stop> {
        let Some(values) = &mut self.values else {
            let refused = Transform::Values.undo(Bytes::new()).map_err(Bad::Broken);
            return refused.map_err(|bad| self.stop(self.offset, bad));
        };
        let lost = Some(&mut self.lost_values).filter(|_| self.offset < self.vouched);
        let joined = values.join(stored, lost);
        joined.map_err(|stop| match stop {
            ValueStop::Bad(bad) => self.stop(self.offset, bad),
            ValueStop::Failed(error) => Stop::Failed(error),
        })
    }

    /// Joins the fragments of a payload: the first one and those from `end` on.
    fn join(
        &mut self,
        first: &RecordHeader,
        payload: Range<usize>,
        mut end: u64,
    ) -> Result<(Bytes, u64), Stop> {
        let (offset, what) = (self.offset, "length of a fragmented payload");
        let Some((total, part)) = self.window.bytes(payload).split_first_chunk::<TOTAL_BYTES>()
        else {
            let value = first.payload_bytes.into();
            return Err(self.broken(offset, Corruption::OutOfRange { what, value }));
        };
        let total = u64::from_le_bytes(*total);
        let have = self.limit.saturating_sub(offset);
        let torn = Corruption::Truncated { what: "fragmented payload", need: total, have };
        if total > have {
            // The rest is missing; the marks determine whether it was durable.
            return Err(Stop::Torn(torn));
        }
        let Ok(capacity) = usize::try_from(total) else {
            return Err(self.broken(offset, Corruption::OutOfRange { what, value: total }));
        };
        if part.len() >= capacity {
            return Err(self.broken(offset, Corruption::OutOfRange { what, value: total }));
        }
        // Grows with the fragments, whose checksums match.
        let mut whole = Vec::with_capacity(capacity.min(JOINED_BYTES_FIRST));
        whole.extend_from_slice(part);
        loop {
            if end >= self.limit {
                return Err(Stop::Torn(torn));
            }
            let RawRecord { header, payload } = self.raw_record(end)?;
            let full = whole.len() + payload.len();
            // The last fragment, and no other, completes the payload.
            let fits = match header.record_type {
                RecordType::Middle => full < capacity,
                RecordType::Last => full == capacity,
                _ => false,
            };
            let same = header.sequence == first.sequence && header.transform == first.transform;
            if !fits || !same {
                let what = "fragments of a payload";
                return Err(self.broken(end, Corruption::Order { what }));
            }
            whole.extend_from_slice(self.window.bytes(payload));
            end += header.record_bytes() as u64;
            if header.record_type == RecordType::Last {
                return Ok((whole.into(), end));
            }
        }
    }

    /// Returns the record or fragment at `offset`.
    pub(crate) fn raw_record(&mut self, offset: u64) -> Result<RawRecord, Stop> {
        let bytes = self.load(offset, RECORD_HEADER_BYTES)?;
        let place = Position { file_id: self.file_id, offset };
        let bytes = self.window.bytes(bytes).first_chunk().expect("load checks the length");
        let header = RecordHeader::decode(bytes, place, self.secret());
        let header = header.map_err(|bad| self.stop(offset, bad))?;
        self.newest_mark = self.newest_mark.max(header.mark);
        let record = self.load(offset, header.record_bytes())?;
        let payload_start = record.start + RECORD_HEADER_BYTES;
        let payload = payload_start..payload_start + header.payload_bytes as usize;
        let checked = header.check_payload(self.window.bytes(payload.clone()));
        checked.map_err(|bad| self.stop(offset, bad))?;
        let mut padding = self.window.bytes(payload.end..record.end).iter();
        if let Some(&byte) = padding.find(|&&byte| byte != 0) {
            let what = "padding of a log record";
            return Err(Stop::Torn(Corruption::OutOfRange { what, value: byte.into() }));
        }
        Ok(RawRecord { header, payload })
    }

    /// Returns the payload of the record read last.
    pub(crate) fn raw_payload(&self, record: &RawRecord) -> &[u8] {
        self.window.bytes(record.payload.clone())
    }

    /// Loads `bytes` bytes before the logical end.
    fn load(&mut self, offset: u64, bytes: usize) -> Result<Range<usize>, Stop> {
        let (need, have) = (bytes as u64, self.limit.saturating_sub(offset));
        if need > have {
            return Err(Stop::Torn(Corruption::Truncated { what: "log record", need, have }));
        }
        Ok(self.window.load(offset, bytes)?)
    }

    fn copy(&self, place: Range<usize>) -> Bytes {
        Bytes::copy_from_slice(self.window.bytes(place))
    }

    fn stop(&self, offset: u64, bad: Bad) -> Stop {
        match bad {
            Bad::Torn(reason) => Stop::Torn(reason),
            Bad::Broken(reason) => self.broken(offset, reason),
        }
    }

    fn broken(&self, offset: u64, reason: Corruption) -> Stop {
        Stop::Failed(self.corrupt(offset, reason))
    }
}
