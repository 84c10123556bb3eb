//! Records of a log or manifest: blocks of 32 KiB with fragments.

use crate::{
    checksum::masked_crc32c,
    compression::{Compression, Decompressor},
    decoder::Decoder,
    error::{Error, Result},
    file::File,
};

const BLOCK_BYTES: u64 = 32 << 10;

/// Header of a fragment: checksum, length and type.
const HEADER_BYTES: usize = 7;

/// Header of a recyclable fragment: also the number of the log.
const RECYCLABLE_HEADER_BYTES: usize = 11;

/// Maximum length of a record after decompression. RocksDB stores sizes in 32 bits.
const RECORD_BYTES_MAX: u64 = u32::MAX as u64;

/// Types of fragments. A recyclable type is 4 larger.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
const RECYCLABLE_FULL: u8 = 5;
const RECYCLABLE_LAST: u8 = 8;
const COMPRESSION: u8 = 9;
const TIMESTAMP_SIZE: u8 = 10;
const RECYCLABLE_TIMESTAMP_SIZE: u8 = 11;
/// Unknown types with this bit may be skipped.
const IGNORABLE: u8 = 1 << 7;
const RECYCLABLE_PREDECESSOR: u8 = 131;

/// A record and its offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) bytes: Vec<u8>,
    /// Offset of its first fragment.
    pub(crate) offset: u64,
}

/// Reads the records of a file in order. Holds one block and one record.
#[derive(Debug)]
pub(crate) struct LogReader {
    file: File,
    /// Number of the log, which recyclable records repeat.
    number: u64,
    block: Vec<u8>,
    /// Offset of `block` in the file.
    block_offset: u64,
    /// Position in `block`.
    at: usize,
    is_recycled: bool,
    has_records: bool,
    /// Decompressor of a compressed log.
    zstd: Option<Decompressor>,
    /// Offset of an incomplete record at the end.
    torn: Option<u64>,
}

/// A fragment of a record.
enum Fragment {
    Some {
        kind: u8,
        bytes: Vec<u8>,
        offset: u64,
    },
    End,
    /// The last record is incomplete.
    Torn {
        offset: u64,
    },
}

impl LogReader {
    pub(crate) fn new(file: File, number: u64) -> Self {
        Self {
            file,
            number,
            block: Vec::new(),
            block_offset: 0,
            at: 0,
            is_recycled: false,
            has_records: false,
            zstd: None,
            torn: None,
        }
    }

    /// Returns the offset of an incomplete record at the end, after all records have been read.
    pub(crate) fn torn(&self) -> Option<u64> {
        self.torn
    }

    /// Returns the next record, or `None` at the end or at an incomplete last record.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        let mut pending: Option<Record> = None;
        loop {
            let (kind, bytes, offset) = match self.fragment()? {
                Fragment::Some { kind, bytes, offset } => (kind, bytes, offset),
                Fragment::End => {
                    self.torn = pending.map(|record| record.offset);
                    return Ok(None);
                }
                Fragment::Torn { offset } => {
                    self.torn = Some(pending.map_or(offset, |record| record.offset));
                    return Ok(None);
                }
            };
            let is_data = (FULL..=RECYCLABLE_LAST).contains(&kind);
            match if is_data { (kind - 1) % 4 + 1 } else { kind } {
                FULL | FIRST if pending.as_ref().is_some_and(|record| !record.bytes.is_empty()) => {
                    return Err(self.corrupt(offset, "a record starts within another"));
                }
                FULL => return self.finish(Record { bytes, offset }).map(Some),
                FIRST => pending = Some(Record { bytes, offset }),
                MIDDLE | LAST => {
                    let Some(mut record) = pending.take() else {
                        return Err(self.corrupt(offset, "a record has no start"));
                    };
                    record.bytes.extend_from_slice(&bytes);
                    if (kind - 1) % 4 + 1 == LAST {
                        return self.finish(record).map(Some);
                    }
                    pending = Some(record);
                }
                COMPRESSION => self.set_compression(&bytes, offset)?,
                TIMESTAMP_SIZE | RECYCLABLE_TIMESTAMP_SIZE => {
                    return Err(Error::unsupported(self.file.path(), "user-defined timestamps"));
                }
                IGNORABLE.. => {}
                _ => {
                    let feature = format!("log record of type {kind} at byte {offset}");
                    return Err(Error::unsupported(self.file.path(), feature));
                }
            }
        }
    }

    fn finish(&mut self, record: Record) -> Result<Record> {
        self.has_records = true;
        let Some(zstd) = &mut self.zstd else { return Ok(record) };
        let path = self.file.path();
        let bytes = zstd.zstd_frames(&record.bytes, RECORD_BYTES_MAX, path, record.offset)?;
        Ok(Record { bytes, offset: record.offset })
    }

    fn set_compression(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.has_records || self.zstd.is_some() {
            return Err(self.corrupt(offset, "the compression changes within the log"));
        }
        let path = self.file.path();
        let number = Decoder::new(bytes, path, offset).u32("compression type")?;
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        match Compression::from_number(number, path)? {
            Compression::None => {}
            Compression::Zstd => self.zstd = Some(Decompressor::new()),
            other => return Err(Error::unsupported(path, format!("log compressed by {other:?}"))),
        }
        Ok(())
    }

    fn corrupt(&self, offset: u64, reason: &str) -> Error {
        let advice = "to accept the loss, open and close the database with RocksDB, which applies \
                      its WAL recovery mode";
        Error::corrupt(self.file.path(), offset, format!("{reason}; {advice}"))
    }

    /// Reads the next fragment and verifies its checksum.
    fn fragment(&mut self) -> Result<Fragment> {
        // The rest of a block is zeros if it is too short for a header. Headers of recycled logs
        // are longer.
        let rest = &self.block[self.at..];
        let is_zero = rest.iter().all(|byte| *byte == 0);
        if rest.len() < HEADER_BYTES || rest.len() < RECYCLABLE_HEADER_BYTES && is_zero {
            let rest_offset = self.block_offset + self.at as u64;
            // The last block of the file may be shorter.
            if !self.block.is_empty() && (self.block.len() as u64) < BLOCK_BYTES {
                return Ok(match is_zero {
                    true => Fragment::End,
                    false => Fragment::Torn { offset: rest_offset },
                });
            }
            self.block_offset += self.block.len() as u64;
            let left = self.file.len().saturating_sub(self.block_offset);
            if left == 0 {
                return Ok(Fragment::End);
            }
            self.block = self.file.read_at(self.block_offset, left.min(BLOCK_BYTES) as usize)?;
            self.at = 0;
            return self.fragment();
        }
        let offset = self.block_offset + self.at as u64;
        let is_last = (self.block.len() as u64) < BLOCK_BYTES;
        let header = &self.block[self.at..];
        let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let kind = header[6];
        let is_recyclable = (RECYCLABLE_FULL..=RECYCLABLE_LAST).contains(&kind)
            || matches!(kind, RECYCLABLE_TIMESTAMP_SIZE | RECYCLABLE_PREDECESSOR);
        let header_bytes = if is_recyclable { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES };
        if kind == 0 && len == 0 && stored == 0 && self.is_zero_to_the_end()? {
            // Preallocated space.
            return Ok(Fragment::End);
        }
        if header_bytes + len > header.len() {
            return match is_last || self.is_recycled {
                true => Ok(Fragment::Torn { offset }),
                false => Err(self.corrupt(offset, "a record is longer than its block")),
            };
        }
        if is_recyclable {
            if self.has_records && !self.is_recycled {
                return Err(self.corrupt(offset, "a recyclable record among others"));
            }
            self.is_recycled = true;
            let number = u32::from_le_bytes([header[7], header[8], header[9], header[10]]);
            if number != self.number as u32 {
                // Fragment of the earlier log in the same file.
                return Ok(Fragment::End);
            }
        }
        let end = header_bytes + len;
        if masked_crc32c(&[&header[6..end]]) != stored {
            // Bytes of the earlier log follow the last record of a recycled log.
            return match self.is_recycled {
                true => Ok(Fragment::Torn { offset }),
                false => Err(self.corrupt(offset, "the checksum of a record differs")),
            };
        }
        let bytes = header[header_bytes..end].to_vec();
        self.at += end;
        Ok(Fragment::Some { kind, bytes, offset })
    }

    /// Returns `true` if the file has only zeros from the position on.
    fn is_zero_to_the_end(&self) -> Result<bool> {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if !is_zero(&self.block[self.at..]) {
            return Ok(false);
        }
        let mut offset = self.block_offset + self.block.len() as u64;
        while offset < self.file.len() {
            let count = (self.file.len() - offset).min(BLOCK_BYTES) as usize;
            if !is_zero(&self.file.read_at(offset, count)?) {
                return Ok(false);
            }
            offset += count as u64;
        }
        Ok(true)
    }
}
