//! The payload of a range filter's block, and the trailer numbers needed to read it.
//!
//! The payload is words of 64 bits, little-endian. First are the low bits of all codes in ascending
//! order. Then, in separate words, each bucket has a 1-bit per code and a 0-bit.
//!
//! | number         | meaning                                                                |
//! |----------------|------------------------------------------------------------------------|
//! | `prefix_bytes` | length of the common prefix of all keys, which no point includes        |
//! | `point_bytes`  | bytes of a key after the prefix that form its point, 1 to 8             |
//! | `codes`        | distinct codes; at most `key_count`, and 0 only if that is 0            |
//! | `universe`     | codes are below this, 1 to `2^63`                                       |
//! | `low_bits`     | low bits of a code, 0 to 62; the others are the number of its bucket    |
//! | `seed`         | seed of the hash                                                        |
//!
//! `key_count` of the trailer is the number of distinct points.

use super::RangeFilter;
use super::coder::Coder;
use super::elias_fano::{EliasFano, words};
use super::key_points::POINT_BYTES_MAX;
use super::shape::{POINTS_MAX, Shape, UNIVERSE_MAX};
use crate::arena::{FilterArena, SliceBuilder};
use crate::decode_error::DecodeError;
use crate::page_vec::{PageVec, SystemPages};

/// The numbers needed to read the payload, except for the point count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    prefix_bytes: u64,
    point_bytes: u8,
    codes: u64,
    shape: Shape,
    seed: u64,
}

impl Header {
    /// Names of the numbers of the trailer.
    pub(crate) const NAMES: [&'static str; 6] =
        ["prefix_bytes", "point_bytes", "codes", "universe", "low_bits", "seed"];

    /// Returns the numbers of the trailer.
    pub(crate) fn numbers(&self) -> [u64; 6] {
        let Shape { universe, low_bits } = self.shape;
        [
            self.prefix_bytes,
            self.point_bytes.into(),
            self.codes,
            universe,
            low_bits.into(),
            self.seed,
        ]
    }

    /// Checks and converts the numbers of the trailer.
    pub(crate) fn from_numbers(numbers: [u64; 6], key_count: u64) -> Result<Self, DecodeError> {
        let [prefix_bytes, point_bytes, codes, universe, low_bits, seed] = numbers;
        let out_of_range = |what, value| Err(DecodeError::OutOfRange { what, value });
        if !(1..=POINT_BYTES_MAX as u64).contains(&point_bytes) {
            return out_of_range("bytes of a point", point_bytes);
        }
        if codes > key_count.min(POINTS_MAX) || (codes == 0) != (key_count == 0) {
            return out_of_range("number of codes of the filter", codes);
        }
        if !(1..=UNIVERSE_MAX).contains(&universe) {
            return out_of_range("universe of the filter", universe);
        }
        if low_bits >= u64::from(u64::BITS) - 1 {
            return out_of_range("low bits of a code", low_bits);
        }
        let shape = Shape { universe, low_bits: low_bits as u32 };
        Ok(Self { prefix_bytes, point_bytes: point_bytes as u8, codes, shape, seed })
    }

    /// Returns the bytes of the words.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let [lows, uppers] = words(self.codes, self.shape);
        lows.saturating_add(uppers).saturating_mul(size_of::<u64>() as u64)
    }
}

impl RangeFilter {
    pub(crate) fn header(&self) -> Header {
        let Self { ref codes, shape, seed, prefix_bytes, point_bytes, .. } = *self;
        Header { prefix_bytes, point_bytes, codes: codes.len() as u64, shape, seed }
    }

    pub(crate) fn to_payload(&self) -> PageVec<u8> {
        let mut bytes = PageVec::new_in(SystemPages);
        bytes.extend(self.codes.words().flat_map(u64::to_le_bytes));
        bytes
    }
}

/// A range filter that is loaded from its payload.
pub(crate) struct Loading {
    header: Header,
    lows: SliceBuilder<u64>,
    uppers: SliceBuilder<u64>,
    /// Words of `lows` not read yet.
    lows_left: usize,
}

impl Loading {
    /// Starts to load a payload of the length that `header` gives.
    pub(crate) fn new(header: Header, arena: &FilterArena) -> Self {
        // The caller has them in memory.
        let [lows, uppers] = words(header.codes, header.shape).map(|words| words as usize);
        let lows_left = lows;
        let [lows, uppers] = [lows, uppers].map(|words| SliceBuilder::new(words, arena));
        Self { header, lows, uppers, lows_left }
    }

    /// Adds the next bytes, a multiple of 8.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks();
        let (lows, uppers) = words.split_at(words.len().min(self.lows_left));
        self.lows_left -= lows.len();
        self.lows.extend(lows.iter().map(|word| u64::from_le_bytes(*word)));
        self.uppers.extend(uppers.iter().map(|word| u64::from_le_bytes(*word)));
    }

    /// Returns the filter.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the buckets do not hold as many codes as the header gives.
    ///
    /// # Panics
    ///
    /// If bytes are missing.
    pub(crate) fn finish(self, key_count: u64) -> Result<RangeFilter, DecodeError> {
        let Header { prefix_bytes, point_bytes, codes, shape, seed } = self.header;
        let (lows, uppers) = (self.lows.finish(), self.uppers.finish());
        let codes = EliasFano::checked(lows, uppers, codes as usize, shape)?;
        let coder = Coder::new(shape.universe, seed);
        Ok(RangeFilter { coder, codes, shape, seed, prefix_bytes, point_bytes, key_count })
    }
}
