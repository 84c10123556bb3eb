//! The places of a key in an array, by enhanced double hashing.
//!
//! Source: Dillinger and Manolios, "Bloom Filters in Probabilistic Verification", FMCAD 2004,
//! section 5.2: probe `i` is `x + i y + (i^3 - i) / 6`. The cubic term matters: without it two keys
//! whose steps are opposite share all probes, and a step of zero leaves one. Here it is multiplied
//! by an odd constant, since a place comes from the high bits of a probe.

/// The most probes per key. Beyond it the collisions of 64-bit hashes would be what errs.
pub const PROBES_MAX: u32 = 64;

/// 2^64 over the golden ratio: the multiples of it, and their sums, spread evenly.
const CUBIC: u64 = 0x9e37_79b9_7f4a_7c15;
/// Odd, and unlike [`CUBIC`]: makes the step depend on the low bits of the hash, which the place of
/// the first probe does not tell.
const STEP: u64 = 0xd6e8_feb8_6659_fd93;

/// The probes of one key: 64-bit numbers, uniform if the hash is.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    probe: u64,
    step: u64,
    step_of_step: u64,
}

impl Probes {
    #[inline]
    pub(crate) fn new(hash: u64) -> Self {
        Self { probe: hash, step: hash.wrapping_mul(STEP), step_of_step: 0 }
    }

    /// The place of the next probe in an array of `len` places.
    ///
    /// By multiplication, not by a remainder: Lemire, "Fast Random Integer Generation in an
    /// Interval", TOMACS 29(1), 2019. 64 bits wide, so that an array of any length is used evenly.
    #[inline]
    pub(crate) fn next_in(&mut self, len: u64) -> u64 {
        // Below `len`, which is a `u64`.
        let place = ((u128::from(self.probe) * u128::from(len)) >> u64::BITS) as u64;
        self.probe = self.probe.wrapping_add(self.step);
        self.step_of_step = self.step_of_step.wrapping_add(CUBIC);
        self.step = self.step.wrapping_add(self.step_of_step);
        place
    }
}
