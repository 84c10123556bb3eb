//! What a hash means to a layer: where its equation starts, which slots it adds up, and to what.
//!
//! | part        | from a 64-bit mix `g` of hash and layer seed                                  |
//! |-------------|-------------------------------------------------------------------------------|
//! | start       | high bits: `g * starts / 2^64`                                                |
//! | coefficients | 64 bits, of which bit 0 is 1: bit `i` says whether slot `start + i` takes part |
//! | fingerprint | 32 bits, one for each column                                                  |
//!
//! Coefficients and fingerprint come from two multiplications of `g`: a fingerprint that were a
//! linear function of the coefficients would be met by every absent key.

/// Slots that an equation spans: one machine word.
pub(crate) const WIDTH: u64 = 64;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const COEFFICIENTS: u64 = 0xd6e8_feb8_6659_fd93;
const FINGERPRINT: u64 = 0xa076_1d64_78bd_642f;

/// One equation over GF(2): the sum of the chosen slots is the fingerprint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) coefficients: u64,
    pub(crate) fingerprint: u32,
}

impl Row {
    /// The equation of `hash` in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn new(hash: u64, seed: u64, starts: u64) -> Self {
        let g = mix(hash, seed);
        let folded = g ^ (g >> 32);
        Self {
            start: high_product(g, starts),
            coefficients: folded.wrapping_mul(COEFFICIENTS) | 1,
            // The high half: its bits depend on all of `folded`.
            fingerprint: (folded.wrapping_mul(FINGERPRINT) >> 32) as u32,
        }
    }
}

/// The start alone, below `starts`.
#[inline(always)]
pub(crate) fn start(hash: u64, seed: u64, starts: u64) -> u64 {
    high_product(mix(hash, seed), starts)
}

/// The seed of layer `layer` at attempt `attempt`.
pub(crate) fn seed(layer: usize, attempt: u16) -> u64 {
    let number = (layer as u64) << 16 | u64::from(attempt);
    let mixed = (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[inline(always)]
fn mix(hash: u64, seed: u64) -> u64 {
    let product = u128::from(hash ^ seed) * u128::from(MIX);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn high_product(left: u64, right: u64) -> u64 {
    ((u128::from(left) * u128::from(right)) >> 64) as u64
}
