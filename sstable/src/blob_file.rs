//! Blob files: long values outside of tables.
//!
//! A table entry of kind [`BlobReference`](sievedb_format::Kind::BlobReference) names the place of
//! its value. Compactions copy the entry and not the value. `testdata/blob_file` pins these bytes.
//!
//! | offset   | bytes | field    | meaning                                              |
//! |----------|-------|----------|------------------------------------------------------|
//! | 0        | 64    | `header` | [`sievedb_format::file_header`], of kind `Blobs`     |
//! | 64       | n     | values   | one stored block ([`crate::block`]) for each value   |
//! | 64 + n   | 28    | `footer` | see below                                            |
//!
//! A value is compressed as a block is, without a dictionary. Its checksum covers the salt of the
//! file and its offset, so that a misplaced value never passes.
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
//! stored value (type and checksum included), length of the value.

use std::{io, sync::Arc};

use bytes::Bytes;
use sievedb_format::{
    Annotation, Corruption, Decoder, Encode, FileHeader, FileKind, VALUE_BYTES_MAX,
    checksum::crc32, file_header::HEADER_BYTES,
};

use crate::{
    block::{
        BlockHandle,
        stored::{Sealer, Stored},
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

/// A blob file, and how much of it one table refers to.
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
    /// Length of the stored value, in bytes: type and checksum included.
    pub bytes: u64,
    /// Length of the value, in bytes.
    pub value_bytes: u64,
}

impl BlobReference {
    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for field in [self.file_id, self.offset, self.bytes, self.value_bytes] {
            out.put_varint(field);
        }
    }

    /// Decodes the stored value of an entry.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are no reference, or the value is longer than a value may be.
    pub fn decode(stored: &[u8]) -> Result<Self, Corruption> {
        let what = "blob reference";
        let mut decoder = Decoder::new(stored);
        let (file_id, offset) = (decoder.varint(what)?, decoder.varint(what)?);
        let (bytes, value_bytes) = (decoder.varint(what)?, decoder.varint(what)?);
        decoder.finish(what)?;
        BlockHandle::new(offset, bytes)?;
        if value_bytes > VALUE_BYTES_MAX as u64 {
            return Err(Corruption::OutOfRange { what, value: value_bytes });
        }
        Ok(Self { file_id, offset, bytes, value_bytes })
    }

    /// Reads the value from its file, which has this salt, by one access. Allocates at most the
    /// bytes of the file and of the value.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`]; [`ReadError::Corrupt`] if the file has no such value there.
    pub fn read(&self, source: &dyn TableSource, salt: u64) -> Result<Bytes, ReadError> {
        let &Self { offset, bytes, value_bytes, .. } = self;
        let corrupt = |source| ReadError::Corrupt { offset, source };
        let what = "blob";
        let end = source.len().saturating_sub(FOOTER_BYTES as u64);
        let within = offset >= HEADER_BYTES as u64 && offset.saturating_add(bytes) <= end;
        let length = usize::try_from(bytes).ok().filter(|_| within);
        let length =
            length.ok_or_else(|| corrupt(Corruption::OutOfRange { what, value: offset }))?;
        let read = source.read_at(offset, length).map_err(ReadError::Io)?;
        let stored = Stored::open(read, salt, offset).map_err(corrupt)?;
        let value = stored.content(value_bytes, None).map_err(corrupt)?;
        if value.len() as u64 != value_bytes {
            let found = value.len() as u64;
            return Err(corrupt(Corruption::Mismatch { what, expected: value_bytes, found }));
        }
        Ok(value)
    }
}

/// Writes a blob file.
///
/// After an error neither the file nor the writer is usable.
#[derive(Debug)]
pub struct BlobWriter<S> {
    out: Output<S>,
    identity: BlobIdentity,
    sealer: Sealer,
    values: u64,
    value_bytes: u64,
}

impl<S: TableSink> BlobWriter<S> {
    /// Starts a blob file at the start of `sink`. Shorter appends than `buffer_bytes` are
    /// buffered.
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
    /// Those of the sink.
    pub fn add(&mut self, value: &[u8]) -> io::Result<BlobReference> {
        let offset = self.out.offset();
        let (stored, trailer) = self.sealer.seal(offset, value);
        let BlockHandle { offset, bytes } = self.out.append_block(stored, &trailer)?;
        let value_bytes = value.len() as u64;
        self.values += 1;
        self.value_bytes += value_bytes;
        Ok(BlobReference { file_id: self.identity.file_id, offset, bytes, value_bytes })
    }

    /// Returns the length of the file so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.out.offset()
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

/// Checks by one read that the file has this length and is the blob file `identity`, whole.
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

/// Checks the header of a blob file, which no read of a value needs.
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

/// Describes header and footer of a blob file in text, also of a damaged one. References in tables
/// know where values begin.
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
mod tests {
    use super::*;

    const IDENTITY: BlobIdentity = BlobIdentity { store_id: 1 << 64, file_id: 9, salt: 3 };

    fn file(values: &[&[u8]], compression: Compression) -> (Bytes, Vec<BlobReference>, BlobUse) {
        let mut writer = BlobWriter::new(Vec::new(), IDENTITY, compression, 1 << 10)
            .expect("a vector does not fail");
        let references =
            values.iter().map(|value| writer.add(value).expect("a vector does not fail")).collect();
        let (bytes, file) = writer.finish().expect("a vector does not fail");
        assert_eq!(file.bytes, bytes.len() as u64);
        (bytes.into(), references, file)
    }

    #[test]
    fn values_return() {
        let (short, long, repeated) = ([7; 3], [8; 5000], b"abc".repeat(9000));
        let values: [&[u8]; 4] = [b"", &short, &long, &repeated];
        for compression in [Compression::None, Compression::Lz4] {
            let (bytes, references, used) = file(&values, compression);
            assert!(check_blob_file(&bytes, IDENTITY, used.bytes).is_ok());
            assert!(check_blob_header(&bytes, IDENTITY).is_ok());
            for (reference, value) in references.iter().zip(values) {
                let mut stored = Vec::new();
                reference.encode(&mut stored);
                assert_eq!(BlobReference::decode(&stored), Ok(*reference));
                assert_eq!(reference.read(&bytes, IDENTITY.salt).unwrap(), value);
            }
            assert_eq!(bytes.len() < 5000, compression == Compression::Lz4);
        }
    }

    #[test]
    fn damage_is_detected() {
        let (good, references, used) = file(&[&[5; 40], &[6; 50]], Compression::None);
        for at in 0..good.len() {
            let mut bytes = good.to_vec();
            bytes[at] ^= 1 << (at % 8);
            let bytes = Bytes::from(bytes);
            let found = check_blob_file(&bytes, IDENTITY, used.bytes)
                .and_then(|()| check_blob_header(&bytes, IDENTITY))
                .is_err();
            let read = |at: usize| references[at].read(&bytes, IDENTITY.salt).is_err();
            assert!(found || read(0) || read(1), "flipped at {at}");
            let cut = good.slice(..at);
            assert!(check_blob_file(&cut, IDENTITY, used.bytes).is_err(), "truncated at {at}");
            for reference in &references {
                // No byte is missing, or an error.
                let _ = reference.read(&cut, IDENTITY.salt);
            }
        }
    }

    #[test]
    fn a_reference_to_another_place_file_or_length_is_refused() {
        let (bytes, references, used) = file(&[&[5; 40], &[5; 40]], Compression::None);
        let first = references[0];
        let cases = [
            BlobReference { offset: first.offset + 1, ..first },
            BlobReference { offset: references[1].offset, bytes: first.bytes - 1, ..first },
            BlobReference { value_bytes: 39, ..first },
            BlobReference { value_bytes: 41, ..first },
            BlobReference { offset: 0, ..first },
            BlobReference { offset: used.bytes - 10, ..first },
            BlobReference { bytes: u64::MAX - first.offset, ..first },
        ];
        for reference in cases {
            assert!(reference.read(&bytes, IDENTITY.salt).is_err(), "{reference:?}");
        }
        assert!(first.read(&bytes, 4).is_err(), "another salt");
        let others = [
            BlobIdentity { store_id: 1, ..IDENTITY },
            BlobIdentity { file_id: 8, ..IDENTITY },
            BlobIdentity { salt: 4, ..IDENTITY },
        ];
        for other in others {
            assert!(check_blob_file(&bytes, other, used.bytes).is_err(), "{other:?}");
        }
    }

    #[test]
    fn formats_of_references_and_uses_are_checked() {
        let used = BlobUse { file_id: 7, bytes: 900, checksum: 1, salt: 2, used_bytes: 900 };
        let mut bytes = Vec::new();
        used.encode(&mut bytes);
        let decode = |bytes: &[u8]| BlobUse::decode(&mut Decoder::new(bytes));
        assert_eq!(decode(&bytes), Ok(used));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
        }
        let mut bytes = Vec::new();
        BlobUse { used_bytes: 901, ..used }.encode(&mut bytes);
        assert!(decode(&bytes).is_err(), "more than the file has");
        for stored in [&[][..], &[1, 2, 3], &[1, 64, 9, 3, 0], &[1, 64, 4, 0]] {
            assert!(BlobReference::decode(stored).is_err(), "{stored:?}");
        }
        let mut stored = Vec::new();
        let value_bytes = VALUE_BYTES_MAX as u64 + 1;
        BlobReference { file_id: 1, offset: 64, bytes: 9, value_bytes }.encode(&mut stored);
        assert!(BlobReference::decode(&stored).is_err(), "too long");
    }
}
