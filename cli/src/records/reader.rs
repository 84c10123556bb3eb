//! Entries of standard input.

use std::{
    borrow::Cow,
    io::{self, BufRead as _, BufReader, Read},
};

use clap::ValueEnum;
use serde::Deserialize;
use sievedb::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::{KEY, KEYSPACE, VALUE};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Maximum length of a record with each byte escaped: a line of JSON doubles the backslash.
const RECORD_BYTES_MAX: u64 = 5 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64 + (4 << 10);

/// Format of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// Key, tab, value: the output of `sieve scan`.
    Lines,
    /// One JSON object per line, with the fields `key`, `value` and optionally `keyspace`.
    Json,
    /// CSV. The first row names the columns `key`, `value` and optionally `keyspace`.
    Csv,
}

/// An entry of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Line of the input where it starts, from 1.
    pub(crate) number: u64,
    /// Keyspace that the record names.
    pub(crate) keyspace: Option<String>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Reads records.
pub(crate) struct RecordReader<R: Read> {
    notation: Notation,
    input: Input<R>,
}

enum Input<R: Read> {
    Lines(Lines<R>),
    /// Lines without values.
    Keys(Lines<R>),
    Json(Lines<R>),
    Csv(Rows<R>),
}

impl<R: Read> RecordReader<R> {
    /// `keys_only`: lines are keys without values.
    pub(crate) fn new(input: R, format: InputFormat, keys_only: bool, notation: Notation) -> Self {
        let lines = |input| Lines { input: BufReader::new(input), number: 0 };
        let input = match format {
            InputFormat::Lines if keys_only => Input::Keys(lines(input)),
            InputFormat::Lines => Input::Lines(lines(input)),
            InputFormat::Json => Input::Json(lines(input)),
            InputFormat::Csv => Input::Csv(Rows::new(input)),
        };
        Self { notation, input }
    }

    /// Returns the next record, `None` at the end of the input.
    ///
    /// # Errors
    ///
    /// [`Error::BadLine`] or [`Error::Input`].
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        let (number, fields) = match &mut self.input {
            Input::Lines(lines) => {
                let Some(line) = lines.next()? else { return Ok(None) };
                (lines.number, split(&line).map_err(|reason| bad_line(lines.number, reason))?)
            }
            Input::Keys(lines) => {
                let Some(line) = lines.next()? else { return Ok(None) };
                (lines.number, only_key(line).map_err(|reason| bad_line(lines.number, reason))?)
            }
            Input::Json(lines) => {
                let Some(line) = lines.next()? else { return Ok(None) };
                let fields = serde_json::from_str(&line);
                (lines.number, fields.map_err(|error| bad_line(lines.number, error.to_string()))?)
            }
            Input::Csv(rows) => {
                let Some(row) = rows.next()? else { return Ok(None) };
                row
            }
        };
        let bytes =
            |text: &str| self.notation.bytes(text).map_err(|reason| bad_line(number, reason));
        let (key, value) = (bytes(&fields.key)?, bytes(&fields.value)?);
        Ok(Some(Record { number, keyspace: fields.keyspace, key, value }))
    }
}

/// A record whose key and value are still text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    keyspace: Option<String>,
    key: String,
    value: String,
}

/// Lines of at most [`RECORD_BYTES_MAX`] bytes.
struct Lines<R> {
    input: BufReader<R>,
    /// Number of the last line, from 1.
    number: u64,
}

impl<R: Read> Lines<R> {
    fn next(&mut self) -> Result<Option<String>> {
        self.number += 1;
        let mut line = String::new();
        let mut bounded = self.input.by_ref().take(RECORD_BYTES_MAX + 1);
        let read = bounded.read_line(&mut line);
        if bounded.limit() == 0 {
            return Err(bad_line(self.number, "the line is longer than the longest entry"));
        }
        match read {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(bad_line(self.number, "the line is not UTF-8"))
            }
            Err(error) => Err(Error::Input(error)),
        }
    }
}

/// Rows of CSV.
struct Rows<R> {
    rows: csv::Reader<Bounded<R>>,
    columns: Option<Columns>,
}

/// Positions of the columns.
#[derive(Debug, Clone, Copy)]
struct Columns {
    keyspace: Option<usize>,
    key: usize,
    value: usize,
}

impl<R: Read> Rows<R> {
    fn new(input: R) -> Self {
        let rows = csv::Reader::from_reader(Bounded { input, left: RECORD_BYTES_MAX });
        Self { rows, columns: None }
    }

    fn next(&mut self) -> Result<Option<(u64, Fields)>> {
        let columns = match self.columns {
            Some(columns) => columns,
            None => {
                let names = self.rows.headers().map_err(bad_row)?;
                if names.is_empty() {
                    return Ok(None);
                }
                *self.columns.insert(Columns::of(names)?)
            }
        };
        // The last record may have used it up.
        self.rows.get_mut().left = RECORD_BYTES_MAX;
        let mut row = csv::StringRecord::new();
        if !self.rows.read_record(&mut row).map_err(bad_row)? {
            return Ok(None);
        }
        let field = |at: usize| row.get(at).unwrap_or_default().to_owned();
        let keyspace = columns.keyspace.map(field).filter(|name| !name.is_empty());
        let number = row.position().map_or(0, csv::Position::line);
        Ok(Some((
            number,
            Fields { keyspace, key: field(columns.key), value: field(columns.value) },
        )))
    }
}

impl Columns {
    fn of(names: &csv::StringRecord) -> Result<Self> {
        let at = |name| names.iter().position(|found| found == name);
        let known = [KEYSPACE, KEY, VALUE].into_iter().filter_map(at).count();
        match (at(KEY), at(VALUE)) {
            (Some(key), Some(value)) if known == names.len() => {
                Ok(Self { keyspace: at(KEYSPACE), key, value })
            }
            _ => Err(bad_line(1, "name the columns `key` and `value`, and perhaps `keyspace`")),
        }
    }
}

/// Reads at most `left` bytes, so that an unterminated quote uses bounded memory.
struct Bounded<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = "the row is longer than the longest entry";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let read = self.input.read(buffer)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

fn bad_line(number: u64, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::BadLine { number, reason: reason.into() }
}

fn bad_row(error: csv::Error) -> Error {
    let number = error.position().map_or(1, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() != io::ErrorKind::InvalidData => {
            Error::Input(error)
        }
        csv::ErrorKind::Io(error) => bad_line(number, error.to_string()),
        csv::ErrorKind::Utf8 { .. } => bad_line(number, "the row is not UTF-8"),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            bad_line(number, format!("{len} fields, and {expected_len} in the first row"))
        }
        _ => bad_line(number, "the row is not CSV"),
    }
}

/// Splits a line into key and value, still escaped.
///
/// Refuses raw tabs and carriage returns, which `sieve scan` never prints: the input probably has
/// another format.
fn split(line: &str) -> Result<Fields, &'static str> {
    let line = line.strip_suffix('\n').unwrap_or(line);
    if line.ends_with('\r') {
        return Err(r"write the carriage return at its end as \r (0d with --hex), or remove it");
    }
    let (key, value) = line.split_once('\t').ok_or("no tab after the key")?;
    if value.contains('\t') {
        return Err(r"a second tab; write a tab in a key or value as \t (09 with --hex)");
    }
    Ok(Fields { keyspace: None, key: key.to_owned(), value: value.to_owned() })
}

/// Returns the key of a line without a value, still escaped.
fn only_key(mut key: String) -> Result<Fields, &'static str> {
    if key.ends_with('\n') {
        key.pop();
    }
    if key.is_empty() {
        return Err("the line is blank; `sieve put STORE '' ''` stores the empty key");
    }
    match key.contains(['\t', '\r']) {
        true => Err(r"write a tab or carriage return in a key as \t or \r (09 or 0d with --hex)"),
        false => Ok(Fields { key, ..Fields::default() }),
    }
}
