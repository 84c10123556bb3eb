//! Random numbers and random orders, reproducible from a seed on every machine.

/// Increment of the generator: 2^64 over the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64-bit numbers whose output bits all depend on all input bits.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014;
/// the constants are Stafford's variant 13.
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A stream of random numbers: SplitMix64. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number, uniformly distributed.
    #[expect(clippy::should_implement_trait, reason = "a stream without an end is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Returns a number from 0 to `bound - 1`. Its bias, `bound / 2^64`, is not measurable here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of 128 bits has 64")
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).expect("an index of a slice fits")]
    }
}

/// The numbers from 0 to `domain - 1` in a random order, without storing them.
///
/// A Feistel network of four rounds permutes the next even power of two. It is applied again until
/// the number falls into the domain ("cycle walking", Black and Rogaway, CT-RSA 2002), fewer than
/// four times on average.
#[derive(Debug, Clone)]
pub struct Permutation {
    domain: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Permutation {
    /// Creates a random order of the numbers below `domain`.
    #[must_use]
    pub fn new(domain: u64, seed: u64) -> Self {
        let bits = u64::BITS - domain.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed);
        let round_keys = std::array::from_fn(|_| random.next());
        Self { domain, half_bits: bits.div_ceil(2).max(1), round_keys }
    }

    /// Returns the position of `index`, which is below the domain.
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.domain, "{index} is outside the domain of {}", self.domain);
        let mut number = self.step(index);
        while number >= self.domain {
            number = self.step(number);
        }
        number
    }

    fn step(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.round_keys {
            (left, right) = (right, left ^ mix(right ^ key) & mask);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutation_contains_every_number_once() {
        for domain in [1, 2, 3, 16, 17, 1000, 4097] {
            let permutation = Permutation::new(domain, 7);
            let mut seen: Vec<u64> = (0..domain).map(|index| permutation.at(index)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..domain).collect::<Vec<_>>(), "domain of {domain}");
        }
    }

    #[test]
    fn seeds_give_different_orders() {
        let order = |seed| {
            let permutation = Permutation::new(1000, seed);
            (0..1000).map(|index| permutation.at(index)).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut random = Random::new(3);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[usize::try_from(random.below(6)).unwrap()] += 1;
        }
        // Five standard deviations of a binomial count are 456.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 456), "{counts:?}");
    }
}
