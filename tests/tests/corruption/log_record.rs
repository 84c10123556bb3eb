//! Places of log records and their synced marks, read independently of the engine.
//!
//! Layout in `docs/file-formats.md`: a header of 64 bytes, then records of 40 bytes and a payload,
//! each padded to a multiple of 8. Bytes 8 to 12 are the payload length, 24 to 40 the synced mark.

use std::ops::Range;

use super::sample::{LogPosition, Sample, file_id};

const FILE_HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 40;

/// A record of a log.
#[derive(Debug, Clone)]
pub(super) struct LogRecord {
    pub(super) file_id: u64,
    /// Its range, with padding.
    pub(super) place: Range<u64>,
    /// Synced mark of the record: everything before it is durable.
    pub(super) mark: LogPosition,
}

/// Returns the records of all logs of a sample, in order.
pub(super) fn log_records(sample: &Sample) -> Vec<LogRecord> {
    let mut records = Vec::new();
    for name in sample.names("", ".log") {
        let (bytes, file_id) = (&sample.files[&name], file_id(&name));
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let mut at = FILE_HEADER_BYTES;
        while at < bytes.len() {
            let payload_bytes = (number(at + 8) & 0xffff_ffff) as usize;
            let end = (at + RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(8);
            let mark = (number(at + 24), number(at + 32));
            records.push(LogRecord { file_id, place: at as u64..end as u64, mark });
            at = end;
        }
    }
    records
}

/// Returns the end of the records of a log; reserved zeros follow.
pub(super) fn records_end(bytes: &[u8]) -> usize {
    let mut at = FILE_HEADER_BYTES;
    // Record types are not 0.
    while bytes.get(at + 4).is_some_and(|&record_type| record_type != 0) {
        let length = bytes[at + 8..at + 12].try_into().expect("4 bytes");
        let payload_bytes = u32::from_le_bytes(length) as usize;
        at = (at + RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(8);
    }
    at
}

/// Returns the position up to which the records that `is_whole` mark the log as synced.
pub(super) fn vouched(records: &[LogRecord], is_whole: impl Fn(&LogRecord) -> bool) -> LogPosition {
    let whole = records.iter().filter(|record| is_whole(record));
    whole.map(|record| record.mark).max().unwrap_or_default()
}
