//! The stored form of a block in the file.
//!
//! | field      | bytes | meaning                                                                |
//! |------------|-------|------------------------------------------------------------------------|
//! | `content`  | n     | the content, possibly compressed                                       |
//! | `type`     | 1     | 0: raw; 1: LZ4; 2: zstd; 3: zstd with the dictionary of the table      |
//! | `checksum` | 4     | [`checksum::block`] of the table's salt, the block's offset, and these |
//!
//! Compressed content starts with the length of the content as a varint. An LZ4 block follows, or a
//! zstd frame without length, checksum and dictionary id. A block is compressed only if that saves
//! at least 12 %. A smaller saving is not worth the CPU time of each read.
//!
//! # Handle of a block
//!
//! | field    | bytes  | meaning                                                |
//! |----------|--------|--------------------------------------------------------|
//! | `offset` | varint | offset of the block in the file                        |
//! | `bytes`  | varint | length including type and checksum, at least 5         |

use std::{fmt, ops::Range};

use bytes::Bytes;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use sievedb_format::{Corruption, Decoder, Encode, KEY_BYTES_MAX, VALUE_BYTES_MAX, checksum};

use super::{
    builder::KEPT_BYTES_MAX,
    zstd::{self, Dictionary},
    zstd_frame::content_bytes_max_of,
};
use crate::options::Compression;

/// Length of type and checksum, in bytes.
pub(crate) const TRAILER_BYTES: usize = size_of::<u8>() + size_of::<u32>();

/// Maximum length of the content of a compressed block, in bytes: the largest block size and one
/// entry.
pub(crate) const CONTENT_BYTES_MAX: u64 = (KEY_BYTES_MAX + VALUE_BYTES_MAX + (2 << 20)) as u64;

/// Type of an uncompressed block.
pub(crate) const TYPE_RAW: u8 = 0;
/// Type of a block compressed by LZ4.
pub(crate) const TYPE_LZ4: u8 = 1;
/// Type of a block compressed by zstd.
pub(crate) const TYPE_ZSTD: u8 = 2;
/// Type of a block compressed by zstd with the dictionary of the table.
pub(crate) const TYPE_ZSTD_DICTIONARY: u8 = 3;

/// Maximum length of the varint before compressed content.
const LENGTH_BYTES_MAX: usize = 10;

/// Memory of the LZ4 hash table, in bytes: 4,096 positions.
const LZ4_TABLE_BYTES: usize = 4096 * size_of::<u32>();

/// Maximum output of one byte of an LZ4 block, in bytes.
const LZ4_RATIO_MAX: u64 = 255;

/// Minimum saving for a block to be stored compressed.
const SAVED_PERCENT_MIN: u128 = 12;

/// Length of the shortest encoded handle: two varints.
pub(crate) const HANDLE_BYTES_MIN: usize = 2;

/// Location of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    /// Length including type byte and checksum.
    pub(crate) bytes: u64,
}

impl BlockHandle {
    /// Appends the encoded form.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.put_varint(self.offset);
        out.put_varint(self.bytes);
    }

    /// Decodes a handle.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field violates the table of handles, or the block ends beyond
    /// `u64::MAX`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let offset = decoder.varint("offset of a block")?;
        let bytes = decoder.varint("bytes of a block")?;
        decoder.finish("handle of a block")?;
        Self::new(offset, bytes)
    }

    /// Checks and returns a handle.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub(crate) fn new(offset: u64, bytes: u64) -> Result<Self, Corruption> {
        if bytes < TRAILER_BYTES as u64 || offset.checked_add(bytes).is_none() {
            return Err(Corruption::OutOfRange { what: "bytes of a block", value: bytes });
        }
        Ok(Self { offset, bytes })
    }

    /// Returns the range of the file.
    pub(crate) fn range(self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

impl fmt::Display for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.offset, self.offset + self.bytes)
    }
}

/// Compresses and checksums blocks. Reuses its buffers.
pub(crate) struct Sealer {
    salt: u64,
    compressor: Compressor,
    compressed: Vec<u8>,
}

enum Compressor {
    None,
    Lz4(CompressTable),
    Zstd(Box<zstd::Compressor>),
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("salt", &self.salt).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Returns the sealer of the table with `salt`.
    pub(crate) fn new(salt: u64, compression: Compression) -> Self {
        let compressor = match (compression, zstd::Compressor::new(compression)) {
            (_, Some(compressor)) => Compressor::Zstd(Box::new(compressor)),
            (Compression::Lz4, None) => Compressor::Lz4(CompressTable::default()),
            (Compression::None | Compression::Zstd { .. }, None) => Compressor::None,
        };
        Self { salt, compressor, compressed: Vec::new() }
    }

    /// Returns content and trailer of the block at `offset`. Compresses the content if that saves
    /// at least [`SAVED_PERCENT_MIN`].
    pub(crate) fn seal<'a>(
        &'a mut self,
        offset: u64,
        content: &'a [u8],
    ) -> (&'a [u8], [u8; TRAILER_BYTES]) {
        let salt = self.salt;
        match self.compress(content) {
            Some(type_byte) => {
                let compressed = &self.compressed;
                (compressed, trailer(salt, offset, type_byte, compressed))
            }
            None => (content, trailer(salt, offset, TYPE_RAW, content)),
        }
    }

    /// Returns the memory of buffers and compressor, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let compressor = match &self.compressor {
            Compressor::None => 0,
            Compressor::Lz4(_) => LZ4_TABLE_BYTES,
            Compressor::Zstd(compressor) => compressor.memory_bytes(),
        };
        self.compressed.capacity() + compressor
    }

    /// Returns the dictionary that blocks were compressed with, if any.
    pub(crate) fn dictionary(&self) -> Option<&[u8]> {
        match &self.compressor {
            Compressor::None | Compressor::Lz4(_) => None,
            Compressor::Zstd(compressor) => compressor.dictionary(),
        }
    }

    /// Returns content and trailer of the block at `offset`, uncompressed.
    pub(crate) fn seal_raw<'a>(
        &self,
        offset: u64,
        content: &'a [u8],
    ) -> (&'a [u8], [u8; TRAILER_BYTES]) {
        (content, trailer(self.salt, offset, TYPE_RAW, content))
    }

    /// Compresses into `self.compressed`. Returns the type if that saves enough.
    fn compress(&mut self, content: &[u8]) -> Option<u8> {
        let Self { compressor, compressed, .. } = self;
        if matches!(compressor, Compressor::None) {
            return None;
        }
        compressed.clear();
        compressed.shrink_to(KEPT_BYTES_MAX);
        compressed.reserve_exact(LENGTH_BYTES_MAX + get_maximum_output_size(content.len()));
        compressed.put_varint(content.len() as u64);
        let type_byte = match compressor {
            Compressor::None => return None,
            Compressor::Lz4(table) => {
                let length_bytes = compressed.len();
                compressed.resize(length_bytes + get_maximum_output_size(content.len()), 0);
                let output = &mut compressed[length_bytes..];
                let written = compress_into_with_table(content, output, table)
                    .expect("the output has room for the longest result");
                compressed.truncate(length_bytes + written);
                TYPE_LZ4
            }
            Compressor::Zstd(compressor) => match compressor.compress(content, compressed) {
                true => TYPE_ZSTD_DICTIONARY,
                false => TYPE_ZSTD,
            },
        };
        pays(compressed.len(), content.len()).then_some(type_byte)
    }
}

/// Returns `true` if the saving is at least [`SAVED_PERCENT_MIN`].
fn pays(compressed_bytes: usize, content_bytes: usize) -> bool {
    let saved = content_bytes.saturating_sub(compressed_bytes);
    saved > 0 && saved as u128 * 100 >= content_bytes as u128 * SAVED_PERCENT_MIN
}

fn trailer(salt: u64, offset: u64, type_byte: u8, stored: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut trailer = [type_byte; TRAILER_BYTES];
    trailer[1..].copy_from_slice(&checksum::block(salt, offset, type_byte, stored).to_le_bytes());
    trailer
}

/// A stored block with a verified checksum.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The content, possibly compressed.
    pub(crate) bytes: Bytes,
    /// A type byte, unknown if written by a later release.
    pub(crate) type_byte: u8,
}

impl Stored {
    /// Verifies the bytes read at `offset` of the table with `salt`.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated or the checksum differs.
    pub(crate) fn open(mut bytes: Bytes, salt: u64, offset: u64) -> Result<Self, Corruption> {
        let Some((stored, &[type_byte, c0, c1, c2, c3])) =
            bytes.split_last_chunk::<TRAILER_BYTES>()
        else {
            let (need, have) = (TRAILER_BYTES as u64, bytes.len() as u64);
            return Err(Corruption::Truncated { what: "block", need, have });
        };
        let want = u32::from_le_bytes([c0, c1, c2, c3]);
        let computed = checksum::block(salt, offset, type_byte, stored);
        if want != computed {
            let (stored, computed) = (want.into(), computed.into());
            return Err(Corruption::Checksum { what: "block", stored, computed });
        }
        bytes.truncate(bytes.len() - TRAILER_BYTES);
        Ok(Self { bytes, type_byte })
    }

    /// Returns the content, decompressed to at most `content_bytes_max` bytes. `dictionary` is that
    /// of the table.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the type is unknown, the dictionary is missing, or decompression fails.
    pub(crate) fn content(
        self,
        content_bytes_max: u64,
        dictionary: Option<&Dictionary>,
    ) -> Result<Bytes, Corruption> {
        let decompress = |producible: fn(&[u8]) -> u64, by: Decompress<'_>| {
            decompress(&self.bytes, content_bytes_max, producible, by)
        };
        match self.type_byte {
            TYPE_RAW => Ok(self.bytes),
            TYPE_LZ4 => decompress(lz4_producible, &|from, to| Ok(decompress_into(from, to).ok())),
            TYPE_ZSTD => {
                decompress(content_bytes_max_of, &|from, to| zstd::decompress(from, to, None))
            }
            TYPE_ZSTD_DICTIONARY => {
                let what = "compression dictionary";
                let dictionary = Some(dictionary.ok_or(Corruption::Missing { what })?);
                decompress(content_bytes_max_of, &|from, to| zstd::decompress(from, to, dictionary))
            }
            other => Err(Corruption::Unsupported { what: "block type", value: other.into() }),
        }
    }
}

/// Decompresses into the second argument and returns the length; `None` if that fails.
type Decompress<'f> = &'f dyn Fn(&[u8], &mut [u8]) -> Result<Option<usize>, Corruption>;

/// Returns an upper bound of the decompressed length of an LZ4 block.
fn lz4_producible(compressed: &[u8]) -> u64 {
    (compressed.len() as u64).saturating_mul(LZ4_RATIO_MAX)
}

/// Decompresses `bytes` with `by`. Allocates at most `producible` bytes, whatever length the bytes
/// record.
fn decompress(
    bytes: &[u8],
    content_bytes_max: u64,
    producible: fn(&[u8]) -> u64,
    by: Decompress<'_>,
) -> Result<Bytes, Corruption> {
    let what = "bytes of a compressed block";
    let mut decoder = Decoder::new(bytes);
    let content_bytes = decoder.varint(what)?;
    let compressed = decoder.rest();
    let producible_bytes = producible(compressed);
    let too_long = Corruption::OutOfRange { what, value: content_bytes };
    if content_bytes > content_bytes_max.min(producible_bytes) {
        return Err(too_long);
    }
    let mut content = vec![0; usize::try_from(content_bytes).map_err(|_| too_long)?];
    match by(compressed, &mut content)? {
        Some(written) if written == content.len() => Ok(content.into()),
        Some(written) => {
            Err(Corruption::Mismatch { what, expected: content_bytes, found: written as u64 })
        }
        None => Err(Corruption::OutOfRange { what, value: content_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(compression: Compression, content: &[u8]) -> (Bytes, u8) {
        let mut sealer = Sealer::new(7, compression);
        let (stored, trailer) = sealer.seal(64, content);
        ([stored, &trailer].concat().into(), trailer[0])
    }

    fn opened(bytes: Bytes) -> Result<Bytes, Corruption> {
        Stored::open(bytes, 7, 64)?.content(1 << 20, None)
    }

    #[test]
    fn content_round_trips_and_is_compressed_only_if_it_saves_enough() {
        let noise: Vec<u8> = (0..1000_u64)
            .flat_map(|i| xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()).to_le_bytes())
            .collect();
        let cases: [(&str, &[u8], u8); 4] = [
            ("empty", b"", TYPE_RAW),
            ("short", b"abc", TYPE_RAW),
            ("noise", &noise, TYPE_RAW),
            ("repetitive", &[b'a'; 5000], TYPE_LZ4),
        ];
        for (name, content, want) in cases {
            let (bytes, type_byte) = sealed(Compression::Lz4, content);
            assert_eq!(type_byte, want, "{name}");
            assert_eq!(opened(bytes).as_deref(), Ok(content), "{name}");
            let (bytes, type_byte) = sealed(Compression::None, content);
            assert_eq!(type_byte, TYPE_RAW, "{name}");
            assert_eq!(opened(bytes).as_deref(), Ok(content), "{name}");
        }
    }

    #[test]
    fn a_block_is_raw_if_compression_saves_less_than_12_percent() {
        let cases =
            [(0, 0, false), (1, 1, false), (2, 1, false), (88, 100, true), (89, 100, false)];
        for (compressed, content, want) in
            cases.into_iter().chain([(3520, 4000, true), (3521, 4000, false)])
        {
            assert_eq!(pays(compressed, content), want, "{content} bytes to {compressed}");
        }
        // Noise, then zeros: each additional byte of noise saves one byte less.
        let noise: Vec<u8> = (0..500_u64)
            .flat_map(|i| xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()).to_le_bytes())
            .collect();
        let mut types = Vec::new();
        for noisy in 3000..4000 {
            let mut content = noise.clone();
            content[noisy..].fill(0);
            let (bytes, type_byte) = sealed(Compression::Lz4, &content);
            let saved = content.len() + TRAILER_BYTES - bytes.len();
            assert!(type_byte == TYPE_RAW && saved == 0 || saved >= 480, "{saved} of 4000 bytes");
            types.push(type_byte);
            assert_eq!(opened(bytes).unwrap(), content);
        }
        let compressed = types.iter().take_while(|it| **it == TYPE_LZ4).count();
        assert!(types[compressed..].iter().all(|it| *it == TYPE_RAW));
        // The limit is at 480 bytes saved, with some overhead of LZ4.
        assert!((440..500).contains(&compressed), "{compressed}");
    }

    #[test]
    fn a_block_is_valid_only_at_its_offset() {
        let (bytes, _) = sealed(Compression::Lz4, &[b'a'; 100]);
        assert!(Stored::open(bytes.clone(), 7, 64).is_ok());
        assert!(Stored::open(bytes.clone(), 8, 64).is_err(), "another table");
        assert!(Stored::open(bytes.clone(), 7, 65).is_err(), "another offset");
        for at in 0..bytes.len() {
            assert!(Stored::open(bytes.slice(..at), 7, 64).is_err(), "truncated at {at}");
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1;
            assert!(Stored::open(flipped.into(), 7, 64).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn malformed_content_is_refused() {
        let lz4 = |length: u64, compressed: &[u8]| {
            let mut bytes = Vec::new();
            bytes.put_varint(length);
            bytes.put(compressed);
            Stored { bytes: bytes.into(), type_byte: TYPE_LZ4 }.content(1 << 20, None)
        };
        let mut good = vec![0; get_maximum_output_size(100)];
        let written =
            compress_into_with_table(&[b'a'; 100], &mut good, &mut CompressTable::default());
        good.truncate(written.unwrap());
        assert_eq!(lz4(100, &good).as_deref(), Ok(&[b'a'; 100][..]));
        let what = "bytes of a compressed block";
        let out_of_range = |value| Err(Corruption::OutOfRange { what, value });
        let cases = [
            ("longer than any block", lz4((1 << 20) + 1, &[0; 9000]), out_of_range((1 << 20) + 1)),
            ("longer than the input can become", lz4(1 << 19, &good), out_of_range(1 << 19)),
            ("shorter than the output", lz4(99, &good), out_of_range(99)),
            (
                "longer than the output",
                lz4(101, &good),
                Err(Corruption::Mismatch { what, expected: 101, found: 100 }),
            ),
            ("cut", lz4(100, &good[..good.len() - 1]), out_of_range(100)),
        ];
        for (name, found, want) in cases {
            assert_eq!(found, want, "{name}");
        }
        let future = Stored { bytes: Bytes::new(), type_byte: 4 }.content(0, None);
        assert_eq!(future, Err(Corruption::Unsupported { what: "block type", value: 4 }));
    }

    #[test]
    fn allocation_is_bounded_by_the_compressed_length() {
        let unpacked = |_: &[u8], content: &mut [u8]| Ok(Some(content.len()));
        let decompressed = |length: u64| {
            let mut bytes = Vec::new();
            bytes.put_varint(length);
            bytes.put(&[0; 4]);
            decompress(&bytes, u64::MAX, lz4_producible, &unpacked).map(|content| content.len())
        };
        assert_eq!(decompressed(4 * 255), Ok(4 * 255));
        let (what, value) = ("bytes of a compressed block", 4 * 255 + 1);
        assert_eq!(decompressed(value), Err(Corruption::OutOfRange { what, value }));
    }

    #[test]
    fn handles_round_trip() {
        for (offset, bytes) in [(0, 5), (64, 4096), (1 << 40, 1 << 28), (u64::MAX - 5, 5)] {
            let handle = BlockHandle { offset, bytes };
            let mut encoded = Vec::new();
            handle.encode(&mut encoded);
            assert_eq!(BlockHandle::decode(&encoded), Ok(handle));
        }
    }

    #[test]
    fn out_of_range_handles_are_refused() {
        for (name, offset, bytes) in [("short", 0, 4), ("beyond the end", u64::MAX - 4, 5)] {
            assert!(BlockHandle::new(offset, bytes).is_err(), "{name}");
        }
    }
}
