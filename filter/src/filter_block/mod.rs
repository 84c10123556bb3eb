//! The stored form of a table's filter.
//!
//! A payload followed by a trailer, because a writer knows the trailer last. Integers are
//! little-endian, varints as in `varint.rs`. Files place the block at a multiple of 64, so that a
//! mapped payload has whole cache lines. `testdata/filter_block` pins these bytes.
//!
//! | offset        | bytes  | field           | meaning                                              |
//! |---------------|--------|-----------------|------------------------------------------------------|
//! | 0             | p      | `payload`       | column groups, by kind; see below                    |
//! | p             | 1      | `hash_version`  | [`HASH_VERSION`](crate::HASH_VERSION)                |
//! |               | varint | `key_count`     | keys, without adjacent duplicates                    |
//! |               | varints | parameters     | by kind, see below                                   |
//! |               | 4 × groups | `group_crc32` | CRC-32 (IEEE 802.3) of each column group           |
//! | end - 7       | 1      | `kind`          | a [`FilterKind`]                                     |
//! | end - 6       | 1      | `version`       | of the kind: 4 for a ribbon, 2 for the others        |
//! | end - 5       | 1      | `trailer_bytes` | length of the trailer, from `hash_version` to the end |
//! | end - 4       | 4      | `trailer_crc32` | CRC-32 of the store's hash seed (u64), the table's salt (u64) and the trailer so far |
//!
//! | kind          | payload                        | groups | parameters                           |
//! |---------------|--------------------------------|--------|--------------------------------------|
//! | blocked Bloom | lines of 64 bytes, at least 1; bit `b` of a line is bit `b % 8` of its byte `b / 8` | 1 | `probes`, 1 to 16 |
//! | ribbon        | `ribbon/stored.rs`             | 1 to 4 | `columns`, `attempt`, `layer_blocks` |
//! | binary fuse   | `binary_fuse/stored.rs`        | 1      | `print_bits`, `segment_log2`, `segments`, `attempt` |
//! | range         | `range_filter/stored.rs`       | 1      | `prefix_bytes`, `point_bytes`, `codes`, `universe`, `low_bits`, `seed` |
//!
//! The trailer's checksum covers those of the groups, and so the whole block. It includes hash seed
//! and salt, which are not stored: a filter of another table or store fails it like a damaged one.
//! A column group starts at a multiple of 64 and has its own checksum, so that a ribbon can be
//! loaded in part: see [`Trailer`].
//!
//! Later versions keep the last seven bytes and what the checksum covers. Version 1, which no
//! release wrote, lacked them and fails the checksum. Versions 2 and 3 of a ribbon derived the
//! second layer and its fingerprints from other products.
//!
//! Trailers of a thousand to a million keys: blocked Bloom 15 to 16 bytes, ribbon of one group 19
//! to 25, binary fuse 18 to 20, range 30 to 35.

mod describe;
mod kind;
mod loading;
mod parameters;
mod trailer;
mod varint;

pub use describe::{Field, describe};
pub use kind::FilterKind;
pub use loading::PIECE_BYTES;
pub use trailer::{TRAILER_BYTES_MAX, Trailer};

use alloc::vec::Vec;
use core::convert::Infallible;

use crate::arena::FilterArena;
use crate::decode_error::DecodeError;
use crate::line::LINE_BYTES;
use crate::page_vec::{PageVec, SystemPages};
use crate::range_filter::RangeFilter;
use crate::ribbon::COLUMNS_MAX;
use crate::table_filter::TableFilter;
use parameters::Parameters;

/// Lines of a blocked Bloom filter that are encoded at a time: 16 KiB.
const PIECE_LINES: usize = 256;

/// Returns the only version of a kind that this release writes and reads.
fn version_of(kind: u8) -> u8 {
    if kind == FilterKind::Ribbon as u8 { 4 } else { 2 }
}

/// Values from the filter's table that its checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Seed of the store's key hash.
    pub hash_seed: u64,
    /// Random number of the table.
    pub salt: u64,
}

/// Encodes `filter` for the table of `expected`.
#[must_use]
pub fn encode(filter: &TableFilter, expected: Expected) -> PageVec<u8> {
    let mut bytes = PageVec::with_capacity_in(filter.memory_bytes(), SystemPages);
    let put = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok::<_, Infallible>(())
    };
    let Ok(()) = encode_to(filter, expected, put);
    bytes
}

/// Passes the bytes of [`encode`] to `put` in pieces; the last one is the trailer. A blocked Bloom
/// filter has no copy in memory, others have one.
///
/// # Errors
///
/// Those of `put`.
pub fn encode_to<E>(
    filter: &TableFilter,
    expected: Expected,
    mut put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (payload, parameters) = match filter {
        TableFilter::BlockedBloom(filter) => {
            let mut crc32 = crc32fast::Hasher::new();
            let mut piece = Vec::with_capacity(PIECE_LINES * LINE_BYTES);
            for lines in filter.lines().chunks(PIECE_LINES) {
                piece.clear();
                piece.extend(lines.iter().flat_map(|line| line.to_bytes()));
                crc32.update(&piece);
                put(&piece)?;
            }
            let parameters = Parameters::BlockedBloom { probes: filter.probes() };
            let payload_bytes = filter.memory_bytes() as u64;
            let crc32s = vec![crc32.finalize()];
            let trailer = Trailer::new(filter.key_count(), parameters, payload_bytes, crc32s);
            return put(&trailer.to_bytes(expected));
        }
        TableFilter::Ribbon(filter) => (filter.to_payload(), Parameters::Ribbon(filter.header())),
        TableFilter::BinaryFuse8(filter) => {
            (filter.to_payload(), Parameters::BinaryFuse(filter.header()))
        }
        TableFilter::BinaryFuse16(filter) => {
            (filter.to_payload(), Parameters::BinaryFuse(filter.header()))
        }
    };
    put(&payload)?;
    put(&Trailer::of(filter.key_count(), parameters, &payload).to_bytes(expected))
}

/// Encodes a range filter for the table of `expected`.
#[must_use]
pub fn encode_range(filter: &RangeFilter, expected: Expected) -> PageVec<u8> {
    let mut bytes = filter.to_payload();
    let trailer = Trailer::of(filter.key_count(), Parameters::Range(filter.header()), &bytes);
    bytes.extend_from_slice(&trailer.to_bytes(expected));
    bytes
}

/// All columns of any filter.
const COLUMNS: f64 = COLUMNS_MAX as f64;

/// Decodes a filter. All checks are here, so that probes need none.
///
/// Allocates little more memory than `bytes` has, whatever the bytes are. Empty bytes, or a block
/// without lines, columns or slots, are errors too.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are damaged, have another hash version, belong to another table, or
/// are a range filter or an unsupported kind. A caller must then treat every key as matching.
pub fn decode(bytes: &[u8], expected: Expected) -> Result<TableFilter, DecodeError> {
    decode_columns(bytes, expected, COLUMNS)
}

/// Decodes the first `columns` columns of a ribbon, at most all, or any other filter whole.
///
/// Each missing column saves a bit per key and doubles the rate. The result equals
/// [`Ribbon::shrink_to`](crate::Ribbon::shrink_to) of the whole filter, also for a fraction or NaN.
/// Unneeded column groups are neither read nor checked. [`Trailer`] does not even need their bytes.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_columns(
    bytes: &[u8],
    expected: Expected,
    columns: f64,
) -> Result<TableFilter, DecodeError> {
    Trailer::read(bytes, bytes.len() as u64, expected)?.decode(bytes, columns)
}

/// Decodes a range filter, with all checks.
///
/// # Errors
///
/// As [`decode`], and if the bytes are a point filter.
pub fn decode_range(bytes: &[u8], expected: Expected) -> Result<RangeFilter, DecodeError> {
    let trailer = Trailer::read(bytes, bytes.len() as u64, expected)?;
    trailer.decode_range_in(bytes, &FilterArena::heap())
}

fn check_crc32(what: &'static str, stored: u32, computed: u32) -> Result<(), DecodeError> {
    if stored == computed {
        return Ok(());
    }
    Err(DecodeError::Checksum { what, stored: stored.into(), computed: computed.into() })
}
