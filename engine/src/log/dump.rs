//! Descriptions of files of records.

use std::{mem, ops::Range};

use bytes::Bytes;
use sievedb_format::{Annotation, annotation::NextPart};

use super::{
    reader::{Reader, Stop},
    record::{Position, RECORD_HEADER_BYTES, RecordHeader, RecordType},
    start::Start,
    transform::Transform,
    values,
};
use crate::Result;

/// Describes every record of `reader`, and passes it to `next`. `reader` must not have read
/// anything.
///
/// `payload` describes a full record from its header and its decompressed payload. A bad record or
/// reserved space ends the description.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io) if the file cannot be read, [`Error::Corrupt`](crate::Error) if
/// it has no valid header.
pub(crate) fn describe(
    reader: &mut Reader,
    mut payload: impl FnMut(&RecordHeader, &[u8], &mut Annotation),
    next: &mut NextPart<'_>,
) -> Result<()> {
    let mut annotation = Annotation::new();
    let header = reader.read_header()?;
    header.map_err(|source| reader.corrupt(0, source))?.describe(&mut annotation);
    let mut offset = reader.offset();
    let mut is_end = false;
    while next(mem::take(&mut annotation)).is_continue() && !is_end && offset < reader.file_bytes()
    {
        let record = match reader.raw_record(offset) {
            Ok(record) => record,
            Err(Stop::Torn(reason)) => {
                annotation.rebase(offset);
                let rest = 0..reader.file_bytes() - offset;
                if reader.scan_from(offset)?.end == offset {
                    annotation.field(rest, "zeros", "room for records");
                } else {
                    annotation.field(rest, "not a record", reason);
                }
                is_end = true;
                continue;
            }
            Err(Stop::Failed(error)) => return Err(error),
        };
        let header = record.header;
        annotation.rebase(offset);
        let place = Position { file_id: reader.file_id(), offset };
        header.describe(place, reader.secret(), &mut annotation);
        let bytes = reader.raw_payload(&record);
        match header.record_type {
            RecordType::Start => Start::describe(bytes, PAYLOAD_START, &mut annotation),
            RecordType::Full if header.transform == Transform::None => {
                payload(&header, bytes, &mut annotation);
            }
            RecordType::Full if header.transform == Transform::Values => {
                describe_values(bytes, &mut annotation);
            }
            RecordType::Full => {
                let name = format!("{} payload", header.transform.name());
                let place = payload_place(0..bytes.len());
                match header.transform.undo(Bytes::copy_from_slice(bytes)) {
                    Ok(undone) => {
                        let meaning = format_args!("{} of {} bytes", bytes.len(), undone.len());
                        annotation.field(place, name, meaning);
                        payload(&header, &undone, &mut annotation);
                    }
                    Err(error) => annotation.field(place, name, error),
                }
            }
            RecordType::First
            | RecordType::Middle
            | RecordType::Last
            | RecordType::Ignorable(_) => {
                let meaning = format_args!("{} bytes", bytes.len());
                let is_fragment = !matches!(header.record_type, RecordType::Ignorable(_));
                let name = if is_fragment { "fragment" } else { "ignorable" };
                annotation.field(payload_place(0..bytes.len()), name, meaning);
            }
            RecordType::Seal => is_end = true,
        }
        offset += header.record_bytes() as u64;
    }
    Ok(())
}

/// Describes a payload without its values, which are only in their files.
fn describe_values(stored: &[u8], annotation: &mut Annotation) {
    match values::describe(stored) {
        Ok((meaning, end)) => {
            annotation.field(payload_place(0..end), "values", meaning);
            let meaning = format_args!("{} bytes without the values", stored.len() - end);
            annotation.field(payload_place(end..stored.len()), "rest", meaning);
        }
        Err(error) => annotation.field(payload_place(0..stored.len()), "values", error),
    }
}

const PAYLOAD_START: u64 = RECORD_HEADER_BYTES as u64;

/// Returns the range in the record of a range of its payload, or of the whole payload if it is
/// compressed.
pub(crate) fn place_in(header: &RecordHeader, range: Range<usize>) -> Range<u64> {
    match header.transform {
        Transform::None => payload_place(range),
        Transform::Lz4 | Transform::Values => payload_place(0..header.payload_bytes as usize),
    }
}

/// Returns the range in the record of a range of its stored payload.
pub(crate) const fn payload_place(range: Range<usize>) -> Range<u64> {
    PAYLOAD_START + range.start as u64..PAYLOAD_START + range.end as u64
}
