//! Descriptions of log segments.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use sievedb_format::{
    Annotation, Corruption, Kind,
    annotation::{NextPart, printable},
    expiry::split_expiry,
};

use super::batch::{Batch, Entry};
use crate::{
    Result,
    fs::ReadFile,
    keyspace_options::StoredOptions,
    log::{
        Reader,
        dump::{describe as describe_records, place_in},
        record::RecordHeader,
    },
};

/// Describes the segment `file_id`, up to its end or the first bad record. Passes each record to
/// `next`.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io). [`Error::Corrupt`](crate::Error) if the file has no valid
/// header, or breaks the format in a way that no crash explains.
pub(crate) fn describe(
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    file_id: u64,
    next: &mut NextPart<'_>,
) -> Result<()> {
    let mut reader = Reader::new(file, path, file_id)?;
    let payload = |header: &RecordHeader, payload: &[u8], annotation: &mut Annotation| {
        if let Err(error) = describe_batch(header, payload, annotation) {
            annotation.field(place_in(header, 0..payload.len()), "batch", error);
        }
    };
    describe_records(&mut reader, payload, next)
}

fn describe_batch(
    header: &RecordHeader,
    payload: &[u8],
    annotation: &mut Annotation,
) -> Result<(), Corruption> {
    let batch = Batch::decode(Bytes::copy_from_slice(payload))?;
    let mut entries = batch.iter();
    let mut end = entries.offset();
    annotation.field(place_in(header, 0..end), "entries", batch.entries());
    while let Some(entry) = entries.next() {
        let place = place_in(header, end..entries.offset());
        end = entries.offset();
        match entry? {
            Entry::Point { keyspace, kind, key, value } => {
                let mut meaning = format!("keyspace {keyspace} {}", printable(key));
                let (expiry_ms, value) = match kind {
                    Kind::PutWithExpiry => {
                        split_expiry(&value).map(|(ms, rest)| (Some(ms), rest))?
                    }
                    _ => (None, &*value),
                };
                if kind != Kind::Tombstone {
                    meaning += &format!(" = {}", printable(value));
                }
                if let Some(expiry_ms) = expiry_ms {
                    meaning += &format!(", expires at {expiry_ms} ms");
                }
                annotation.field(place, name_of(kind), meaning);
            }
            Entry::RemoveRange { keyspace, start, end } => {
                let (start, end) = (printable(start), printable(end));
                let meaning = format_args!("keyspace {keyspace} {start}..{end}");
                annotation.field(place, name_of(Kind::RangeTombstone), meaning);
            }
            Entry::CreateKeyspace { keyspace, name, options } => {
                let options = StoredOptions(options);
                let meaning = format_args!("keyspace {keyspace} {name:?}: {options}");
                annotation.field(place, "create", meaning);
            }
            Entry::DropKeyspace { keyspace } => {
                annotation.field(place, "drop", format_args!("keyspace {keyspace}"));
            }
            Entry::Ignored { keyspace } => {
                annotation.field(place, "ignorable", format_args!("keyspace {keyspace}"));
            }
            Entry::ClearKeyspace { keyspace } => {
                annotation.field(place, "clear", format_args!("keyspace {keyspace}"));
            }
            Entry::Ingest { keyspace, tables } => {
                let tables = format_args!("keyspace {keyspace}, tables {tables:?}");
                annotation.field(place, "ingest", tables);
            }
            Entry::RenameKeyspace { keyspace, name } => {
                annotation.field(place, "rename", format_args!("keyspace {keyspace} to {name:?}"));
            }
        }
    }
    Ok(())
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Put => "put",
        Kind::Tombstone => "remove",
        Kind::Merge => "merge",
        Kind::BlobReference => "blob_reference",
        Kind::PutWithExpiry => "put_with_expiry",
        Kind::RangeTombstone => "remove_range",
    }
}
