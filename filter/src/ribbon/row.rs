//! What a hash means to a layer: where its equation starts, which slots it adds up, and to what.
//!
//! | part         | from a 64-bit mix `g` of hash and layer seed                                    |
//! |--------------|---------------------------------------------------------------------------------|
//! | start        | the high half of the 128 bits of `g * starts`                                   |
//! | coefficients | the low half: bit `s % 64` says whether slot `s` of the 64 from the start on takes part; the start does |
//! | fingerprint  | the 32 low bits of the high half of `g * FINGERPRINT`, one for each column      |
//!
//! `starts` is odd, so that each half of the first product is as random as `g`. The fingerprint takes
//! a product of its own: if it were a linear function of the coefficients, every absent key would
//! meet it.
//!
//! The second layer, which most bumped keys belong to, takes the mix of the first: the fingerprint is the
//! same, and the other product is that of the low half of `g * factor`. So the place of a bumped key is two
//! products away.

/// Slots that an equation spans: one machine word.
pub(crate) const WIDTH: u64 = 64;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const FINGERPRINT: u64 = 0xa076_1d64_78bd_642f;

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
    /// Bit `s % 64` says whether slot `s` takes part. That of the start, which does, may be anything.
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
            Source::Second { seed, factor } => Mixed::new(hash, seed).second_row(factor, starts),
        }
    }
}

/// What a layer makes its equations of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The mix of hash and seed.
    Mix { seed: u64 },
    /// For the second layer: the mix of hash and the first layer's seed, and an odd factor.
    Second { seed: u64, factor: u64 },
}

impl Source {
    /// Of layer `layer` at attempt `attempt`, the first layer being at `first_attempt`.
    pub(crate) const fn new(layer: usize, attempt: u16, first_attempt: u16) -> Self {
        let seed = seed(layer, attempt);
        match layer {
            1 => Self::Second { seed: self::seed(0, first_attempt), factor: seed | 1 },
            _ => Self::Mix { seed },
        }
    }
}

/// What the equations of a hash in all layers of a seed have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixed {
    g: u64,
    fingerprint: u32,
}

impl Mixed {
    #[inline(always)]
    pub(crate) fn new(hash: u64, seed: u64) -> Self {
        let g = mix(hash, seed);
        let (fingerprint, _) = halves(g, FINGERPRINT);
        Self { g, fingerprint: fingerprint as u32 }
    }

    /// The equation in a layer of `starts` starts.
    #[inline(always)]
    pub(crate) fn row(self, starts: u64) -> TurnedRow {
        let (start, coefficients) = halves(self.g, starts);
        TurnedRow { start, coefficients, fingerprint: self.fingerprint }
    }

    /// The equation in the second layer, of `starts` starts, if the mix is that of the first.
    #[inline(always)]
    pub(crate) fn second_row(self, factor: u64, starts: u64) -> TurnedRow {
        let (start, coefficients) = halves(self.g.wrapping_mul(factor), starts);
        TurnedRow { start, coefficients, fingerprint: self.fingerprint }
    }
}

/// The seed of layer `layer` at attempt `attempt`.
pub(crate) const fn seed(layer: usize, attempt: u16) -> u64 {
    let number = (layer as u64) << 16 | attempt as u64;
    let mixed = (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[inline(always)]
fn mix(hash: u64, seed: u64) -> u64 {
    let (high, low) = halves(hash ^ seed, MIX);
    high ^ low
}

/// High and low half of the product.
#[inline(always)]
fn halves(left: u64, right: u64) -> (u64, u64) {
    let product = u128::from(left) * u128::from(right);
    ((product >> 64) as u64, product as u64)
}
