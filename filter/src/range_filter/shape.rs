//! The size of the universe of codes.

use super::elias_fano::DIRECTORY_BITS_PER_BIT;

/// Minimum bits per key of a range filter. With fewer, a range of one point would match more often
/// than not.
pub const BITS_PER_KEY_MIN: f64 = 4.0;

/// Maximum number of distinct points: positions have 32 bits.
pub const POINTS_MAX: u64 = 1 << 31;

/// Maximum universe: the sum of two codes must fit 64 bits.
pub(super) const UNIVERSE_MAX: u64 = 1 << 63;

/// The range of codes, and the split of their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Codes are below this; at least 1.
    pub(super) universe: u64,
    /// Bits of a code that are stored verbatim, at most 62.
    pub(super) low_bits: u32,
}

impl Shape {
    /// Returns the largest universe with which `codes` codes take `bits_per_key` bits each.
    ///
    /// With `u` universe codes per stored code and `low_bits` low bits, an upper part takes `1 + u
    /// / 2^low_bits` bits plus its share of the directory. The minimum has `u / 2^low_bits` between
    /// 1 and 2.
    pub(super) fn new(codes: u64, bits_per_key: f64) -> Self {
        let per_upper_bit = 1.0 + DIRECTORY_BITS_PER_BIT;
        let low_bits = (bits_per_key - 2.0 * per_upper_bit) as u32; // From 1 to 37, rounded down.
        let buckets_per_code = (bits_per_key - f64::from(low_bits)) / per_upper_bit - 1.0;
        let universe = codes as f64 * buckets_per_code * (1_u64 << low_bits) as f64;
        Self { universe: (universe as u64).clamp(1, UNIVERSE_MAX), low_bits }
    }

    /// Returns the number of values of the upper parts.
    pub(super) fn buckets(self) -> u64 {
        ((self.universe - 1) >> self.low_bits) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::BITS_PER_KEY_MAX;

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn shapes_match_the_bits_and_the_rate() {
        let mut bits_per_key = BITS_PER_KEY_MIN;
        while bits_per_key <= BITS_PER_KEY_MAX {
            let codes = 1_u64 << 20;
            let shape = Shape::new(codes, bits_per_key);
            let upper = (codes + shape.buckets()) as f64 * (1.0 + DIRECTORY_BITS_PER_BIT);
            let bits = f64::from(shape.low_bits) + upper / codes as f64;
            assert!((bits - bits_per_key).abs() < 1e-3, "{bits_per_key}: {bits}");
            let rate = codes as f64 / shape.universe as f64;
            let bound = 4.0 / bits_per_key.exp2();
            assert!((0.93..1.07).contains(&(rate / bound)), "{bits_per_key}: {}", rate / bound);
            bits_per_key += 0.01;
        }
    }

    #[test]
    fn extreme_shapes_are_in_bounds() {
        for codes in [0, 1, 2, 3, POINTS_MAX] {
            for bits_per_key in [BITS_PER_KEY_MIN, 7.9, BITS_PER_KEY_MAX] {
                let shape = Shape::new(codes, bits_per_key);
                assert!((1..=UNIVERSE_MAX).contains(&shape.universe), "{shape:?}");
                assert!(shape.buckets() <= u32::MAX.into(), "{shape:?}");
            }
        }
    }
}
