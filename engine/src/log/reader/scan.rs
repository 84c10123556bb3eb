//! Searches a file for records and synced marks, also behind a bad record.

use sievedb_format::file_header::HEADER_BYTES;

use super::Reader;
use crate::{
    Result,
    log::{
        Position, RecordType,
        record::{RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, record_bytes},
        start::START_BYTES_MAX,
    },
};

/// Maximum length of file header and start record, in bytes.
const BEGINNING_BYTES_MAX: u64 = (HEADER_BYTES + record_bytes(START_BYTES_MAX)) as u64;

/// Bytes after the end of the readable part of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Newest synced mark of all records, including earlier ones.
    pub(crate) newest_mark: Position,
    /// Number of valid headers, excluding start records.
    pub(crate) records: u64,
    /// End of the last byte that is not zero; the start of the scan if there is none.
    pub(crate) end: u64,
}

impl Reader {
    /// Returns `true` if anything was written to the file after its start record.
    ///
    /// Without the file header no record can be verified. Then all bytes after the longest start
    /// record count: they are written only after header and start record are durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn holds_records(&mut self) -> Result<bool> {
        if self.secret.is_none() && self.read_header()?.is_err() {
            return Ok(self.scan()?.end > BEGINNING_BYTES_MAX);
        }
        Ok(self.scan()?.records > 0)
    }

    /// Searches for valid headers from [`offset`](Self::offset) to the end of the file, including
    /// bytes after the logical end: a mark was valid when it was written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn scan(&mut self) -> Result<Scan> {
        self.scan_from(self.offset)
    }

    /// As [`scan`](Self::scan), from another offset.
    pub(crate) fn scan_from(&mut self, mut offset: u64) -> Result<Scan> {
        let mut scan = Scan { newest_mark: self.newest_mark, records: 0, end: offset };
        loop {
            let place = self.window.load(offset, RECORD_HEADER_BYTES)?;
            let bytes = self.window.bytes(place);
            let first = &bytes[..bytes.len().min(RECORD_ALIGN)];
            if let Some(last) = first.iter().rposition(|&byte| byte != 0) {
                scan.end = offset + last as u64 + 1;
            }
            let Some(bytes) = bytes.first_chunk() else {
                if bytes.is_empty() {
                    return Ok(scan);
                }
                // Too short for a header.
                offset += first.len() as u64;
                continue;
            };
            let place = Position { file_id: self.file_id, offset };
            let secret = self.secret.filter(|_| RecordHeader::looks_possible(bytes));
            let decode = |secret| RecordHeader::decode(bytes, place, secret).ok();
            let header = secret.and_then(decode);
            let step = header.map_or(RECORD_ALIGN, |header| {
                scan.newest_mark = scan.newest_mark.max(header.mark);
                scan.records += u64::from(header.record_type != RecordType::Start);
                scan.end = (offset + header.record_bytes() as u64).min(self.window.file_bytes());
                // Skips the payload, which could contain a stored header.
                header.record_bytes()
            });
            offset += step as u64;
        }
    }
}
