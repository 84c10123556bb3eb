//! Long values in pieces, each with a checksum.
//!
//! A value of more than [`PIECE_BYTES`] bytes has several stored blocks: its pieces, then their
//! index. All pieces have the same length, except for a shorter last one.
//!
//! | field         | bytes  | meaning                                                     |
//! |---------------|--------|-------------------------------------------------------------|
//! | `piece_bytes` | varint | length of a piece, at least 4 KiB                           |
//! | `stored`      | varint | length of the stored piece, for each piece                  |
//!
//! So a reader finds any part of the value with two reads, and the writer needs the memory of one
//! piece. New pieces have [`PIECE_BYTES`] bytes.

use std::{io, ops::Range};

use bytes::Bytes;
use sievedb_format::{Corruption, Decoder, Encode, file_header::HEADER_BYTES};

use super::{BlobReference, FOOTER_BYTES};
use crate::{block::stored::Stored, error::ReadError, source::TableSource};

/// Length of a piece, in bytes. Shorter values are in one block.
pub const PIECE_BYTES: usize = 128 << 10;

/// Minimum length of a piece that a reader accepts, in bytes.
const PIECE_BYTES_MIN: u64 = 4 << 10;
/// Maximum length of an index, in bytes. It is not compressed.
const INDEX_BYTES_MAX: u64 = 1 << 20;

const WHAT: &str = "blob";

/// A value that is being written.
#[derive(Debug)]
pub(super) struct OpenValue {
    pub(super) offset: u64,
    pub(super) value_bytes: u64,
    /// Lengths of the stored pieces.
    stored: Vec<u64>,
}

impl OpenValue {
    pub(super) const fn at(offset: u64) -> Self {
        Self { offset, value_bytes: 0, stored: Vec::new() }
    }

    pub(super) fn add(&mut self, piece_bytes: u64, stored_bytes: u64) {
        self.value_bytes += piece_bytes;
        self.stored.push(stored_bytes);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// Returns the index; `None` for one piece.
    pub(super) fn index(&self) -> Option<Vec<u8>> {
        if self.stored.len() < 2 {
            return None;
        }
        let mut index = Vec::new();
        index.put_varint(PIECE_BYTES as u64);
        self.stored.iter().for_each(|&bytes| index.put_varint(bytes));
        Some(index)
    }
}

/// The places of the pieces of a value.
#[derive(Debug)]
pub struct BlobPieces {
    salt: u64,
    value_bytes: u64,
    piece_bytes: u64,
    /// Offset of each piece, and of the end of the last one.
    borders: Vec<u64>,
}

impl BlobReference {
    /// Reads the index of the pieces from the file of the value, which has this salt. A value in
    /// one block is its only piece, and needs no read.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`]; [`ReadError::Corrupt`].
    pub fn pieces(&self, source: &dyn TableSource, salt: u64) -> Result<BlobPieces, ReadError> {
        let &Self { offset, bytes, value_bytes, index_bytes, .. } = self;
        let end = offset.saturating_add(bytes);
        let corrupt = |source| ReadError::Corrupt { offset, source };
        if index_bytes == 0 {
            let borders = vec![offset, end];
            return Ok(BlobPieces { salt, value_bytes, piece_bytes: value_bytes.max(1), borders });
        }
        let out_of_range = |value| corrupt(Corruption::OutOfRange { what: WHAT, value });
        if index_bytes > INDEX_BYTES_MAX.min(bytes) {
            return Err(out_of_range(index_bytes));
        }
        let index_offset = end - index_bytes;
        let index = open_block(source, salt, index_offset..end)?;
        let index = index.content(INDEX_BYTES_MAX, None).map_err(corrupt)?;
        let mut decoder = Decoder::new(&index);
        let piece_bytes = decoder.varint(WHAT).map_err(corrupt)?;
        if piece_bytes < PIECE_BYTES_MIN {
            return Err(out_of_range(piece_bytes));
        }
        let mut borders = vec![offset];
        let mut border = offset;
        while !decoder.rest().is_empty() {
            let stored = decoder.varint(WHAT).map_err(corrupt)?;
            border = border.checked_add(stored).ok_or_else(|| out_of_range(stored))?;
            borders.push(border);
        }
        let expected = value_bytes.div_ceil(piece_bytes);
        let found = borders.len() as u64 - 1;
        if found != expected || border != index_offset {
            return Err(corrupt(Corruption::Mismatch { what: WHAT, expected, found }));
        }
        Ok(BlobPieces { salt, value_bytes, piece_bytes, borders })
    }
}

impl BlobPieces {
    /// Returns the number of pieces, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.borders.len() - 1
    }

    /// Returns the length of every piece but the last one, at least 1.
    #[must_use]
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Reads piece `number`, with one read.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`], also if there is no such piece; [`ReadError::Corrupt`] if the file does
    /// not have the piece there.
    pub fn read(&self, source: &dyn TableSource, number: usize) -> Result<Bytes, ReadError> {
        let none = || ReadError::Io(io::ErrorKind::UnexpectedEof.into());
        let borders = self.borders.get(number..).and_then(<[u64]>::first_chunk);
        let &[start, end] = borders.ok_or_else(none)?;
        let left = self.value_bytes.saturating_sub(number as u64 * self.piece_bytes);
        read_block(source, self.salt, start..end, left.min(self.piece_bytes))
    }
}

/// Reads the block at `place`, whose content has this length.
pub(super) fn read_block(
    source: &dyn TableSource,
    salt: u64,
    place: Range<u64>,
    content_bytes: u64,
) -> Result<Bytes, ReadError> {
    let corrupt = |source| ReadError::Corrupt { offset: place.start, source };
    let stored = open_block(source, salt, place.clone())?;
    let content = stored.content(content_bytes, None).map_err(corrupt)?;
    if content.len() as u64 != content_bytes {
        let (expected, found) = (content_bytes, content.len() as u64);
        return Err(corrupt(Corruption::Mismatch { what: WHAT, expected, found }));
    }
    Ok(content)
}

fn open_block(source: &dyn TableSource, salt: u64, place: Range<u64>) -> Result<Stored, ReadError> {
    let Range { start, end } = place;
    let corrupt = |source| ReadError::Corrupt { offset: start, source };
    let values_end = source.len().saturating_sub(FOOTER_BYTES as u64);
    let is_within = start >= HEADER_BYTES as u64 && start <= end && end <= values_end;
    let length = usize::try_from(end.saturating_sub(start)).ok().filter(|_| is_within);
    let out_of_range = || corrupt(Corruption::OutOfRange { what: WHAT, value: start });
    let read = source.read_at(start, length.ok_or_else(out_of_range)?).map_err(ReadError::Io)?;
    Stored::open(read, salt, start).map_err(corrupt)
}
