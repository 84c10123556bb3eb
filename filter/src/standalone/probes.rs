//! The positions of a key in an array, by enhanced double hashing.
//!
//! Source: Dillinger and Manolios, "Bloom Filters in Probabilistic Verification", FMCAD 2004,
//! section 5.2: probe `i` is `x + i y + (i^3 - i) / 6`. Without the cubic term, two keys with
//! opposite steps share all probes, and a step of zero leaves one. Here it is multiplied by an odd
//! constant, because a position comes from the high bits of a probe.

/// Maximum probes per key. Beyond it, collisions of 64-bit hashes dominate the rate.
pub const PROBES_MAX: u32 = 64;

/// 2^64 over the golden ratio. Its multiples and their sums are spread evenly.
const CUBIC: u64 = 0x9e37_79b9_7f4a_7c15;
/// Odd, and unlike [`CUBIC`]. Makes the step depend on the low bits of the hash, which the first
/// position ignores.
const STEP: u64 = 0xd6e8_feb8_6659_fd93;

/// The positions of one key.
#[derive(Debug, Clone)]
pub(super) struct Places {
    probe: u64,
    step: u64,
    step_of_step: u64,
    /// Length of the part of the array with the next position.
    len: u64,
    /// Start of that part.
    base: u64,
    /// Distance between the starts of parts.
    stride: u64,
}

impl Places {
    /// Returns positions anywhere in an array of `len`.
    #[inline]
    pub(super) fn anywhere(hash: u64, len: u64) -> Self {
        // The sum keeps the first two probes of hash 0 apart.
        let step = hash.wrapping_mul(STEP).wrapping_add(CUBIC);
        Self { probe: hash, step, step_of_step: CUBIC, len, base: 0, stride: 0 }
    }

    /// Returns one position in each slice of `slice` positions.
    #[inline]
    pub(super) fn one_per_slice(hash: u64, slice: u64) -> Self {
        Self { stride: slice, ..Self::anywhere(hash, slice) }
    }

    /// Returns the first `n` positions.
    #[inline]
    pub(super) fn take(mut self, n: u32) -> impl Iterator<Item = u64> {
        (0..n).map(move |_| self.next())
    }

    #[inline]
    fn next(&mut self) -> u64 {
        // By multiplication instead of a remainder: Lemire, "Fast Random Integer Generation in an
        // Interval", TOMACS 29(1), 2019. 64 bits wide, for arrays of any length. The upper half of
        // the product is below `len`.
        let place = ((u128::from(self.probe) * u128::from(self.len)) >> u64::BITS) as u64;
        let place = self.base + place;
        self.base += self.stride;
        self.probe = self.probe.wrapping_add(self.step);
        self.step_of_step = self.step_of_step.wrapping_add(CUBIC);
        self.step = self.step.wrapping_add(self.step_of_step);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that break plain double hashing: a step of zero, opposite steps, equal halves.
    #[test]
    fn probes_of_hard_hashes_differ() {
        const LEN: u64 = 1 << 40;
        let sorted = |hash| {
            let mut places: Vec<u64> = Places::anywhere(hash, LEN).take(16).collect();
            places.sort_unstable();
            places
        };
        let mut seen = std::collections::BTreeSet::new();
        for hash in [0, 1, 2, 1 << 63, 1 << 32, 0x5555_5555_5555_5555, STEP, CUBIC] {
            for hash in [hash, hash.wrapping_neg()] {
                let mut places = sorted(hash);
                seen.insert(places.clone());
                places.dedup();
                assert_eq!(places.len(), 16, "{hash:#x}");
            }
        }
        // 0 and 1 << 63 are their own opposites.
        assert_eq!(seen.len(), 14, "two hashes share all probes");
    }

    #[test]
    fn places_are_within_the_array() {
        for len in [1, 2, 63, 1000, u64::from(u32::MAX), u64::MAX] {
            for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
                let mut places = Places::anywhere(hash, len).take(PROBES_MAX);
                assert!(places.all(|place| place < len), "{len} places, hash {hash:#x}");
            }
        }
    }
}
