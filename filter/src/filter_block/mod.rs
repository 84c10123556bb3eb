//! The bytes of a table's filter.
//!
//! A payload, and a trailer behind it: a writer knows it last. Integers are little-endian, varints
//! those of `varint.rs`. The file places the block at a multiple of 64, so that a mapped payload
//! has whole cache lines. `testdata/filter_block` pins these bytes.
//!
//! | offset        | bytes  | field           | meaning                                              |
//! |---------------|--------|-----------------|------------------------------------------------------|
//! | 0             | p      | `payload`       | column groups, by kind; see below                    |
//! | p             | 1      | `hash_version`  | [`HASH_VERSION`](crate::HASH_VERSION)                |
//! |               | varint | `key_count`     | keys, without equal neighbours                       |
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
//! The trailer's checksum covers those of the groups, and so the whole block. Hash seed and salt
//! are in it without being stored: a filter of another table or store fails it like a damaged one.
//! A column group starts at a multiple of 64 and is checked by itself, so that a ribbon can be
//! loaded in part: see [`Trailer`].
//!
//! Later versions keep the last seven bytes and what the checksum covers. Version 1, which no
//! release wrote, did not have them: it fails the checksum. In version 2 of a ribbon the second
//! layer had a mix of its own, and in version 3 one that took another product, as the fingerprint
//! did.
//!
//! Trailers are short. Of a thousand to a million keys: blocked Bloom 15 to 16 bytes, ribbon of one
//! group 19 to 25, binary fuse 18 to 20, range 30 to 35.

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

use crate::arena::FilterArena;
use crate::decode_error::DecodeError;
use crate::page_vec::{PageVec, SystemPages};
use crate::range_filter::RangeFilter;
use crate::ribbon::COLUMNS_MAX;
use crate::table_filter::TableFilter;
use parameters::Parameters;

/// The version that this release writes of a kind, and the only one that it reads.
fn version_of(kind: u8) -> u8 {
    if kind == FilterKind::Ribbon as u8 { 4 } else { 2 }
}

/// What the table that a filter belongs to says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Seed of the store's key hash.
    pub hash_seed: u64,
    /// The table's random number.
    pub salt: u64,
}

/// The bytes of `filter`, for the table that will expect `expected`.
#[must_use]
pub fn encode(filter: &TableFilter, expected: Expected) -> PageVec<u8> {
    let (mut bytes, parameters) = match filter {
        TableFilter::BlockedBloom(filter) => {
            let mut bytes = PageVec::with_capacity_in(filter.memory_bytes(), SystemPages);
            bytes.extend(filter.lines().iter().flat_map(|line| line.to_bytes()));
            (bytes, Parameters::BlockedBloom { probes: filter.probes() })
        }
        TableFilter::Ribbon(filter) => (filter.to_payload(), Parameters::Ribbon(filter.header())),
        TableFilter::BinaryFuse8(filter) => {
            (filter.to_payload(), Parameters::BinaryFuse(filter.header()))
        }
        TableFilter::BinaryFuse16(filter) => {
            (filter.to_payload(), Parameters::BinaryFuse(filter.header()))
        }
    };
    let trailer = Trailer::of(filter.key_count(), parameters, &bytes);
    bytes.extend_from_slice(&trailer.to_bytes(expected));
    bytes
}

/// The bytes of a range filter, for the table that will expect `expected`.
#[must_use]
pub fn encode_range(filter: &RangeFilter, expected: Expected) -> PageVec<u8> {
    let mut bytes = filter.to_payload();
    let trailer = Trailer::of(filter.key_count(), Parameters::Range(filter.header()), &bytes);
    bytes.extend_from_slice(&trailer.to_bytes(expected));
    bytes
}

/// As many columns as there are.
const COLUMNS: f64 = COLUMNS_MAX as f64;

/// Reads a filter. All checks are here, so that a lookup needs none.
///
/// Takes little more memory than `bytes` has, whatever they say. No bytes, or a block of zero
/// lines, columns or slots, are no filter that could say "no": they are errors too.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are damaged, were made with another hash, belong to another table,
/// hold a range filter, or a kind of filter that this release does not know. A caller must then
/// take every key for a "maybe".
pub fn decode(bytes: &[u8], expected: Expected) -> Result<TableFilter, DecodeError> {
    decode_columns(bytes, expected, COLUMNS)
}

/// Reads the first `columns` columns of a ribbon, all if there are not as many, and any other
/// filter whole.
///
/// Each column less saves a bit per key and doubles the rate. What is read is the filter that
/// [`Ribbon::shrink_to`](crate::Ribbon::shrink_to) leaves of the whole one, a fraction and NaN
/// included. Column groups that it does not need are neither read nor checked; [`Trailer`] does
/// without having their bytes.
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

/// Reads a range filter, with all checks, as [`decode`] reads any other.
///
/// # Errors
///
/// As [`decode`], and if the bytes are a filter for single keys.
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
