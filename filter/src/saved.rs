//! The saved form of standalone filters: an envelope with a checksum around the payload.
//!
//! Integers are little-endian. `testdata/saved` pins these bytes.
//!
//! | offset | bytes | field        | meaning                                                    |
//! |--------|-------|--------------|------------------------------------------------------------|
//! | 0      | 8     | `magic`      | `SieveFlt`                                                 |
//! | 8      | 1     | `kind`       | a [`SavedKind`]                                            |
//! | 9      | 1     | `version`    | 1                                                          |
//! | 10     | 6     |              | zero                                                       |
//! | 16     | 8     | `hash_check` | hash of `SieveDB filter` by the hasher of the filter       |
//! | 24     | 8     | `n`          | bytes of the payload                                       |
//! | 32     | n     | `payload`    | by kind; see each structure                                |
//! | 32 + n | 4     | `crc32`      | CRC-32 (IEEE) of all bytes before                          |
//!
//! `hash_check` detects a different hasher, with which the filter would have false negatives. The
//! hasher is not saved: pass the same one when loading.

use alloc::vec::Vec;
use core::hash::BuildHasher;
#[cfg(feature = "std")]
use std::io::{self, Read as _};

use crate::decode_error::DecodeError;
use crate::filter::KeyFilter;
use crate::hash::hash_with;

const MAGIC: [u8; 8] = *b"SieveFlt";
const VERSION: u8 = 1;
/// Bytes before the payload.
const HEADER_BYTES: usize = 32;
const CRC_BYTES: usize = size_of::<u32>();

/// The kind of a saved structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum SavedKind {
    /// [`BloomFilter`](crate::standalone::BloomFilter) or
    /// [`AtomicBloomFilter`](crate::standalone::AtomicBloomFilter).
    Bloom = 1,
    /// [`PartitionedBloom`](crate::standalone::PartitionedBloom).
    PartitionedBloom = 2,
    /// [`CountingBloom`](crate::standalone::CountingBloom).
    CountingBloom = 3,
    /// [`ScalableBloom`](crate::standalone::ScalableBloom).
    ScalableBloom = 4,
    /// [`CuckooFilter`](crate::standalone::CuckooFilter).
    Cuckoo = 5,
    /// [`CountMinSketch`](crate::standalone::CountMinSketch).
    CountMin = 6,
}

/// A structure with a saved form. Sealed: only [standalone filters](crate::standalone) implement
/// it.
pub trait Saved: Payload {
    /// Returns the saved form: the payload plus 36 bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer { bytes: Vec::with_capacity(HEADER_BYTES) };
        writer.bytes.extend(MAGIC);
        writer.bytes.extend([Self::KIND as u8, VERSION, 0, 0, 0, 0, 0, 0]);
        writer.u64(hash_check(self.hasher()));
        writer.u64(0); // The length, set below.
        self.write_payload(&mut writer);
        let mut bytes = writer.bytes;
        let n = (bytes.len() - HEADER_BYTES) as u64;
        bytes[24..HEADER_BYTES].copy_from_slice(&n.to_le_bytes());
        let crc32 = crc32fast::hash(&bytes);
        bytes.extend(crc32.to_le_bytes());
        bytes
    }

    /// Reads a saved form that was written with the default hasher.
    ///
    /// # Errors
    ///
    /// As [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError>
    where
        Self::Hasher: Default,
    {
        Self::from_bytes_with_hasher(bytes, Self::Hasher::default())
    }

    /// Reads a saved form. `hasher` must hash like that of the saved filter.
    ///
    /// Allocates at most the memory of the saved filter, for any bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are damaged, of another kind or version, or were written with
    /// another hasher.
    fn from_bytes_with_hasher(bytes: &[u8], hasher: Self::Hasher) -> Result<Self, DecodeError> {
        let (bytes, stored) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(|| short(bytes))?;
        let (header, payload) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| short(bytes))?;
        let n = check_header(header, Self::KIND, &hasher)?;
        if n != payload.len() as u64 {
            return Err(DecodeError::Truncated {
                what: "filter payload",
                need: n,
                have: payload.len() as u64,
            });
        }
        let (stored, computed) = (u32::from_le_bytes(*stored), crc32fast::hash(bytes));
        if stored != computed {
            return Err(DecodeError::Checksum {
                what: "saved filter",
                stored: stored.into(),
                computed: computed.into(),
            });
        }
        let mut reader = Reader { rest: payload };
        let filter = Self::read_payload(&mut reader, hasher)?;
        reader.finish()?;
        Ok(filter)
    }

    /// Writes the saved form, in one call.
    ///
    /// # Errors
    ///
    /// Errors of the writer.
    #[cfg(feature = "std")]
    fn save(&self, mut to: impl io::Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())
    }

    /// Reads exactly what [`save`](Self::save) wrote with the default hasher.
    ///
    /// # Errors
    ///
    /// As [`load_with_hasher`](Self::load_with_hasher).
    #[cfg(feature = "std")]
    fn load(from: impl io::Read) -> Result<Self, LoadError>
    where
        Self::Hasher: Default,
    {
        Self::load_with_hasher(from, Self::Hasher::default())
    }

    /// Reads exactly what [`save`](Self::save) wrote, so that several filters can follow each
    /// other.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if the reader fails, or as
    /// [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
    #[cfg(feature = "std")]
    fn load_with_hasher(mut from: impl io::Read, hasher: Self::Hasher) -> Result<Self, LoadError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        from.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(short(&bytes).into());
        };
        let n = check_header(header, Self::KIND, &hasher)?;
        // Grows with the bytes that arrive, whatever `n` is.
        let rest = n.saturating_add(CRC_BYTES as u64);
        from.take(rest).read_to_end(&mut bytes)?;
        Ok(Self::from_bytes_with_hasher(&bytes, hasher)?)
    }
}

impl<F: Payload> Saved for F {}

pub(crate) use sealed::Payload;

mod sealed {
    use super::{DecodeError, KeyFilter, Reader, SavedKind, Writer};

    /// The part of a structure within the envelope.
    pub trait Payload: KeyFilter + Sized {
        const KIND: SavedKind;

        fn write_payload(&self, writer: &mut Writer);

        /// Reads a payload. Must check every field, and allocate only for bytes that exist.
        fn read_payload(reader: &mut Reader<'_>, hasher: Self::Hasher)
        -> Result<Self, DecodeError>;
    }
}

/// Returns the hash of a fixed text. Hashers that agree on it are assumed equal.
pub(crate) fn hash_check(hasher: &impl BuildHasher) -> u64 {
    hash_with(hasher, b"SieveDB filter")
}

fn short(bytes: &[u8]) -> DecodeError {
    let need = (HEADER_BYTES + CRC_BYTES) as u64;
    DecodeError::Truncated { what: "saved filter", need, have: bytes.len() as u64 }
}

/// Checks the header, and returns the length of the payload.
fn check_header(
    header: &[u8; HEADER_BYTES],
    kind: SavedKind,
    hasher: &impl BuildHasher,
) -> Result<u64, DecodeError> {
    let mut reader = Reader { rest: header };
    let expect = |what, expected: u64, found: u64| match expected == found {
        true => Ok(()),
        false => Err(DecodeError::Mismatch { what, expected, found }),
    };
    expect("filter magic", u64::from_le_bytes(MAGIC), reader.u64("filter magic")?)?;
    let [kind_byte, version, zeros @ ..] = reader.u64("filter kind")?.to_le_bytes();
    expect("filter kind", kind as u64, kind_byte.into())?;
    if version != VERSION {
        return Err(DecodeError::Unsupported {
            what: "saved filter version",
            value: version.into(),
        });
    }
    if zeros != [0; 6] {
        return Err(DecodeError::OutOfRange { what: "reserved bytes", value: zeros[0].into() });
    }
    expect("hasher of the filter", hash_check(hasher), reader.u64("filter hash check")?)?;
    reader.u64("filter payload length")
}

/// A writer of the fields of a payload.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64s(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        self.bytes.reserve(values.len() * size_of::<u64>());
        values.for_each(|value| self.u64(value));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

/// A reader of the fields of a payload. Checks every length against the bytes that exist.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let bytes = self.bytes(what, size_of::<u64>() as u64)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("`bytes` returns 8 bytes")))
    }

    /// Reads a number that must be in `range`.
    pub(crate) fn u64_in(
        &mut self,
        what: &'static str,
        range: core::ops::RangeInclusive<u64>,
    ) -> Result<u64, DecodeError> {
        let value = self.u64(what)?;
        if !range.contains(&value) {
            return Err(DecodeError::OutOfRange { what, value });
        }
        Ok(value)
    }

    pub(crate) fn bytes(&mut self, what: &'static str, n: u64) -> Result<&'a [u8], DecodeError> {
        let have = self.rest.len() as u64;
        let taken = usize::try_from(n).ok().and_then(|n| self.rest.split_at_checked(n));
        let (taken, rest) = taken.ok_or(DecodeError::Truncated { what, need: n, have })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads `n` numbers. Fails before allocation if there are fewer.
    pub(crate) fn u64s(
        &mut self,
        what: &'static str,
        n: u64,
    ) -> Result<impl ExactSizeIterator<Item = u64> + use<'a>, DecodeError> {
        let bytes = self.bytes(what, n.saturating_mul(size_of::<u64>() as u64))?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|&word| u64::from_le_bytes(word)))
    }

    fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() as u64 {
            0 => Ok(()),
            value => Err(DecodeError::OutOfRange { what: "trailing payload bytes", value }),
        }
    }
}

/// Error of loading a filter.
#[cfg(feature = "std")]
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The reader failed.
    Io(io::Error),
    /// The bytes are invalid.
    Decode(DecodeError),
}

#[cfg(feature = "std")]
mod load_error {
    use std::{error, fmt, io};

    use super::{DecodeError, LoadError};

    impl fmt::Display for LoadError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            // `source()` reports the cause; including it here would print it twice.
            f.write_str(match self {
                Self::Io(_) => "cannot read the saved filter",
                Self::Decode(_) => "the saved filter is invalid",
            })
        }
    }

    impl error::Error for LoadError {
        fn source(&self) -> Option<&(dyn error::Error + 'static)> {
            match self {
                Self::Io(source) => Some(source),
                Self::Decode(source) => Some(source),
            }
        }
    }

    impl From<io::Error> for LoadError {
        fn from(source: io::Error) -> Self {
            Self::Io(source)
        }
    }

    impl From<DecodeError> for LoadError {
        fn from(source: DecodeError) -> Self {
            Self::Decode(source)
        }
    }
}
