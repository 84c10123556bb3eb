//! A locality-preserving hash of points.

/// A hash that maps points to codes below the universe.
///
/// A block is as many consecutive points as there are codes. Each block is rotated by an offset
/// that is pairwise independent of the offsets of all other blocks. So two points of one block
/// never share a code, and two points of different blocks share one with a probability of 1 /
/// universe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coder {
    universe: u64,
    multiplier: u128,
    addend: u128,
}

impl Coder {
    /// Creates a hash. `universe` is from 1 to `2^63`.
    pub(super) fn new(universe: u64, seed: u64) -> Self {
        let mut state = seed;
        let mut wide = || u128::from(next(&mut state)) << 64 | u128::from(next(&mut state));
        Self { universe, multiplier: wide(), addend: wide() }
    }

    pub(super) fn code(&self, point: u64) -> u64 {
        let (block, within) = (point / self.universe, point % self.universe);
        // Both are below `2^63`.
        let code = self.shift(block) + within;
        if code < self.universe { code } else { code - self.universe }
    }

    /// Returns the rotation of a block, below the universe.
    ///
    /// The upper half of a product of 128 bits is pairwise independent for factors of 64 bits, also
    /// if these are permuted. Without the permutation, the rotations of adjacent blocks would
    /// differ by a constant, and evenly spaced ranges would all match, or none. Source:
    /// Dietzfelbinger, "Universal Hashing and k-Wise Independent Random Variables via Integer
    /// Arithmetic without Primes", STACS 1996.
    fn shift(&self, block: u64) -> u64 {
        let hash = self.multiplier.wrapping_mul(mix(block).into()).wrapping_add(self.addend) >> 64;
        ((hash * u128::from(self.universe)) >> 64) as u64 // Both factors have 64 bits.
    }
}

/// Returns the next number of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Applies the permutation of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_block_keeps_its_order_and_no_two_points_share_a_code() {
        for (universe, seed) in [(1, 0), (2, 1), (7, 2), (1_000, 3), (1 << 63, 4), (3 << 61, 5)] {
            let coder = Coder::new(universe, seed);
            for block in [0, 1, 5, u64::MAX / universe].map(|it| it.min(u64::MAX / universe)) {
                let start = block * universe;
                let first = coder.code(start);
                for within in (0..universe.min(2_000)).chain([universe - 1, universe / 2]) {
                    let Some(point) = start.checked_add(within) else { continue };
                    let code = u128::from(first) + u128::from(within);
                    assert_eq!(u128::from(coder.code(point)), code % u128::from(universe));
                }
            }
        }
    }

    /// Stored filters depend on these. They were computed by an independent implementation.
    #[test]
    fn codes_are_pinned() {
        let cases = [
            (1_000, 0, 5, 31),
            (1 << 40, 7, u64::MAX, 0x90_96b6_b406),
            (1 << 63, u64::MAX, 1 << 63, 0x42a0_0cfc_73b5_fe40),
        ];
        for (universe, seed, point, want) in cases {
            assert_eq!(Coder::new(universe, seed).code(point), want, "{universe}, {seed}, {point}");
        }
    }
}
