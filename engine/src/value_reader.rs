//! Readers of single values, in pieces.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    mem,
};

use bytes::Bytes;
use sievedb_sstable::BlobPieces;

use crate::{Error, Result, handle::Handle, read::observer::Unread, table::blobs::Blob};

/// A reader of one value, returned by [`Keyspace::get_reader`](crate::Keyspace::get_reader).
///
/// Reads the value at the time of the reader's creation; later writes have no effect. A reader of a
/// value in a blob file keeps the store open, and the file. Other readers do not.
///
/// A value in a blob file is read in pieces of 128 KiB, each with a checksum. The reader holds one
/// piece in memory, and a second one while it reads. All other values are in memory as a whole, as
/// for [`get`](crate::Keyspace::get). These are short values, values with an expiry, results of
/// merge operands, and values that no flush has written yet.
///
/// # Errors
///
/// A read fails with an [`io::Error`] whose [source](io::Error::get_ref) is an [`Error`]:
/// [`Error::Io`], [`Error::Corrupt`], [`Error::Closed`]. The position is unchanged, and other
/// pieces are readable. A seek before the start fails with
/// [`InvalidInput`](io::ErrorKind::InvalidInput). A read after the end returns 0 bytes.
pub struct ValueReader {
    source: Source,
    value_bytes: u64,
    position: u64,
}

enum Source {
    InMemory(Bytes),
    InPieces(Box<InPieces>),
}

struct InPieces {
    blob: Blob,
    pieces: BlobPieces,
    /// The piece read last.
    piece: Option<(u64, Bytes)>,
    /// Declared after the blob file, which the store unlinks.
    open: Handle,
}

impl ValueReader {
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn new(unread: Unread, open: impl FnOnce() -> Handle) -> Result<Self> {
        let (source, value_bytes) = match unread {
            Unread::Value(value) => (Source::InMemory(value.clone()), value.len() as u64),
            Unread::Blob(blob) => {
                let (pieces, value_bytes) = (blob.pieces()?, blob.value_bytes());
                let in_pieces = InPieces { blob, pieces, piece: None, open: open() };
                (Source::InPieces(Box::new(in_pieces)), value_bytes)
            }
        };
        Ok(Self { source, value_bytes, position: 0 })
    }

    /// Returns the length of the whole value, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.value_bytes
    }

    /// Returns `true` if the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value_bytes == 0
    }
}

impl InPieces {
    /// Returns the bytes from `position`, which is below the length, to the end of its piece.
    fn rest_of_piece(&mut self, position: u64) -> Result<&[u8]> {
        self.open.accept()?;
        let number = position / self.pieces.piece_bytes();
        let within = (position % self.pieces.piece_bytes()) as usize;
        if self.piece.as_ref().is_none_or(|(of, _)| *of != number) {
            // Dropped before the next piece is read, so only one is in memory.
            self.piece = None;
            let read = self.blob.read_piece(&self.pieces, number as usize)?;
            self.piece = Some((number, read));
        }
        let piece = self.piece.as_ref().map_or(&[][..], |(_, piece)| piece);
        Ok(&piece[within.min(piece.len())..])
    }
}

impl Read for ValueReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.value_bytes {
            return Ok(0);
        }
        let from = match &mut self.source {
            Source::InMemory(value) => &value[self.position as usize..],
            Source::InPieces(of) => of.rest_of_piece(self.position).map_err(to_io)?,
        };
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.value_bytes.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl Drop for ValueReader {
    fn drop(&mut self) {
        if let Source::InPieces(of) = &self.source
            && of.open.store().is_forked()
        {
            // A drop of the blob file may take a lock held by a thread of the parent.
            mem::forget(mem::replace(&mut self.source, Source::InMemory(Bytes::new())));
        }
    }
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ValueReader");
        debug.field("len", &self.value_bytes).field("position", &self.position);
        debug.finish_non_exhaustive()
    }
}

fn to_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::Io { source, .. } => source.kind(),
        Error::Corrupt { .. } => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
