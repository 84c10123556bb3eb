//! Reproducible random numbers.

/// A reproducible random number generator.
///
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The remainder is below `bound`, so it fits. Its bias is irrelevant here.
        (self.number() % bound as u64) as usize
    }

    /// Returns `true` with probability `n` / `of`.
    pub fn chance(&mut self, n: usize, of: usize) -> bool {
        self.below(of) < n
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Appends `count` incompressible bytes.
    pub fn fill(&mut self, bytes: &mut Vec<u8>, count: usize) {
        let end = bytes.len() + count;
        while bytes.len() < end {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(end);
    }
}

/// Spreads `number` over all 64 bits.
#[must_use]
pub fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
