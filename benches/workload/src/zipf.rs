//! Zipf's distribution of ranks.

use crate::random::Random;

/// Zipf's distribution: rank `n`, from 0 on, is drawn in proportion to `(n + 1)^-exponent`. Exact,
/// by a table of 8 bytes for each rank.
#[derive(Debug, Clone)]
pub struct Zipf {
    /// Weights of all ranks up to this one.
    sums: Vec<f64>,
}

impl Zipf {
    /// Creates a distribution over the ranks below `ranks`.
    ///
    /// # Panics
    ///
    /// If `ranks` is 0.
    #[must_use]
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!(ranks > 0, "there is no rank to draw");
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    /// Draws a rank, by binary search.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let last = self.sums.len() - 1;
        let drawn = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * self.sums[last];
        self.sums.partition_point(|sum| *sum <= drawn).min(last) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_their_weights() {
        let zipf = Zipf::new(3, 1.0);
        let mut random = Random::new(5);
        let mut counts = [0_u32; 3];
        for _ in 0..11_000 {
            counts[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1;
        }
        // Weights 6, 3 and 2 of 11; five standard deviations are at most 262.
        for (count, expected) in counts.into_iter().zip([6_000, 3_000, 2_000]) {
            assert!(count.abs_diff(expected) < 262, "{counts:?}");
        }
    }
}
