//! Reproducible randomness.

/// Returns `SIEVE_SEED` or a fixed seed, and prints it for reruns.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("SIEVE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    seed
}

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn many(&mut self, n: usize) -> Vec<u64> {
        (0..n).map(|_| self.next()).collect()
    }
}
