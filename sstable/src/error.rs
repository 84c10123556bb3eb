//! The error of reading a table.

use std::{error, fmt, io};

use sievedb_format::Corruption;

/// Error of reading a table. The caller adds the path.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum ReadError {
    /// The source failed.
    Io(io::Error),
    /// The bytes violate the format near byte `offset`: the file is damaged.
    Corrupt { offset: u64, source: Corruption },
}

impl ReadError {
    /// Returns a function that adds the offset to an error of a decoder.
    pub(crate) fn corrupt(offset: u64) -> impl Fn(Corruption) -> Self {
        move |source| Self::Corrupt { offset, source }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `source()` returns the cause; repeating it would print it twice.
        match self {
            Self::Io(_) => write!(f, "cannot read the table"),
            Self::Corrupt { offset, .. } => write!(f, "the table is corrupt near byte {offset}"),
        }
    }
}

impl error::Error for ReadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::Corrupt { source, .. } => Some(source),
        }
    }
}
