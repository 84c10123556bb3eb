//! What a hash means to a layer: where its equation starts, which slots it adds up, and to what.
//!
//! | part         | from the 128 bits of `(hash ^ seed) * MIX`, whose halves make the mix `g = high ^ low` |
//! |--------------|---------------------------------------------------------------------------------|
//! | start        | the high half of the 128 bits of `g * starts`                                   |
//! | coefficients | the low half: bit `s % 64` says whether slot `s` of the 64 from the start on takes part; the start does |
//! | fingerprint  | the 32 low bits of `high`, one for each column                                  |
//!
//! `starts` is odd, so that each half of the second product is as random as `g`. Of random hashes
//! the low half of `high` looks independent of `g`, which has as much of `low`: absent keys meet
//! each column with one half. Of hashes in order it hardly changes in its upper bits: they must be
//! as good as random. A product of its own for the fingerprint made a question 5 % longer.
//!
//! The second layer, which most bumped keys belong to, takes the coefficients of the first, times
//! an odd factor, for the mix, and has the same fingerprint. That `g` need not be kept for it made
//! a question another 5 % shorter.

/// Slots that an equation spans: one machine word.
pub(crate) const WIDTH: u64 = 64;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// One equation over GF(2): the sum of the chosen slots is the fingerprint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) start: u64,
    /// Bit `i` says whether slot `start + i` takes part. Bit 0 is 1.
    pub(crate) coefficients: u64,
    pub(crate) fingerprint: u32,
}

impl Row {
    /// The equation of `hash` in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn new(hash: u64, source: Source, starts: u64) -> Self {
        let TurnedRow { start, coefficients, fingerprint } = TurnedRow::new(hash, source, starts);
        let coefficients = coefficients.rotate_right((start % WIDTH) as u32) | 1;
        Self { start, coefficients, fingerprint }
    }
}

/// The same equation as a question needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnedRow {
    pub(crate) start: u64,
    /// Bit `s % 64` says whether slot `s` takes part. That of the start, which does, may be
    /// anything.
    pub(crate) coefficients: u64,
    pub(crate) fingerprint: u32,
}

impl TurnedRow {
    pub(crate) const ZERO: Self = Self { start: 0, coefficients: 0, fingerprint: 0 };

    /// The equation of `hash` in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn new(hash: u64, source: Source, starts: u64) -> Self {
        match source {
            Source::Mix { seed } => Mixed::new(hash, seed).row(starts),
            Source::Second { first_seed, first_starts, factor } => {
                Mixed::new(hash, first_seed).row(first_starts).in_second(factor, starts)
            }
        }
    }

    /// The equation in the second layer, of `starts` starts, of a key that has this one in the
    /// first.
    #[inline(always)]
    pub(crate) fn in_second(self, factor: u64, starts: u64) -> Self {
        let (start, coefficients) = halves(self.coefficients.wrapping_mul(factor), starts);
        Self { start, coefficients, ..self }
    }
}

/// What a layer makes its equations of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The mix of hash and seed.
    Mix { seed: u64 },
    /// For the second layer: the coefficients in the first, and an odd factor.
    Second { first_seed: u64, first_starts: u64, factor: u64 },
}

impl Source {
    /// Of layer `layer` at attempt `attempt`, the first layer being at `first_attempt` with
    /// `first_starts` starts.
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

/// What the equation of a hash in the first layer, of any number of starts, is made of.
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

    /// The equation in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn row(self, starts: u64) -> TurnedRow {
        let (start, coefficients) = halves(self.g, starts);
        TurnedRow { start, coefficients, fingerprint: self.fingerprint }
    }
}

/// The seed of layer `layer` at attempt `attempt`.
pub(crate) const fn seed(layer: usize, attempt: u16) -> u64 {
    let number = (layer as u64) << 16 | attempt as u64;
    let mixed = (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// High and low half of the product.
#[inline(always)]
fn halves(left: u64, right: u64) -> (u64, u64) {
    let product = u128::from(left) * u128::from(right);
    ((product >> 64) as u64, product as u64)
}
