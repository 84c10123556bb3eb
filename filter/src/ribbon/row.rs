//! The equation of a hash in a layer: its start, its coefficients and its fingerprint.
//!
//! | part         | from the 128 bits of `(hash ^ seed) * MIX`, with the mix `g = high ^ low` of its halves |
//! |--------------|---------------------------------------------------------------------------------|
//! | start        | high half of the 128 bits of `g * starts`                                       |
//! | coefficients | low half: bit `s % 64` is the coefficient of slot `s`, for the 64 slots from the start; that of the start is 1 |
//! | fingerprint  | the 32 low bits of `high`, one per column                                       |
//!
//! `starts` is odd, so both halves of the second product are as random as `g`. For random hashes
//! the low half of `high` is practically independent of `g`, which also contains `low`. So absent
//! keys match each column with probability one half. For sequential hashes the upper bits hardly
//! change, so hashes must be random. A separate product for the fingerprint made a probe 5 %
//! slower.
//!
//! The second layer has most bumped keys. Its mix is the coefficients of the first layer times an
//! odd factor, and its fingerprint is the same. Not keeping `g` for it made a probe another 5 %
//! faster.

/// Slots that an equation spans: one machine word.
pub(crate) const WIDTH: u64 = 64;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// An equation over GF(2): the sum of the selected slots is the fingerprint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) start: u64,
    /// Bit `i` is the coefficient of slot `start + i`. Bit 0 is 1.
    pub(crate) coefficients: u64,
    pub(crate) fingerprint: u32,
}

impl Row {
    /// Returns the equation of `hash` in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn new(hash: u64, source: Source, starts: u64) -> Self {
        let TurnedRow { start, coefficients, fingerprint } = TurnedRow::new(hash, source, starts);
        let coefficients = coefficients.rotate_right((start % WIDTH) as u32) | 1;
        Self { start, coefficients, fingerprint }
    }
}

/// The same equation in the form that probes use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnedRow {
    pub(crate) start: u64,
    /// Bit `s % 64` is the coefficient of slot `s`. The bit of the start is ignored and counts as
    /// 1.
    pub(crate) coefficients: u64,
    pub(crate) fingerprint: u32,
}

impl TurnedRow {
    pub(crate) const ZERO: Self = Self { start: 0, coefficients: 0, fingerprint: 0 };

    /// Returns the equation of `hash` in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn new(hash: u64, source: Source, starts: u64) -> Self {
        match source {
            Source::Mix { seed } => Mixed::new(hash, seed).row(starts),
            Source::Second { first_seed, first_starts, factor } => {
                Mixed::new(hash, first_seed).row(first_starts).in_second(factor, starts)
            }
        }
    }

    /// Returns the equation in the second layer, of `starts` starts, of a key with this equation in
    /// the first.
    #[inline(always)]
    pub(crate) fn in_second(self, factor: u64, starts: u64) -> Self {
        let (start, coefficients) = halves(self.coefficients.wrapping_mul(factor), starts);
        Self { start, coefficients, ..self }
    }
}

/// Source of a layer's equations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The mix of hash and seed.
    Mix { seed: u64 },
    /// For the second layer: the coefficients in the first layer, and an odd factor.
    Second { first_seed: u64, first_starts: u64, factor: u64 },
}

impl Source {
    /// Returns the source of layer `layer` at attempt `attempt`; the first layer has
    /// `first_attempt` and `first_starts`.
    pub(crate) const fn new(
        layer: usize,
        attempt: u16,
        first_attempt: u16,
        first_starts: u64,
    ) -> Self {
        let seed = seed(layer, attempt);
        match layer {
            1 => {
                let first_seed = self::seed(0, first_attempt);
                Self::Second { first_seed, first_starts, factor: seed | 1 }
            }
            _ => Self::Mix { seed },
        }
    }
}

/// The part of a hash's first-layer equation that does not depend on the number of starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixed {
    g: u64,
    fingerprint: u32,
}

impl Mixed {
    #[inline(always)]
    pub(crate) fn new(hash: u64, seed: u64) -> Self {
        let (high, low) = halves(hash ^ seed, MIX);
        Self { g: high ^ low, fingerprint: high as u32 }
    }

    /// Returns the equation in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn row(self, starts: u64) -> TurnedRow {
        let (start, coefficients) = halves(self.g, starts);
        TurnedRow { start, coefficients, fingerprint: self.fingerprint }
    }
}

/// Returns the seed of layer `layer` at attempt `attempt`.
pub(crate) const fn seed(layer: usize, attempt: u16) -> u64 {
    let number = (layer as u64) << 16 | attempt as u64;
    let mixed = (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Returns the high and low half of the product.
#[inline(always)]
fn halves(left: u64, right: u64) -> (u64, u64) {
    let product = u128::from(left) * u128::from(right);
    ((product >> 64) as u64, product as u64)
}
