//! Descriptions of manifests.

use std::{path::PathBuf, sync::Arc};

use sievedb_format::{
    Annotation, Corruption,
    annotation::{NextPart, printable},
};
use sievedb_sstable::BlobUse;

use super::edit::{
    FILTER_REPLACED, FLUSHED, FilterReplaced, HASH_SEED, HISTORY_FROM, KEYSPACE_CHANGED,
    KEYSPACE_CLEARED, KEYSPACE_CREATED, KEYSPACE_DROPPED, KEYSPACE_RENAMED, KeyspaceChanged,
    KeyspaceCreated, KeyspaceRenamed, LAST_SEQUENCE, LOG_CREATED, LOG_FLOOR, LOG_MARK,
    LOG_RETAINED, NEXT_FILE_ID, NEXT_KEYSPACE_ID, PREFIX_FILTER_REPLACED, RANGE_FILTER_REPLACED,
    RETAINED_FLOOR, RETENTION, SEQUENCE_TIME, STORE_CLOCK_MS, STORE_ID, TABLE_ADDED, TABLE_MOVED,
    TABLE_REMOVED, decode_filter, decode_keyspace, decode_keyspace_change, decode_keyspace_rename,
    decode_log, decode_table,
};
use super::retained::{self, RetainedLog, RetentionChanged};
use crate::{
    Result,
    change_retention::ChangeRetention,
    fs::ReadFile,
    keyspace_options::StoredOptions,
    log::{
        Reader,
        dump::{describe as describe_records, payload_place},
        fields::{Field, Fields},
    },
    table::{FilterPlace, NewPlace, PrefixFilterPlace},
};

/// Describes manifest `file_id`, up to its end or the first bad record. Passes each record to
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
    describe_records(&mut reader, |_, payload, annotation| describe_edit(payload, annotation), next)
}

fn describe_edit(payload: &[u8], annotation: &mut Annotation) {
    let mut fields = Fields::new("version edit", payload);
    loop {
        match fields.next() {
            Ok(Some(field)) => {
                let (name, meaning) = describe_field(&field);
                let meaning = meaning.unwrap_or_else(|error| error.to_string());
                annotation.field(payload_place(field.place.0..field.place.1), name, meaning);
            }
            Ok(None) => return,
            Err(error) => {
                annotation.field(payload_place(0..payload.len()), "edit", error);
                return;
            }
        }
    }
}

fn describe_field(field: &Field<'_>) -> (&'static str, Result<String, Corruption>) {
    let number = |what| field.varint(what).map(|number| number.to_string());
    let pair = |what, say: fn(u64, u64) -> String| field.varints(what).map(|[a, b]| say(a, b));
    match field.tag {
        STORE_ID => ("store_id", field.u128("store id").map(|id| format!("{id:032x}"))),
        HASH_SEED => ("hash_seed", field.u64("hash seed").map(|seed| format!("{seed:016x}"))),
        NEXT_FILE_ID => ("next_file_id", number("next file id")),
        NEXT_KEYSPACE_ID => ("next_keyspace_id", number("next keyspace id")),
        LAST_SEQUENCE => ("last_sequence", number("last sequence number")),
        STORE_CLOCK_MS => ("store_clock_ms", number("store clock")),
        LOG_CREATED => (
            "log_created",
            decode_log(field).map(|(id, secret)| format!("{id}, secret {secret:016x}")),
        ),
        LOG_FLOOR => ("log_floor", number("log floor")),
        KEYSPACE_CREATED => ("keyspace_created", describe_keyspace(field)),
        KEYSPACE_CHANGED => ("keyspace_changed", describe_keyspace_change(field)),
        KEYSPACE_RENAMED => ("keyspace_renamed", describe_keyspace_rename(field)),
        KEYSPACE_CLEARED => (
            "keyspace_cleared",
            pair("cleared keyspace", |id, sequence| format!("{id} up to {sequence}")),
        ),
        KEYSPACE_DROPPED => ("keyspace_dropped", number("keyspace id")),
        TABLE_ADDED => ("table_added", describe_table(field)),
        TABLE_REMOVED => (
            "table_removed",
            pair("removed table", |keyspace, id| format!("keyspace {keyspace} table {id}")),
        ),
        TABLE_MOVED => (
            "table_moved",
            field.varints("moved table").map(|[keyspace, id, level, run]| {
                format!("keyspace {keyspace} table {id} to level {level} run {run}")
            }),
        ),
        FLUSHED => (
            "flushed",
            pair("flushed sequence number", |keyspace, sequence| {
                format!("keyspace {keyspace} up to {sequence}")
            }),
        ),
        LOG_MARK => {
            ("log_mark", pair("synced mark", |file, offset| format!("file {file} up to {offset}")))
        }
        SEQUENCE_TIME => (
            "sequence_time",
            pair("time of a sequence number", |ms, sequence| format!("{sequence} at {ms} ms")),
        ),
        HISTORY_FROM => (
            "history_from",
            field.varints("start of a history").map(|[keyspace, sequence, clock_ms]| {
                format!("keyspace {keyspace} from {sequence} at {clock_ms} ms")
            }),
        ),
        RETENTION => (
            "retention",
            retained::decode_retention(field).map(|RetentionChanged { limits, from }| {
                let ChangeRetention { bytes_max, age_ms_max } = limits;
                format!("{bytes_max} bytes, {age_ms_max} ms, from {from}")
            }),
        ),
        LOG_RETAINED => (
            "log_retained",
            retained::decode_log(field).map(|(id, log)| {
                let RetainedLog { secret, last_sequence, bytes, retired_ms } = log;
                format!(
                    "{id}, secret {secret:016x}, up to {last_sequence}, {bytes} bytes, since \
                     {retired_ms} ms"
                )
            }),
        ),
        RETAINED_FLOOR => (
            "retained_floor",
            pair("floor of the retained logs", |id, from| format!("{id}, from {from}")),
        ),
        FILTER_REPLACED => ("filter_replaced", describe_filter(field)),
        PREFIX_FILTER_REPLACED => ("prefix_filter_replaced", describe_filter(field)),
        RANGE_FILTER_REPLACED => ("range_filter_replaced", describe_filter(field)),
        _ => ("unknown", Ok(printable(field.value))),
    }
}

fn describe_keyspace(field: &Field<'_>) -> Result<String, Corruption> {
    let KeyspaceCreated { id, name, options } = decode_keyspace(field)?;
    Ok(format!("{id} {name:?}: {}", StoredOptions(&options)))
}

fn describe_keyspace_change(field: &Field<'_>) -> Result<String, Corruption> {
    let KeyspaceChanged { id, options } = decode_keyspace_change(field)?;
    Ok(format!("{id}: {}", StoredOptions(&options)))
}

fn describe_keyspace_rename(field: &Field<'_>) -> Result<String, Corruption> {
    let KeyspaceRenamed { id, sequence, name } = decode_keyspace_rename(field)?;
    Ok(format!("{id} {name:?} since {sequence}"))
}

fn describe_filter(field: &Field<'_>) -> Result<String, Corruption> {
    let FilterReplaced { keyspace, id, place } = decode_filter(field)?;
    let place = match place {
        NewPlace::Point(place) => filter_place("filter", place),
        NewPlace::Prefix(place) => prefix_filter_place(place),
        NewPlace::Range(place) => filter_place("range filter", place),
    };
    Ok(format!("keyspace {keyspace} table {id}, {place}"))
}

fn prefix_filter_place(place: Option<PrefixFilterPlace>) -> String {
    let Some(PrefixFilterPlace { place, extractor }) = place else {
        return filter_place("prefix filter", None);
    };
    format!("{} by {extractor:?}", filter_place("prefix filter", Some(place)))
}

fn filter_place(name: &str, place: Option<FilterPlace>) -> String {
    place.map_or_else(
        || format!("no {name}"),
        |FilterPlace { file_id, offset, bytes, .. }| {
            format!("{name} in {file_id} at {offset} of {bytes} bytes")
        },
    )
}

fn bound(key: &[u8], is_excluded: bool) -> String {
    format!("{}{}", printable(key), if is_excluded { " (exclusive)" } else { "" })
}

fn describe_table(field: &Field<'_>) -> Result<String, Corruption> {
    let (keyspace, table) = decode_table(field)?;
    let mut filters = filter_place("filter", table.filter);
    if let Some(prefix) = &table.prefix_filter {
        filters = format!("{filters}, {}", prefix_filter_place(Some(prefix.clone())));
    }
    if table.range_filter.is_some() {
        filters = format!("{filters}, {}", filter_place("range filter", table.range_filter));
    }
    let ranges = match table.range_tombstones {
        0 => String::new(),
        ranges => format!(" ({ranges} of ranges)"),
    };
    let mut files = String::new();
    for used in &table.blob_files {
        let &BlobUse { file_id, bytes, used_bytes, .. } = used;
        files += &format!(", {used_bytes} bytes in blob file {file_id} of {bytes} bytes");
    }
    if table.blob_depth != table.blob_files.len() as u64 {
        files += &format!(", of which {} alternate", table.blob_depth);
    }
    if let Some(sequence) = table.global_sequence {
        files += &format!(", ingested at {sequence}");
    }
    Ok(format!(
        "keyspace {keyspace} table {} level {} run {}, {} bytes, checksum {:016x}, salt {:016x}, \
         {filters}, keys {} to {}, {} entries with {} tombstones{ranges}, sequence {} to {}\
         {files}",
        table.id,
        table.level,
        table.run,
        table.bytes,
        table.checksum,
        table.salt,
        bound(&table.bounds.smallest, table.bounds.smallest_excluded),
        if table.bounds.is_unbounded() {
            "the end".to_owned()
        } else {
            bound(&table.bounds.largest, table.bounds.largest_excluded)
        },
        table.entries,
        table.tombstones,
        table.smallest_sequence,
        table.largest_sequence,
    ))
}
