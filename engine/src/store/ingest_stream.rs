//! Writes one long value from a reader, as an ingest of one entry.
//!
//! The value is written to a blob file in pieces, and synced with its table before the ingest is
//! placed in the log. Files left by a crash or an error are unlinked like those of an unfinished
//! ingest.

use std::{
    io::{self, Read},
    sync::Arc,
};

use bytes::Bytes;

use super::ingest_tables::IngestTables;
use crate::{Error, Result, store::Store};

impl Store {
    /// Adds the only entry of an ingest, whose value of this length is read from `reader`, and ends
    /// its table. Waits for a slot.
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
        // Until the end of the table: a stream that is delayed or installs holds none.
        let budget_bytes = self.tables.memory.pool_bytes();
        let _slot = self.streams.take(budget_bytes, || self.tables.check_not_closing())?;
        let failed = |error| reader_failed(key, error);
        tables.add_only(&self.tables, key, value_bytes, |piece| {
            self.tables.check_not_closing()?;
            reader.read_exact(piece).map_err(failed)
        })?;
        expect_end(reader).map_err(failed)?;
        self.end_ingested(tables)
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
    loop {
        match reader.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let text = "the reader has more bytes than the length of the value";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Also an unexpected end, for example of a compressed stream behind its last byte.
            Err(error) => return Err(error),
        }
    }
}

fn reader_failed(key: &[u8], error: io::Error) -> Error {
    Error::ReaderFailed { key: Bytes::copy_from_slice(key), source: Arc::new(error) }
}
