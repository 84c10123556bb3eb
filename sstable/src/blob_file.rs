//! Blob files: long values outside of tables.
//!
//! A table entry of kind [`BlobReference`](sievedb_format::Kind::BlobReference) names the place of
//! its value. Compactions copy the entry and not the value. `testdata/blob_file` pins these bytes.
//!
//! | offset   | bytes | field    | meaning                                              |
//! |----------|-------|----------|------------------------------------------------------|
//! | 0        | 64    | `header` | [`sievedb_format::file_header`], of kind `Blobs`     |
//! | 64       | n     | values   | stored blocks ([`crate::block`]), one or more each   |
//! | 64 + n   | 28    | `footer` | see below                                            |
//!
//! A value is compressed like a block, without a dictionary. The checksum of a value covers the
//! salt of the file and the offset of the value, so a misplaced value fails the check. A value
//! above [`PIECE_BYTES`] is [in pieces](pieces), so writers and readers need memory for one piece
//! only.
//!
//! | bytes | field         | meaning                                                      |
//! |-------|---------------|--------------------------------------------------------------|
//! | 8     | `salt`        | random number of the file                                    |
//! | 8     | `values`      | number of values                                             |
//! | 8     | `value_bytes` | length of all values, uncompressed                           |
//! | 4     | `checksum`    | CRC-32 of store id, file id, and the three fields before     |
//!
//! # Reference
//!
//! The stored value of an entry has four varints: id of the blob file, offset and length of the
//! stored value (types and checksums included), length of the value. A value in pieces has a fifth
//! varint, the length of the index of its pieces.

pub mod pieces;

use std::{io, sync::Arc};

use bytes::Bytes;
use sievedb_format::{
    Annotation, Corruption, Decoder, Encode, FileHeader, FileKind, VALUE_BYTES_MAX,
    checksum::crc32, file_header::HEADER_BYTES,
};

use self::pieces::OpenValue;
pub use self::pieces::{BlobPieces, PIECE_BYTES};
use crate::{
    block::{
        BlockHandle,
        stored::{Sealer, TRAILER_BYTES},
    },
    error::ReadError,
    options::Compression,
    output::Output,
    source::{TableSink, TableSource},
};

/// Length of the footer, in bytes.
const FOOTER_BYTES: usize = 28;

/// Identity of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobIdentity {
    /// Random number of the store.
    pub store_id: u128,
    /// Number of the file.
    pub file_id: u64,
    /// Random number of the file, covered by the checksums of its values.
    pub salt: u64,
}

/// A blob file, and the number of its bytes that one table refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobUse {
    /// Number of the file.
    pub file_id: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// xxh3_64 of the file.
    pub checksum: u64,
    /// Random number of the file.
    pub salt: u64,
    /// Stored bytes of the values that the table refers to.
    pub used_bytes: u64,
}

impl BlobUse {
    /// Appends the encoded form: id, length and used bytes (varints), checksum and salt (u64).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.file_id);
        out.put_varint(self.bytes);
        out.put_varint(self.used_bytes);
        out.put(&self.checksum.to_le_bytes());
        out.put(&self.salt.to_le_bytes());
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated, or the table uses more than the file has.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, Corruption> {
        let what = "blob file of a table";
        let (file_id, bytes) = (decoder.varint(what)?, decoder.varint(what)?);
        let used_bytes = decoder.varint(what)?;
        if used_bytes > bytes {
            return Err(Corruption::OutOfRange { what, value: used_bytes });
        }
        let (checksum, salt) = (decoder.u64(what)?, decoder.u64(what)?);
        Ok(Self { file_id, bytes, checksum, salt, used_bytes })
    }

    /// Returns the bytes of the file that are values.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.bytes.saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64)
    }
}

/// Place of a value in a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobReference {
    /// Number of the blob file.
    pub file_id: u64,
    /// Offset of the stored value.
    pub offset: u64,
    /// Length of the stored value, in bytes: types, checksums and index included.
    pub bytes: u64,
    /// Length of the value, in bytes.
    pub value_bytes: u64,
    /// Length of the stored index, in bytes, of a value [in pieces](pieces); 0 for one block.
    pub index_bytes: u64,
}

impl BlobReference {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for field in [self.file_id, self.offset, self.bytes, self.value_bytes] {
            out.put_varint(field);
        }
        if self.index_bytes > 0 {
            out.put_varint(self.index_bytes);
        }
    }

    /// Decodes the stored value of an entry.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are not a reference, or the value exceeds [`VALUE_BYTES_MAX`],
    /// or its block the value.
    pub fn decode(stored: &[u8]) -> Result<Self, Corruption> {
        let what = "blob reference";
        let mut decoder = Decoder::new(stored);
        let (file_id, offset) = (decoder.varint(what)?, decoder.varint(what)?);
        let (bytes, value_bytes) = (decoder.varint(what)?, decoder.varint(what)?);
        let is_in_pieces = !decoder.rest().is_empty();
        let index_bytes = if is_in_pieces { decoder.varint(what)? } else { 0 };
        decoder.finish(what)?;
        BlockHandle::new(offset, bytes)?;
        if value_bytes > VALUE_BYTES_MAX as u64 {
            return Err(Corruption::OutOfRange { what, value: value_bytes });
        }
        // A block is compressed only if that makes it shorter.
        if !is_in_pieces && bytes > value_bytes + TRAILER_BYTES as u64 {
            return Err(Corruption::OutOfRange { what, value: bytes });
        }
        if is_in_pieces && (index_bytes == 0 || index_bytes >= bytes) {
            return Err(Corruption::OutOfRange { what, value: index_bytes });
        }
        Ok(Self { file_id, offset, bytes, value_bytes, index_bytes })
    }

    /// Reads the value from its file, which has this salt.
    ///
    /// Takes one read, or one per piece and one for the index. Allocates at most the bytes of the
    /// value and of a piece.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`]; [`ReadError::Corrupt`] if the file has no such value there.
    pub fn read(&self, source: &dyn TableSource, salt: u64) -> Result<Bytes, ReadError> {
        let &Self { offset, bytes, value_bytes, index_bytes, .. } = self;
        if index_bytes == 0 {
            let place = offset..offset.saturating_add(bytes);
            return pieces::read_block(source, salt, place, value_bytes);
        }
        let pieces = self.pieces(source, salt)?;
        let mut value = Vec::with_capacity(value_bytes as usize);
        for number in 0..pieces.len() {
            value.extend_from_slice(&pieces.read(source, number)?);
        }
        Ok(value.into())
    }
}

/// Writes a blob file.
///
/// After an error of the sink neither the file nor the writer is usable.
#[derive(Debug)]
pub struct BlobWriter<S> {
    out: Output<S>,
    identity: BlobIdentity,
    sealer: Sealer,
    values: u64,
    value_bytes: u64,
}

impl<S: TableSink> BlobWriter<S> {
    /// Starts a blob file at the start of `sink`. Appends shorter than `buffer_bytes` are buffered.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn new(
        sink: S,
        identity: BlobIdentity,
        compression: Compression,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        let BlobIdentity { store_id, file_id, salt } = identity;
        let mut out = Output::new(sink, buffer_bytes);
        out.append(&FileHeader::new(FileKind::Blobs, store_id, file_id).encode())?;
        let compression = match compression {
            Compression::Zstd { level, .. } => Compression::Zstd { level, dictionary_bytes: 0 },
            plain => plain,
        };
        let sealer = Sealer::new(salt, compression);
        Ok(Self { out, identity, sealer, values: 0, value_bytes: 0 })
    }

    /// Returns the memory of the writer, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.out.memory_bytes() + self.sealer.memory_bytes()
    }

    /// Adds a value, and returns its place.
    ///
    /// # Errors
    ///
    /// Those of the sink; [`io::ErrorKind::InvalidInput`] for a value above [`VALUE_BYTES_MAX`].
    pub fn add(&mut self, value: &[u8]) -> io::Result<BlobReference> {
        check_length(value.len() as u64)?;
        let mut open = OpenValue::at(self.out.offset());
        value.chunks(PIECE_BYTES).try_for_each(|piece| self.add_piece(&mut open, piece))?;
        self.end_value(open)
    }

    /// Adds a value of this length. `fill` returns it piece by piece, each of [`PIECE_BYTES`]
    /// except for the last one. Takes the memory of one piece.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), converted by `convert`, and those of `fill`. After an error of `fill`
    /// the file has bytes that no reference names, and the writer remains usable.
    pub fn add_from<E>(
        &mut self,
        value_bytes: u64,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
        convert: impl Fn(io::Error) -> E,
    ) -> Result<BlobReference, E> {
        check_length(value_bytes).map_err(&convert)?;
        let mut open = OpenValue::at(self.out.offset());
        let piece_bytes = |left: u64| left.min(PIECE_BYTES as u64) as usize;
        let mut buffer = vec![0; piece_bytes(value_bytes)];
        let mut left = value_bytes;
        while left > 0 {
            let piece = &mut buffer[..piece_bytes(left)];
            fill(piece)?;
            self.add_piece(&mut open, piece).map_err(&convert)?;
            left -= piece.len() as u64;
        }
        self.end_value(open).map_err(convert)
    }

    fn add_piece(&mut self, open: &mut OpenValue, piece: &[u8]) -> io::Result<()> {
        let (stored, trailer) = self.sealer.seal(self.out.offset(), piece);
        let handle = self.out.append_block(stored, &trailer)?;
        open.add(piece.len() as u64, handle.bytes);
        Ok(())
    }

    fn end_value(&mut self, mut open: OpenValue) -> io::Result<BlobReference> {
        if open.is_empty() {
            self.add_piece(&mut open, &[])?;
        }
        let mut index_bytes = 0;
        if let Some(index) = open.index() {
            let (stored, trailer) = self.sealer.seal_raw(self.out.offset(), &index);
            index_bytes = self.out.append_block(stored, &trailer)?.bytes;
        }
        self.values += 1;
        self.value_bytes += open.value_bytes;
        let OpenValue { offset, value_bytes, .. } = open;
        let bytes = self.out.offset() - offset;
        Ok(BlobReference {
            file_id: self.identity.file_id,
            offset,
            bytes,
            value_bytes,
            index_bytes,
        })
    }

    /// Returns the length of the file so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.out.offset()
    }

    /// Appends the buffered bytes to the sink.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the footer. Does not sync the sink. Returns the sink, and the file with 0 used bytes.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn finish(mut self) -> io::Result<(S, BlobUse)> {
        self.out.append(&footer(self.identity, self.values, self.value_bytes))?;
        let BlobIdentity { file_id, salt, .. } = self.identity;
        let (sink, bytes, checksum) = self.out.finish()?;
        Ok((sink, BlobUse { file_id, bytes, checksum, salt, used_bytes: 0 }))
    }
}

/// Refuses a value whose reference no reader accepts.
fn check_length(value_bytes: u64) -> io::Result<()> {
    if value_bytes > VALUE_BYTES_MAX as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the value is too long"));
    }
    Ok(())
}

fn footer(identity: BlobIdentity, values: u64, value_bytes: u64) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    for field in [identity.salt, values, value_bytes] {
        footer.put(&field.to_le_bytes());
    }
    let checksum = footer_checksum(identity.store_id, identity.file_id, &footer);
    footer.put_u32(checksum);
    footer
}

fn footer_checksum(store_id: u128, file_id: u64, fields: &[u8]) -> u32 {
    crc32(&[&store_id.to_le_bytes(), &file_id.to_le_bytes(), fields])
}

/// Checks, with one read, that the file has this length and is the complete blob file `identity`.
///
/// # Errors
///
/// [`ReadError::Io`]; [`ReadError::Corrupt`].
pub fn check_blob_file(
    source: &dyn TableSource,
    identity: BlobIdentity,
    bytes: u64,
) -> Result<(), ReadError> {
    let what = "blob file";
    let corrupt = |offset, source| ReadError::Corrupt { offset, source };
    let found = source.len();
    if found != bytes {
        return Err(corrupt(0, Corruption::Mismatch { what, expected: bytes, found }));
    }
    let Some(offset) = bytes.checked_sub(FOOTER_BYTES as u64) else {
        let need = (HEADER_BYTES + FOOTER_BYTES) as u64;
        return Err(corrupt(0, Corruption::Truncated { what, need, have: bytes }));
    };
    let read = source.read_at(offset, FOOTER_BYTES).map_err(ReadError::Io)?;
    let decode = |source| corrupt(offset, source);
    let mut decoder = Decoder::new(&read);
    let salt = decoder.u64(what).map_err(decode)?;
    let fields = &read[..FOOTER_BYTES - size_of::<u32>()];
    let computed = footer_checksum(identity.store_id, identity.file_id, fields);
    decoder.take(what, 2 * size_of::<u64>()).map_err(decode)?;
    let stored = decoder.u32(what).map_err(decode)?;
    if stored != computed || salt != identity.salt {
        let (stored, computed) = (stored.into(), computed.into());
        return Err(decode(Corruption::Checksum { what, stored, computed }));
    }
    Ok(())
}

/// Checks the header of a blob file. Reads of values do not need the header.
///
/// # Errors
///
/// [`ReadError::Io`]; [`ReadError::Corrupt`].
pub fn check_blob_header(
    source: &dyn TableSource,
    identity: BlobIdentity,
) -> Result<(), ReadError> {
    let header = source.read_at(0, HEADER_BYTES).map_err(ReadError::Io)?;
    let BlobIdentity { store_id, file_id, .. } = identity;
    let checked = FileHeader::new(FileKind::Blobs, store_id, file_id).check(&header);
    checked.map(drop).map_err(|source| ReadError::Corrupt { offset: 0, source })
}

/// Describes header and footer of a blob file as text, even if the file is damaged. Describes all
/// values as one field, because only references in tables have their offsets.
#[must_use]
pub fn describe_blob_file(source: &Arc<dyn TableSource>) -> Annotation {
    let mut annotation = Annotation::new();
    let header = HEADER_BYTES as u64;
    let end = source.len();
    let mut file_ids = None;
    match source.read_at(0, HEADER_BYTES).map(|bytes| FileHeader::decode(&bytes)) {
        Ok(Ok(found)) => {
            found.describe(&mut annotation);
            file_ids = Some((found.store_id, found.file_id));
        }
        Ok(Err(error)) => {
            annotation.field(0..header.min(end), "header", format_args!("damaged: {error}"));
        }
        Err(error) => {
            annotation.field(0..header.min(end), "header", format_args!("unreadable: {error}"));
        }
    }
    let start = end.saturating_sub(FOOTER_BYTES as u64).max(header.min(end));
    annotation.field(
        header.min(end)..start,
        "values",
        format_args!("{} bytes", start - header.min(end)),
    );
    let read = usize::try_from(end - start).map(|bytes| source.read_at(start, bytes));
    match read {
        Ok(Ok(footer)) if footer.len() == FOOTER_BYTES => {
            let number = |at: usize| {
                footer[at..at + 8].iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte))
            };
            annotation.field(start..start + 8, "salt", format_args!("{:016x}", number(0)));
            annotation.field(start + 8..start + 16, "values", number(8));
            annotation.field(start + 16..start + 24, "value_bytes", number(16));
            let is_good = file_ids.is_some_and(|(store_id, file_id)| {
                let sum = footer_checksum(store_id, file_id, &footer[..24]);
                sum.to_le_bytes() == footer[24..]
            });
            let meaning = if is_good { "good" } else { "damaged" };
            annotation.field(start + 24..end, "checksum", meaning);
        }
        _ => annotation.field(start..end, "footer", "unreadable"),
    }
    annotation
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
