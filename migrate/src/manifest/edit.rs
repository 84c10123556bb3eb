//! Version edits: the records of a manifest.

use std::path::Path;

use crate::{decoder::Decoder, error::Result, internal_key::split_internal_key, tombstone::Bounds};

/// Unknown tags with this bit may be skipped: their value is length-prefixed.
const IGNORABLE: u32 = 1 << 13;

/// Unknown fields of a table with this bit must not be skipped.
const TABLE_FIELD_REQUIRED: u32 = 1 << 6;

/// Unknown fields of a blob file with this bit must not be skipped.
const BLOB_FIELD_REQUIRED: u32 = 1 << 6;

/// A live table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableFile {
    pub(crate) level: u32,
    pub(crate) number: u64,
    /// Directory of the table among `db_paths`.
    pub(crate) path_id: u8,
    pub(crate) bytes: u64,
    pub(crate) bounds: Bounds,
    pub(crate) largest_sequence: u64,
}

/// A record of the manifest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Column family of the edit.
    pub(crate) family: u32,
    pub(crate) added_family: Option<String>,
    pub(crate) is_dropped: bool,
    pub(crate) comparator: Option<String>,
    pub(crate) log_number: Option<u64>,
    pub(crate) min_log_number: Option<u64>,
    pub(crate) added: Vec<TableFile>,
    /// Level and number.
    pub(crate) deleted: Vec<(u32, u64)>,
    pub(crate) blob_files: Vec<u64>,
    /// Logs that must exist, with their durable length.
    pub(crate) logs: Vec<(u64, u64)>,
    /// Logs with smaller numbers need not exist.
    pub(crate) first_log: Option<u64>,
    /// Number of later edits that apply together with this one.
    pub(crate) group_left: Option<u32>,
}

impl Edit {
    /// Decodes the record `bytes` at `offset` of the manifest `path`.
    pub(crate) fn decode(bytes: &[u8], path: &Path, offset: u64) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, path, offset);
        let mut edit = Self::default();
        while !decoder.is_empty() {
            let tag = decoder.varint32("tag")?;
            edit.field(tag, &mut decoder)?;
        }
        Ok(edit)
    }

    fn field(&mut self, tag: u32, decoder: &mut Decoder<'_>) -> Result<()> {
        match tag {
            1 => self.comparator = Some(text(decoder, "comparator")?),
            2 => self.log_number = Some(decoder.varint64("log number")?),
            // Next file number, last sequence number, previous log of LevelDB.
            3 | 4 | 9 => {
                decoder.varint64("number")?;
            }
            5 => {
                decoder.varint32("level")?;
                decoder.prefixed("compaction cursor")?;
            }
            6 => {
                let level = decoder.varint32("level")?;
                self.deleted.push((level, decoder.varint64("table number")?));
            }
            10 => self.min_log_number = Some(decoder.varint64("log number")?),
            7 | 100 | 102 | 103 => {
                let table = self.table(tag, decoder)?;
                self.added.push(table);
            }
            200 => self.family = decoder.varint32("column family")?,
            201 => self.added_family = Some(text(decoder, "name of a column family")?),
            202 => self.is_dropped = true,
            203 => {
                decoder.varint32("largest column family")?;
            }
            300 => self.group_left = Some(decoder.varint32("group of edits")?),
            // Early releases allowed readers to skip the tags of blob files.
            400 | 8194 => {
                let number = blob_file(decoder)?;
                self.blob_files.push(number);
            }
            401 | 8195 => blob_garbage(decoder)?,
            // Early releases wrote no length.
            8196 => self.log_addition(decoder)?,
            8197 => self.first_log = Some(decoder.varint64("log number")?),
            8199 | 8200 => {
                let bytes = decoder.prefixed("log")?;
                let mut inner = decoder.within(bytes);
                match tag {
                    8199 => self.log_addition(&mut inner)?,
                    _ => self.first_log = Some(inner.varint64("log number")?),
                }
            }
            tag if tag & IGNORABLE != 0 => {
                decoder.prefixed("unknown field")?;
            }
            _ => return Err(decoder.unsupported(format!("field {tag} in the manifest"))),
        }
        Ok(())
    }

    /// Decodes an added table in the encoding of its tag.
    fn table(&mut self, tag: u32, decoder: &mut Decoder<'_>) -> Result<TableFile> {
        let level = decoder.varint32("level")?;
        let number = decoder.varint64("table number")?;
        let mut path_id = 0;
        if tag == 102 {
            path_id = decoder.varint32("path of a table")? as u8;
        }
        let bytes = decoder.varint64("size of a table")?;
        let smallest = bound(decoder)?;
        let largest = bound(decoder)?;
        let mut largest_sequence = 0;
        if tag != 7 {
            decoder.varint64("sequence number")?;
            largest_sequence = decoder.varint64("sequence number")?;
        }
        if tag == 103 {
            path_id = self.table_fields(decoder)?;
        }
        let bounds = Bounds { smallest, largest };
        Ok(TableFile { level, number, path_id, bytes, bounds, largest_sequence })
    }

    /// Decodes the optional fields of a table. Returns its path.
    fn table_fields(&mut self, decoder: &mut Decoder<'_>) -> Result<u8> {
        let mut path_id = 0;
        loop {
            let field = decoder.varint32("field of a table")?;
            if field == 1 {
                return Ok(path_id);
            }
            let bytes = decoder.prefixed("field of a table")?;
            let mut value = decoder.within(bytes);
            match field {
                3 => self.min_log_number = Some(value.u64("log number")?),
                65 => path_id = value.u8("path of a table")?,
                field if field & TABLE_FIELD_REQUIRED != 0 => {
                    let feature = format!("field {field} of a table in the manifest");
                    return Err(decoder.unsupported(feature));
                }
                _ => {}
            }
        }
    }

    fn log_addition(&mut self, decoder: &mut Decoder<'_>) -> Result<()> {
        let number = decoder.varint64("log number")?;
        let mut bytes = 0;
        loop {
            match decoder.varint32("field of a log")? {
                1 => break,
                2 => bytes = decoder.varint64("size of a log")?,
                field => {
                    let feature = format!("field {field} of a log in the manifest");
                    return Err(decoder.unsupported(feature));
                }
            }
        }
        self.logs.push((number, bytes));
        Ok(())
    }
}

fn text(decoder: &mut Decoder<'_>, what: &str) -> Result<String> {
    let bytes = decoder.prefixed(what)?.to_vec();
    String::from_utf8(bytes).map_err(|_| decoder.corrupt(format!("{what} is not UTF-8")))
}

fn bound(decoder: &mut Decoder<'_>) -> Result<(Vec<u8>, u64)> {
    let key = decoder.prefixed("key")?;
    let (user, sequence, _) = split_internal_key(key)
        .ok_or_else(|| decoder.corrupt("an internal key is shorter than 8 bytes"))?;
    Ok((user.to_vec(), sequence))
}

fn blob_file(decoder: &mut Decoder<'_>) -> Result<u64> {
    let number = decoder.varint64("blob file number")?;
    decoder.varint64("number of blobs")?;
    decoder.varint64("bytes of blobs")?;
    decoder.prefixed("checksum method")?;
    decoder.prefixed("checksum")?;
    blob_fields(decoder)?;
    Ok(number)
}

fn blob_garbage(decoder: &mut Decoder<'_>) -> Result<()> {
    decoder.varint64("blob file number")?;
    decoder.varint64("number of blobs")?;
    decoder.varint64("bytes of blobs")?;
    blob_fields(decoder)
}

fn blob_fields(decoder: &mut Decoder<'_>) -> Result<()> {
    loop {
        match decoder.varint32("field of a blob file")? {
            0 => return Ok(()),
            field if field & BLOB_FIELD_REQUIRED != 0 => {
                let feature = format!("field {field} of a blob file in the manifest");
                return Err(decoder.unsupported(feature));
            }
            _ => {
                decoder.prefixed("field of a blob file")?;
            }
        }
    }
}
