//! The trailer of a filter block: kind, parameters and all checksums.

use alloc::vec::Vec;
use core::ops::Range;

use super::parameters::Parameters;
use super::{COLUMNS, Expected, FilterKind, check_crc32, varint, version_of};
use crate::arena::FilterArena;
use crate::decode_error::DecodeError;
use crate::hash::HASH_VERSION;
use crate::range_filter::RangeFilter;
use crate::table_filter::TableFilter;

/// Names of the column groups. A filter of one group has the first name.
pub(super) const GROUPS: [&str; 4] =
    ["filter payload", "column group 1", "column group 2", "column group 3"];

/// Maximum bytes of a trailer: its length is one byte.
pub const TRAILER_BYTES_MAX: usize = u8::MAX as usize;

/// Bytes of kind, version, length and checksum, which end every version.
pub(super) const END_BYTES: usize = 7;

/// The verified trailer of a filter block.
///
/// For readers that load a ribbon in part: first the end of the block, then the bytes at its front
/// that [`front_bytes`](Self::front_bytes) requires. [`decode`](super::decode) reads a whole block.
#[derive(Debug, Clone)]
pub struct Trailer {
    key_count: u64,
    parameters: Parameters,
    payload_bytes: u64,
    /// One per column group.
    group_crc32s: Vec<u32>,
}

/// A number of a trailer, with its position in the trailer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) name: &'static str,
    pub(super) value: u64,
}

/// A reader of a trailer's numbers, which passes each to `see`.
#[derive(Debug)]
pub(super) struct Numbers<'a, S> {
    fields: &'a [u8],
    rest: &'a [u8],
    see: S,
}

impl<'a, S: FnMut(Number)> Numbers<'a, S> {
    pub(super) fn take(&mut self, name: &'static str) -> Result<u64, DecodeError> {
        let from = self.fields.len() - self.rest.len();
        let value = varint::take(&mut self.rest, name)?;
        (self.see)(Number { from, to: self.fields.len() - self.rest.len(), name, value });
        Ok(value)
    }

    /// Returns the bytes not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Trailer {
    /// Reads the trailer of a block of `block_bytes` bytes. `tail` is the end of the block: at
    /// least the last [`TRAILER_BYTES_MAX`] bytes, or all.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] as [`decode`](super::decode), except for damage of the payload.
    pub fn read(tail: &[u8], block_bytes: u64, expected: Expected) -> Result<Self, DecodeError> {
        let (_, bytes) = split(tail)?;
        let (covered, stored) = bytes.split_last_chunk().expect("a trailer has its end");
        // The checksum first: later errors then mean another release instead of damage.
        let what = "filter trailer, hash seed and salt";
        check_crc32(what, u32::from_le_bytes(*stored), crc32(expected, covered))?;
        let payload_bytes = block_bytes.saturating_sub(bytes.len() as u64);
        Self::parse(bytes, payload_bytes, |_| ())
    }

    /// Returns the length of the block's prefix with the first `columns` columns of a ribbon, or
    /// with the whole payload of other filters.
    #[must_use]
    pub fn front_bytes(&self, columns: f64) -> u64 {
        self.groups(columns).last().expect("there is a group").end
    }

    /// Decodes a point filter: the first `columns` columns of a ribbon, at most all, or any other
    /// filter whole.
    ///
    /// `front` is at least the first [`front_bytes`](Self::front_bytes) of the block. Only the
    /// groups used are checked.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `front` is too short, a group is damaged, or it is a range filter.
    pub fn decode(&self, front: &[u8], columns: f64) -> Result<TableFilter, DecodeError> {
        self.decode_in(front, columns, &FilterArena::heap())
    }

    /// Decodes as [`decode`](Self::decode) does, with the filter's memory in `arena`.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub(crate) fn decode_in(
        &self,
        front: &[u8],
        columns: f64,
        arena: &FilterArena,
    ) -> Result<TableFilter, DecodeError> {
        let front = self.front(front, columns)?;
        let piece = |piece: Range<u64>| Ok(&front[piece.start as usize..piece.end as usize]);
        self.load_in(columns, arena, piece)
    }

    /// Decodes a range filter. `front` is at least the payload.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `front` is too short or damaged, or it is a point filter.
    pub(crate) fn decode_range_in(
        &self,
        front: &[u8],
        arena: &FilterArena,
    ) -> Result<RangeFilter, DecodeError> {
        let front = self.front(front, COLUMNS)?;
        let piece = |piece: Range<u64>| Ok(&front[piece.start as usize..piece.end as usize]);
        self.load_range_in(arena, piece)
    }

    /// Returns the part of `front` with the first `columns` columns.
    fn front<'a>(&self, front: &'a [u8], columns: f64) -> Result<&'a [u8], DecodeError> {
        let need = self.front_bytes(columns);
        let have = front.len() as u64;
        let front = usize::try_from(need).ok().and_then(|need| front.get(..need));
        front.ok_or(DecodeError::Truncated { what: "filter payload", need, have })
    }

    /// Verifies the checksum of each group with the first `columns` columns.
    ///
    /// # Panics
    ///
    /// If one of them is not in `front`.
    pub(super) fn check_groups(
        &self,
        front: &[u8],
        columns: f64,
    ) -> impl Iterator<Item = Result<(), DecodeError>> {
        let groups = self.groups(columns).into_iter().zip(&self.group_crc32s);
        groups.zip(GROUPS).map(|((group, &stored), what)| {
            // Within `front`, which is in memory.
            let computed = crc32fast::hash(&front[group.start as usize..group.end as usize]);
            check_crc32(what, stored, computed)
        })
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Returns the checksum of each group.
    pub(super) fn group_crc32s(&self) -> &[u32] {
        &self.group_crc32s
    }

    /// Returns the kind of the filter.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        self.parameters.kind()
    }

    /// Returns [`Ribbon::columns`](crate::Ribbon::columns) of the whole filter. `None` for other
    /// kinds, which cannot be loaded in part.
    #[must_use]
    pub fn columns(&self) -> Option<f64> {
        self.parameters.columns()
    }

    /// Returns [`TableFilter::memory_bytes`] of the filter that [`decode`](Self::decode) returns
    /// for these columns. Constant time.
    #[must_use]
    pub fn memory_bytes(&self, columns: f64) -> u64 {
        self.parameters.memory_bytes(self.payload_bytes, columns)
    }

    /// Returns the number of keys that the filter was built over.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// Creates the trailer of a payload whose groups have these checksums.
    pub(super) fn new(
        key_count: u64,
        parameters: Parameters,
        payload_bytes: u64,
        group_crc32s: Vec<u32>,
    ) -> Self {
        Self { key_count, parameters, payload_bytes, group_crc32s }
    }

    /// Creates the trailer of a whole payload.
    pub(super) fn of(key_count: u64, parameters: Parameters, payload: &[u8]) -> Self {
        let mut trailer = Self::new(key_count, parameters, payload.len() as u64, Vec::new());
        let crc32 =
            |group: Range<u64>| crc32fast::hash(&payload[group.start as usize..group.end as usize]);
        trailer.group_crc32s = trailer.groups(COLUMNS).into_iter().map(crc32).collect();
        trailer
    }

    /// Returns the positions of the groups with the first `columns` columns.
    pub(super) fn groups(&self, columns: f64) -> Vec<Range<u64>> {
        self.parameters.groups(self.payload_bytes, columns)
    }

    pub(super) fn to_bytes(&self, expected: Expected) -> Vec<u8> {
        let mut bytes = vec![HASH_VERSION];
        varint::put(&mut bytes, self.key_count);
        self.parameters.put(&mut bytes);
        bytes.extend(self.group_crc32s.iter().flat_map(|crc32| crc32.to_le_bytes()));
        // The longest is that of a ribbon: 1 + 10 + 10 + 5 + 12 * 5 + 4 * 4 + 7.
        let length = u8::try_from(bytes.len() + END_BYTES).expect("a trailer is short");
        let kind = self.kind() as u8;
        bytes.extend_from_slice(&[kind, version_of(kind), length]);
        let crc32 = crc32(expected, &bytes);
        bytes.extend_from_slice(&crc32.to_le_bytes());
        bytes
    }

    /// Parses a trailer without verifying its checksum, and passes each number to `see` until an
    /// error.
    pub(super) fn parse(
        bytes: &[u8],
        payload_bytes: u64,
        see: impl FnMut(Number),
    ) -> Result<Self, DecodeError> {
        let (fields, &[kind, version, ..]) =
            bytes.split_last_chunk::<END_BYTES>().expect("a trailer has its end");
        require_known("version of the filter", version.into(), version_of(kind).into())?;
        let mut numbers = Numbers { fields, rest: fields, see };
        let hash_version = numbers.take("hash_version")?;
        require_known("hash version of the filter", hash_version, HASH_VERSION.into())?;
        let key_count = numbers.take("key_count")?;
        let parameters = Parameters::take(kind, key_count, &mut numbers)?;
        let groups = 4 * parameters.group_count() as u64;
        let payload = parameters.payload_bytes(payload_bytes);
        let (crc32s, _) = numbers.rest().as_chunks();
        for (what, expected, found) in [
            ("bytes of the filter's checksums", groups, numbers.rest().len() as u64),
            ("bytes of the filter's payload", payload, payload_bytes),
        ] {
            if expected != found {
                return Err(DecodeError::Mismatch { what, expected, found });
            }
        }
        let group_crc32s = crc32s.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Ok(Self { key_count, parameters, payload_bytes, group_crc32s })
    }
}

/// Splits a block, or the end of one, before its trailer.
pub(super) fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let what = "filter trailer";
    let have = bytes.len() as u64;
    let Some((_, end)) = bytes.split_last_chunk::<END_BYTES>() else {
        return Err(DecodeError::Truncated { what, need: END_BYTES as u64, have });
    };
    let trailer_bytes = usize::from(end[2]);
    if trailer_bytes < END_BYTES {
        let what = "bytes of the filter trailer";
        return Err(DecodeError::OutOfRange { what, value: trailer_bytes as u64 });
    }
    let at = bytes.len().checked_sub(trailer_bytes);
    let at = at.ok_or(DecodeError::Truncated { what, need: trailer_bytes as u64, have })?;
    Ok(bytes.split_at(at))
}

/// Returns the checksum of a trailer that begins with `covered`.
pub(super) fn crc32(expected: Expected, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&expected.hash_seed.to_le_bytes());
    hasher.update(&expected.salt.to_le_bytes());
    hasher.update(covered);
    hasher.finalize()
}

fn require_known(what: &'static str, value: u64, known: u64) -> Result<(), DecodeError> {
    if value == known {
        return Ok(());
    }
    Err(DecodeError::Unsupported { what, value })
}
