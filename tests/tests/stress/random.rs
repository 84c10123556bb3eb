//! Reproducible random numbers.

use std::env;

use sievedb_tests::settings::report;

/// SplitMix64; constants of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to `end`, exclusive.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }
}

/// Spreads the bits of `number`.
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the seed of this run, `SIEVE_SEED` or a random one, and prints it.
pub(super) fn seed() -> u64 {
    let given = env::var("SIEVE_SEED").ok().map(|text| text.parse().unwrap());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    // Also if the process aborts.
    report(&format!("SIEVE_SEED={seed}"));
    seed
}
