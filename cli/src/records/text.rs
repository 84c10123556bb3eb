//! JSON lines and CSV.

use std::io::Write as _;

use serde::Serialize;

use super::{KEY, KEYSPACE, Output, Sink, VALUE};
use crate::{error::Result, text::Notation};

/// Writes one JSON object per line.
pub(crate) struct Json<'a> {
    output: Output<'a>,
    notation: Notation,
    names_keyspaces: bool,
    keyspace: String,
}

/// The fields of a line.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    keyspace: Option<&'a str>,
    key: String,
    value: String,
}

impl<'a> Json<'a> {
    /// `names_keyspaces`: each record has the name of its keyspace.
    pub(crate) fn new(output: Output<'a>, notation: Notation, names_keyspaces: bool) -> Self {
        Self { output, notation, names_keyspaces, keyspace: String::new() }
    }
}

impl Sink for Json<'_> {
    fn keyspace(&mut self, name: &str) -> Result<()> {
        name.clone_into(&mut self.keyspace);
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let line = Line {
            keyspace: self.names_keyspaces.then_some(&self.keyspace),
            key: self.notation.write(key),
            value: self.notation.write(value),
        };
        serde_json::to_writer(&mut self.output, &line).map_err(std::io::Error::from)?;
        Ok(self.output.write_all(b"\n")?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.output.finish()
    }
}

/// Writes a row of names, and a row for each entry.
pub(crate) struct Csv<'a> {
    rows: csv::Writer<Output<'a>>,
    notation: Notation,
    names_keyspaces: bool,
    keyspace: String,
}

impl<'a> Csv<'a> {
    /// `names_keyspaces`: each record has the name of its keyspace.
    pub(crate) fn new(
        output: Output<'a>,
        notation: Notation,
        names_keyspaces: bool,
    ) -> Result<Self> {
        let rows = csv::Writer::from_writer(output);
        let mut sink = Self { rows, notation, names_keyspaces, keyspace: KEYSPACE.to_owned() };
        sink.row(KEY, VALUE)?;
        Ok(sink)
    }

    fn row(&mut self, key: &str, value: &str) -> Result<()> {
        let written = match self.names_keyspaces {
            true => self.rows.write_record([&self.keyspace, key, value]),
            false => self.rows.write_record([key, value]),
        };
        // The conversion of `csv` would hide a closed pipe.
        Ok(written.map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error,
            kind => std::io::Error::other(format!("{kind:?}")),
        })?)
    }
}

impl Sink for Csv<'_> {
    fn keyspace(&mut self, name: &str) -> Result<()> {
        name.clone_into(&mut self.keyspace);
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (self.notation.write(key), self.notation.write(value));
        self.row(&key, &value)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.rows.into_inner().map_err(csv::IntoInnerError::into_error)?.finish()
    }
}
