//! Writes one long value from a reader, as an ingest of one entry.
//!
//! The value goes to a blob file piece by piece, and is synced with its table before the ingest is
//! placed in the log. What a crash or an error leaves is unlinked as an unfinished ingest is.

use std::{
    io::{self, Read},
    sync::Arc,
};

use bytes::Bytes;

use super::ingest_tables::IngestTables;
use crate::{Error, Result, store::Store};

impl Store {
    /// Adds the only entry of an ingest, whose value of this length is read from `reader`.
    ///
    /// # Errors
    ///
    /// [`Error::ReaderFailed`], [`Error::Io`], [`Error::Closed`].
    pub(crate) fn add_streamed(
        &self,
        tables: &mut IngestTables,
        key: &[u8],
        reader: &mut impl Read,
        value_bytes: u64,
    ) -> Result<()> {
        let failed = |error| reader_failed(key, error);
        tables.add_only(&self.tables, key, value_bytes, |piece| {
            self.tables.check_not_closing()?;
            reader.read_exact(piece).map_err(failed)
        })?;
        expect_end(reader).map_err(failed)
    }
}

/// Reads a value of this length as a whole.
///
/// # Errors
///
/// [`Error::ReaderFailed`].
pub(crate) fn read_whole(
    key: &[u8],
    reader: &mut impl Read,
    value_bytes: usize,
) -> Result<Vec<u8>> {
    let mut value = vec![0; value_bytes];
    let read = reader.read_exact(&mut value).and_then(|()| expect_end(reader));
    read.map_err(|error| reader_failed(key, error)).map(|()| value)
}

/// Checks that `reader` has no more bytes.
fn expect_end(reader: &mut impl Read) -> io::Result<()> {
    match reader.read_exact(&mut [0]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            let text = "the reader has more bytes than the length of the value";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

fn reader_failed(key: &[u8], error: io::Error) -> Error {
    Error::ReaderFailed { key: Bytes::copy_from_slice(key), source: Arc::new(error) }
}
