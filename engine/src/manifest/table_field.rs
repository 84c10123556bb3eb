//! The bytes of a table's entry: tagged fields ([`crate::log::fields`]).
//!
//! | tag          | value         | meaning                                                      |
//! |--------------|---------------|--------------------------------------------------------------|
//! | 1, required  | varint        | id                                                           |
//! | 2, required  | two varints   | level (0 to 6), run; below level 0 the run is 0              |
//! | 3, required  | varint        | length of the file, in bytes                                 |
//! | 4, required  | u64           | xxh3_64 of the file                                          |
//! | 5, required  | u64           | salt                                                         |
//! | 6, optional  | three varints, u32 | point filter: file id, offset, length; checksum         |
//! | 7, required  | varint        | global sequence number: every entry of an ingested table has it |
//! | 8, required  | raw           | smallest user key                                            |
//! | 9, required  | raw           | largest user key                                             |
//! | 10, required | two varints   | entries, tombstones among them                               |
//! | 11, required | two varints   | smallest and largest sequence number                         |
//! | 12, required | raw           | entries that expire ([`sievedb_sstable::table_expiry`])      |
//! | 13, required | often         | a blob file of its entries ([`sievedb_sstable::BlobUse::encode`]) |
//! | 14, optional | as 6, then a prefixed name | prefix filter, and the extractor that found its prefixes |
//! | 15, optional | as 6          | range filter                                                 |
//! | 16, required | varint        | bit 0: the smallest key is exclusive, bit 1: the largest     |
//! | 17, required | varint, often | a kind of its entries besides put and tombstone; reserved    |
//! | 18, required | varint        | range tombstones among the entries                           |
//! | 19, optional | varint        | its entries were written before, in ms of the store clock    |
//!
//! | 20, optional | varint        | most blob files whose values alternate in key order          |
//!
//! 6, 7 and 12 to 20 may be missing. Without 20 it is the number of blob files. Without 16 both
//! keys are inclusive. Without 6, 14 or 15 a table has no such filter, which costs reads and no
//! answers.

use sievedb_format::{Corruption, Decoder, Encode, SEQUENCE_MAX, TableBounds};
use sievedb_sstable::{BlobUse, TableExpiry};

use crate::{
    log::fields::{EncodeFields, Field, Fields, optional, required, set_once},
    table::{FilterPlace, PrefixFilterPlace, TableMeta},
};

const ID: u64 = required(1);
const PLACE: u64 = required(2);
const BYTES: u64 = required(3);
const CHECKSUM: u64 = required(4);
const SALT: u64 = required(5);
const FILTER: u64 = optional(6);
const GLOBAL_SEQUENCE: u64 = required(7);
const SMALLEST: u64 = required(8);
const LARGEST: u64 = required(9);
const ENTRIES: u64 = required(10);
const SEQUENCES: u64 = required(11);
const EXPIRY: u64 = required(12);
const BLOB_FILE: u64 = required(13);
const PREFIX_FILTER: u64 = optional(14);
const RANGE_FILTER: u64 = optional(15);
const EXCLUDED_BOUNDS: u64 = required(16);
const KIND: u64 = required(17);
const RANGE_TOMBSTONES: u64 = required(18);
const WRITTEN: u64 = optional(19);
const BLOB_DEPTH: u64 = optional(20);

/// No table has as many entries. Their sums over 60,000 tables do not overflow: only `verify`
/// compares these numbers with the tables.
const ENTRIES_MAX: u64 = 1 << 48;

pub(super) fn encode(table: &TableMeta, out: &mut Vec<u8>) {
    out.put_varint_field(ID, table.id);
    out.put_varints_field(PLACE, &[table.level.into(), table.run]);
    out.put_varint_field(BYTES, table.bytes);
    out.put_field(CHECKSUM, &table.checksum.to_le_bytes());
    out.put_field(SALT, &table.salt.to_le_bytes());
    put_filter_place(FILTER, table.filter, out);
    if let Some(sequence) = table.global_sequence {
        out.put_varint_field(GLOBAL_SEQUENCE, sequence);
    }
    out.put_field(SMALLEST, &table.bounds.smallest);
    out.put_field(LARGEST, &table.bounds.largest);
    if table.bounds.exclusions() > 0 {
        out.put_varint_field(EXCLUDED_BOUNDS, table.bounds.exclusions());
    }
    out.put_varints_field(ENTRIES, &[table.entries, table.tombstones]);
    if table.range_tombstones > 0 {
        out.put_varint_field(RANGE_TOMBSTONES, table.range_tombstones);
    }
    out.put_varints_field(SEQUENCES, &[table.smallest_sequence, table.largest_sequence]);
    if let Some(expiry) = &table.expiry {
        let mut bytes = Vec::with_capacity(64);
        expiry.encode(&mut bytes);
        out.put_field(EXPIRY, &bytes);
    }
    for blob_file in &table.blob_files {
        let mut bytes = Vec::with_capacity(40);
        blob_file.encode(&mut bytes);
        out.put_field(BLOB_FILE, &bytes);
    }
    if let Some(place) = &table.prefix_filter {
        let mut bytes = Vec::with_capacity(40);
        encode_prefix_place(place, &mut bytes);
        out.put_field(PREFIX_FILTER, &bytes);
    }
    put_filter_place(RANGE_FILTER, table.range_filter, out);
    if let Some(ms) = table.written_ms {
        out.put_varint_field(WRITTEN, ms);
    }
    if table.blob_depth != table.blob_files.len() as u64 {
        out.put_varint_field(BLOB_DEPTH, table.blob_depth);
    }
}

fn put_filter_place(tag: u64, place: Option<FilterPlace>, out: &mut Vec<u8>) {
    if let Some(place) = place {
        let mut bytes = Vec::with_capacity(24);
        encode_place(place, &mut bytes);
        out.put_field(tag, &bytes);
    }
}

fn read_filter_place(field: &Field<'_>, what: &'static str) -> Result<FilterPlace, Corruption> {
    field.read(what, |decoder| decode_place(decoder, what))
}

pub(super) fn encode_place(place: FilterPlace, out: &mut Vec<u8>) {
    let FilterPlace { file_id, offset, bytes, checksum } = place;
    out.put_varint(file_id);
    out.put_varint(offset);
    out.put_varint(bytes);
    out.put_u32(checksum);
}

pub(super) fn decode_place(
    decoder: &mut Decoder<'_>,
    what: &'static str,
) -> Result<FilterPlace, Corruption> {
    Ok(FilterPlace {
        file_id: decoder.varint(what)?,
        offset: decoder.varint(what)?,
        bytes: decoder.varint(what)?,
        checksum: decoder.u32(what)?,
    })
}

pub(super) fn encode_prefix_place(place: &PrefixFilterPlace, out: &mut Vec<u8>) {
    encode_place(place.place, out);
    out.put_prefixed(place.extractor.as_bytes());
}

pub(super) fn decode_prefix_place(
    decoder: &mut Decoder<'_>,
) -> Result<PrefixFilterPlace, Corruption> {
    let place = decode_place(decoder, "prefix filter place")?;
    let what = "extractor of a prefix filter";
    let name = std::str::from_utf8(decoder.prefixed(what)?)
        .map_err(|e| Corruption::OutOfRange { what, value: e.valid_up_to() as u64 })?;
    Ok(PrefixFilterPlace { place, extractor: name.into() })
}

/// # Errors
///
/// [`Corruption`] if the bytes break the table above, the key or sequence range is empty, or a
/// number of entries is impossible.
pub(super) fn decode(bytes: &[u8]) -> Result<TableMeta, Corruption> {
    let (mut id, mut place, mut file_bytes, mut checksum, mut salt) =
        (None, None, None, None, None);
    let (mut filter, mut prefix_filter, mut range_filter) = (None, None, None);
    let (mut global_sequence, mut expiry, mut written_ms) = (None, None, None);
    let (mut smallest, mut largest, mut entries, mut sequences) = (None, None, None, None);
    let (mut excluded, mut range_tombstones) = (None, None);
    let (mut blob_files, mut blob_depth) = (Vec::new(), None);
    let mut fields = Fields::new("table", bytes);
    while let Some(field) = fields.next()? {
        match field.tag {
            ID => set_once(&mut id, field.varint("table id")?, "table id")?,
            PLACE => set_once(&mut place, field.varints("level and run")?, "level and run")?,
            BYTES => set_once(&mut file_bytes, field.varint("table length")?, "table length")?,
            CHECKSUM => set_once(&mut checksum, field.u64("file checksum")?, "file checksum")?,
            SALT => set_once(&mut salt, field.u64("salt")?, "salt")?,
            FILTER => {
                let what = "filter place";
                set_once(&mut filter, read_filter_place(&field, what)?, what)?;
            }
            PREFIX_FILTER => {
                let what = "prefix filter place";
                set_once(&mut prefix_filter, field.read(what, decode_prefix_place)?, what)?;
            }
            RANGE_FILTER => {
                let what = "range filter place";
                set_once(&mut range_filter, read_filter_place(&field, what)?, what)?;
            }
            GLOBAL_SEQUENCE => {
                let what = "global sequence number";
                set_once(&mut global_sequence, field.varint(what)?, what)?;
            }
            SMALLEST => set_once(&mut smallest, field.value, "smallest key")?,
            LARGEST => set_once(&mut largest, field.value, "largest key")?,
            EXCLUDED_BOUNDS => {
                let what = "exclusive bounds";
                set_once(&mut excluded, field.varint(what)?, what)?;
            }
            ENTRIES => set_once(&mut entries, field.varints("entries")?, "entries")?,
            RANGE_TOMBSTONES => {
                let what = "range tombstones";
                set_once(&mut range_tombstones, field.varint(what)?, what)?;
            }
            SEQUENCES => set_once(&mut sequences, field.varints("sequences")?, "sequences")?,
            EXPIRY => {
                let what = "expiry of a table";
                let read = field.read(what, |decoder| TableExpiry::decode(what, decoder))?;
                set_once(&mut expiry, read, what)?;
            }
            KIND => {
                let (what, value) = ("kind of an entry", field.varint("kind of an entry")?);
                return Err(Corruption::Unsupported { what, value });
            }
            WRITTEN => {
                let what = "time of a table";
                set_once(&mut written_ms, field.varint(what)?, what)?;
            }
            BLOB_DEPTH => {
                let what = "depth of the blob files of a table";
                set_once(&mut blob_depth, field.varint(what)?, what)?;
            }
            BLOB_FILE => blob_files.push(field.read("blob file of a table", BlobUse::decode)?),
            _ => field.skip("field of a table")?,
        }
    }
    let missing = |what| move || Corruption::Missing { what };
    let [level, run] = place.ok_or_else(missing("level and run"))?;
    let Ok(level) = u8::try_from(level) else {
        return Err(Corruption::OutOfRange { what: "level", value: level });
    };
    let [entries, tombstones] = entries.ok_or_else(missing("entries"))?;
    for (what, value, max) in [
        ("entries", entries, ENTRIES_MAX),
        ("tombstones", tombstones, entries),
        ("range tombstones", range_tombstones.unwrap_or(0), entries),
    ] {
        if value > max {
            return Err(Corruption::OutOfRange { what, value });
        }
    }
    let [smallest_sequence, largest_sequence] = sequences.ok_or_else(missing("sequences"))?;
    let smallest = smallest.ok_or_else(missing("smallest key"))?;
    let largest = largest.ok_or_else(missing("largest key"))?;
    let mut bounds = TableBounds::inclusive(smallest, largest);
    bounds.set_exclusions("exclusive bounds", excluded.unwrap_or(0))?;
    if bounds.is_empty() {
        return Err(Corruption::Order { what: "key range of a table" });
    }
    if smallest_sequence > largest_sequence || largest_sequence > SEQUENCE_MAX {
        return Err(Corruption::Order { what: "sequence range of a table" });
    }
    let is_global = |sequence| (sequence, sequence) == (smallest_sequence, largest_sequence);
    if global_sequence.is_some_and(|sequence| sequence == 0 || !is_global(sequence))
        || global_sequence.is_some() && range_tombstones.is_some()
    {
        return Err(Corruption::Order { what: "global sequence number" });
    }
    if !blob_files.is_sorted_by(|left: &BlobUse, right| left.file_id < right.file_id) {
        return Err(Corruption::Order { what: "blob files of a table" });
    }
    let files = blob_files.len() as u64;
    Ok(TableMeta {
        id: id.ok_or_else(missing("table id"))?,
        level,
        run,
        bytes: file_bytes.ok_or_else(missing("table length"))?,
        checksum: checksum.ok_or_else(missing("file checksum"))?,
        salt: salt.ok_or_else(missing("salt"))?,
        filter,
        prefix_filter,
        range_filter,
        global_sequence,
        bounds,
        entries,
        tombstones,
        range_tombstones: range_tombstones.unwrap_or(0),
        smallest_sequence,
        largest_sequence,
        expiry: expiry.map(Box::new),
        blob_depth: blob_depth.unwrap_or(files).min(files),
        blob_files,
        written_ms,
    })
}
