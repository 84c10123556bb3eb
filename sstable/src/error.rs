//! Why a table could not be read.

use std::{error, fmt, io};

use sievedb_format::Corruption;

/// Why a table could not be read. Whoever knows the path adds it.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum ReadError {
    /// The source failed.
    Io(io::Error),
    /// The table's bytes break its format near `offset`. Never the caller's fault.
    Corrupt { offset: u64, source: Corruption },
}

impl ReadError {
    /// Adds the place to what a decoder said.
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
        // `source()` tells the cause; a message that repeats it prints it twice.
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
