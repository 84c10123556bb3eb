//! The number of slots of a filter, and their segments.
//!
//! Segment length and size are those of Graf and Lemire, section 4, in integers. `log2(n)` is
//! interpolated linearly between powers of two, so it is never too high. A segment is then at most
//! slightly shorter than theirs, which just after their steps is too long to be filled.

use crate::decode_error::DecodeError;

/// Slots of a key, one in each of as many adjacent segments.
pub(crate) const ARITY: usize = 3;

/// Binary logarithm of the longest segment: longer ones fill no better and need more cache.
pub(crate) const SEGMENT_LOG2_MAX: u32 = 18;

/// Minimum keys of a filter with 9 slots per 8 keys.
const LARGE: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Binary logarithm of the slots of a segment, at most [`SEGMENT_LOG2_MAX`].
    pub(crate) segment_log2: u32,
    /// Segments in which a key may begin, at least 1. Two more follow them.
    pub(crate) segments: u64,
}

impl Shape {
    /// Returns the shape for `keys` keys.
    ///
    /// Every other attempt has segments of half the length, which suits some numbers of keys
    /// better.
    pub(crate) fn new(keys: u64, attempt: u8) -> Self {
        // The published `log(n) / log(3.33) + 2.25`, with 512 / 295 = log2(3.33).
        let full = ((log2_256ths(keys) * 295 / 512 + 576) / 256) as u32; // At most 39.
        let segment_log2 = full.min(SEGMENT_LOG2_MAX) - u32::from(attempt % 2);
        // The published `0.875 + 0.25 log(1e6) / log(n)`, and 9 / 8 for large sets.
        let slots = match keys {
            0 | 1 => 0,
            2..LARGE => keys * 7 / 8 + (keys * 1276).div_ceil(log2_256ths(keys)),
            LARGE.. => keys + keys.div_ceil(8),
        };
        let segments = slots.div_ceil(1 << segment_log2);
        Self { segment_log2, segments: segments.saturating_sub(ARITY as u64 - 1).max(1) }
    }

    /// Checks and converts the numbers of a trailer.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the number of slots is 0 or overflows.
    pub(crate) fn from_numbers(segment_log2: u64, segments: u64) -> Result<Self, DecodeError> {
        let ranges = [
            ("segment length of the filter", segment_log2, 0..=SEGMENT_LOG2_MAX.into()),
            // Leaves room for the factors of segment length, bytes, and two more segments.
            ("segments of the filter", segments, 1..=u64::MAX >> (SEGMENT_LOG2_MAX + 2)),
        ];
        for (what, value, range) in ranges {
            if !range.contains(&value) {
                return Err(DecodeError::OutOfRange { what, value });
            }
        }
        Ok(Self { segment_log2: segment_log2 as u32, segments }) // Checked above.
    }

    /// Returns the slots of all segments.
    pub(crate) fn slots(&self) -> u64 {
        (self.segments + ARITY as u64 - 1) << self.segment_log2
    }
}

/// Returns `256 log2(n)`, rounded down slightly; 0 for 0.
fn log2_256ths(n: u64) -> u64 {
    let Some(whole) = n.checked_ilog2() else { return 0 };
    // The eight bits after the highest.
    let fraction = (u128::from(n) << 8 >> whole) as u64 - 256; // From 0 to 255.
    u64::from(whole) * 256 + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_equal_published_ones() {
        for exponent in 4..34 {
            for keys in [1_u64 << exponent, 3 << (exponent - 1), 1_000_003 << (exponent - 4) >> 16]
            {
                let n = keys as f64;
                let shape = Shape::new(keys, 0);
                let length = (n.ln() / 3.33_f64.ln() + 2.25).floor().min(18.0);
                let found = f64::from(shape.segment_log2);
                assert!(found == length || found + 1.0 == length, "{keys} keys: {found}, {length}");
                let factor = (0.875 + 0.25 * 1e6_f64.ln() / n.ln()).max(1.125);
                let least = n * factor;
                let most = least * 1.01 + 2.0 * length.exp2() + 2.0;
                let slots = shape.slots() as f64;
                assert!((least..=most).contains(&slots), "{keys} keys: {slots}, {least}");
            }
        }
    }

    #[test]
    fn every_number_of_keys_has_slots() {
        for keys in (0..100).chain([u64::from(u32::MAX), 1 << 40, 1 << 50]) {
            for attempt in 0..2 {
                let shape = Shape::new(keys, attempt);
                assert!(shape.segments >= 1);
                assert!(shape.slots() >= keys + keys / 8, "{keys} keys: {shape:?}");
            }
        }
    }

    #[test]
    fn invalid_shapes_are_rejected() {
        assert!(Shape::from_numbers(0, 1).is_ok());
        for (segment_log2, segments) in [(0, 0), (19, 1), (u64::MAX, 1), (18, u64::MAX)] {
            let found = Shape::from_numbers(segment_log2, segments);
            assert!(found.is_err(), "{segment_log2}, {segments}");
        }
        let largest = Shape::from_numbers(18, u64::MAX >> 20).expect("in range");
        assert!(largest.slots() > 1 << 60);
    }
}
