//! Formats of entries that `export` writes and `import` reads.

mod output;
mod reader;
mod sink;
mod tables;
mod text;

pub(crate) use output::Output;
pub(crate) use reader::{InputFormat, Record, RecordReader};
pub(crate) use sink::Sink;
pub(crate) use tables::Tables;
pub(crate) use text::{Csv, Json};

/// Fields of a record, as JSON and CSV name them.
const KEYSPACE: &str = "keyspace";
const KEY: &str = "key";
const VALUE: &str = "value";
