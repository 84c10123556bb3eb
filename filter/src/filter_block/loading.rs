//! Loads a filter from its block, piece by piece.
//!
//! Only one piece is in memory besides the filter, and stays in the CPU's cache. If 6 MB of filters
//! are read whole, allocations for their bytes take half of the time.

use alloc::boxed::Box;
use core::ops::Range;

use super::parameters::Parameters;
use super::trailer::{GROUPS, Trailer};
use super::{COLUMNS, FilterKind, check_crc32};
use crate::arena::{FilterArena, SliceBuilder};
use crate::binary_fuse::{self, BinaryFuse8, BinaryFuse16, Print};
use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::line::{LINE_BYTES, Line};
use crate::range_filter::{self, RangeFilter};
use crate::ribbon;
use crate::table_filter::TableFilter;

/// Maximum bytes of a block per read, a multiple of a line. Small enough for allocators to reuse
/// the memory.
pub const PIECE_BYTES: u64 = 64 << 10;

/// A point filter, as far as it was read.
enum Loading {
    BlockedBloom { lines: SliceBuilder<Line>, probes: u8 },
    Ribbon(Box<ribbon::Loading>),
    BinaryFuse8(SliceBuilder<u8>, binary_fuse::Header),
    BinaryFuse16(SliceBuilder<u16>, binary_fuse::Header),
}

impl Trailer {
    /// Loads a point filter as [`decode`](Self::decode) does, with its memory in `arena`.
    ///
    /// `read` returns exactly the requested range of the block. The ranges of
    /// [`front_bytes`](Self::front_bytes) are requested in order, at most [`PIECE_BYTES`] at a
    /// time.
    ///
    /// # Errors
    ///
    /// Errors of `read`; [`DecodeError`] if it returns more or fewer bytes, a group is damaged, or
    /// it is a range filter.
    pub fn load_in<B: AsRef<[u8]>, E: From<DecodeError>>(
        &self,
        columns: f64,
        arena: &FilterArena,
        read: impl FnMut(Range<u64>) -> Result<B, E>,
    ) -> Result<TableFilter, E> {
        let mut loading = Loading::new(self, columns, arena)?;
        self.for_each_piece(columns, read, |group, bytes| loading.put(group, bytes))?;
        Ok(loading.finish(self.key_count()))
    }

    /// Loads a range filter as [`decode_range`](super::decode_range) does, with its memory in
    /// `arena`. `read` is called as by [`load_in`](Self::load_in).
    ///
    /// # Errors
    ///
    /// Errors of `read`; [`DecodeError`] if it returns more or fewer bytes, the payload is damaged,
    /// or it is a point filter.
    pub fn load_range_in<B: AsRef<[u8]>, E: From<DecodeError>>(
        &self,
        arena: &FilterArena,
        read: impl FnMut(Range<u64>) -> Result<B, E>,
    ) -> Result<RangeFilter, E> {
        let Parameters::Range(header) = self.parameters() else {
            let what = "kind of the range filter";
            let (expected, found) = (FilterKind::Range as u64, self.kind() as u64);
            return Err(DecodeError::Mismatch { what, expected, found }.into());
        };
        let mut loading = range_filter::Loading::new(*header, arena);
        self.for_each_piece(COLUMNS, read, |_, bytes| loading.put(bytes))?;
        Ok(loading.finish(self.key_count())?)
    }

    /// Passes the groups with the first `columns` columns to `put`, piece by piece, with their
    /// index. Returns an error after the last piece of a group whose checksum is wrong.
    fn for_each_piece<B: AsRef<[u8]>, E: From<DecodeError>>(
        &self,
        columns: f64,
        mut read: impl FnMut(Range<u64>) -> Result<B, E>,
        mut put: impl FnMut(usize, &[u8]),
    ) -> Result<(), E> {
        let groups = self.groups(columns).into_iter().zip(self.group_crc32s()).zip(GROUPS);
        for (index, ((group, &stored), what)) in groups.enumerate() {
            let mut computed = crc32fast::Hasher::new();
            let mut left = group;
            while !left.is_empty() {
                let piece = left.start..left.end.min(left.start + PIECE_BYTES);
                left.start = piece.end;
                let (expected, bytes) = (piece.end - piece.start, read(piece)?);
                let (bytes, found) = (bytes.as_ref(), bytes.as_ref().len() as u64);
                if found != expected {
                    let what = "bytes of a piece of the filter";
                    return Err(DecodeError::Mismatch { what, expected, found }.into());
                }
                computed.update(bytes);
                put(index, bytes);
            }
            check_crc32(what, stored, computed.finalize())?;
        }
        Ok(())
    }
}

impl Loading {
    fn new(trailer: &Trailer, columns: f64, arena: &FilterArena) -> Result<Self, DecodeError> {
        let value = trailer.payload_bytes();
        let payload_bytes = usize::try_from(value).map_err(|_| {
            let what = "bytes of the filter's payload";
            DecodeError::OutOfRange { what, value }
        })?;
        Ok(match trailer.parameters() {
            &Parameters::BlockedBloom { probes } => {
                let lines = SliceBuilder::new(payload_bytes / LINE_BYTES, arena);
                Self::BlockedBloom { lines, probes }
            }
            Parameters::Ribbon(header) => {
                let loading = ribbon::Loading::new(header.layout(), columns, arena);
                Self::Ribbon(Box::new(loading))
            }
            Parameters::BinaryFuse(header) if header.print_bits() == u8::BITS => {
                Self::BinaryFuse8(SliceBuilder::new(payload_bytes, arena), *header)
            }
            Parameters::BinaryFuse(header) => Self::BinaryFuse16(
                SliceBuilder::new(payload_bytes / size_of::<u16>(), arena),
                *header,
            ),
            Parameters::Range(_) => {
                let value = FilterKind::Range as u64;
                return Err(DecodeError::OutOfRange { what: "kind of a point filter", value });
            }
        })
    }

    /// Adds the next bytes of the payload, which belong to group `group`.
    fn put(&mut self, group: usize, bytes: &[u8]) {
        match self {
            Self::BlockedBloom { lines, .. } => {
                let (stored, _) = bytes.as_chunks();
                lines.extend(stored.iter().map(Line::from_bytes));
            }
            Self::Ribbon(ribbon) => ribbon.put(group, bytes),
            Self::BinaryFuse8(slots, _) => slots.extend(u8::take_all(bytes)),
            Self::BinaryFuse16(slots, _) => slots.extend(u16::take_all(bytes)),
        }
    }

    /// # Panics
    ///
    /// If bytes of the payload are missing.
    fn finish(self, key_count: u64) -> TableFilter {
        match self {
            Self::BlockedBloom { lines, probes } => {
                BlockedBloom::from_lines(lines.finish(), probes, key_count).into()
            }
            Self::Ribbon(ribbon) => ribbon.finish(key_count).into(),
            Self::BinaryFuse8(slots, header) => {
                BinaryFuse8::from_stored(&header, slots.finish(), key_count).into()
            }
            Self::BinaryFuse16(slots, header) => {
                BinaryFuse16::from_stored(&header, slots.finish(), key_count).into()
            }
        }
    }
}
