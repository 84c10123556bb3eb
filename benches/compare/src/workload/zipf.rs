//! Zipf distributions, as in YCSB.
//!
//! Source: Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly Generating Billion-Record
//! Synthetic Databases", SIGMOD 1994; Cooper, Silberstein, Tam, Ramakrishnan and Sears,
//! "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, and its `ScrambledZipfianGenerator`
//! and `SkewedLatestGenerator`.

use sievedb_workload::random::Random;

/// Rank `r` is drawn in proportion to `1 / r^THETA`.
const THETA: f64 = 0.99;

/// Number of scrambled ranks: more than keys, so that each key gets many.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// `zeta(SCRAMBLED_RANKS)`, as in YCSB; summing it up would take too long.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// `1 + 1/2^THETA + ... + 1/ranks^THETA`.
fn zeta(ranks: u64) -> f64 {
    (1..=ranks).map(term).sum()
}

fn term(rank: u64) -> f64 {
    (rank as f64).powf(-THETA)
}

/// A generator of ranks from 0 on, the first most often.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    ranks: u64,
    zeta: f64,
}

impl Zipf {
    /// Creates a generator of `ranks` ranks, at least one. Takes time proportional to `ranks`.
    pub(crate) fn new(ranks: u64) -> Self {
        Self { ranks, zeta: zeta(ranks) }
    }

    /// Adds a rank.
    pub(crate) fn grow(&mut self) {
        self.ranks += 1;
        self.zeta += term(self.ranks);
    }

    /// Draws a rank.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        let unit = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        let zeta_2 = 1.0 + term(2);
        if scaled < zeta_2 {
            return 1.min(self.ranks - 1);
        }
        let ranks = self.ranks as f64;
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - THETA)) / (1.0 - zeta_2 / self.zeta);
        let rank = ranks * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.ranks - 1)
    }
}

/// A generator of skewed key indexes. Popular ones are spread over the whole range.
#[derive(Debug, Clone)]
pub(crate) struct ScrambledZipf {
    ranks: Zipf,
    keys: u64,
}

impl ScrambledZipf {
    /// Creates a generator of indexes below `keys`.
    pub(crate) fn new(keys: u64) -> Self {
        Self { ranks: Zipf { ranks: SCRAMBLED_RANKS, zeta: SCRAMBLED_ZETA }, keys }
    }

    /// Draws an index.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        fnv(self.ranks.next(random)) % self.keys
    }
}

/// Returns the FNV-1a hash of eight bytes, by which YCSB scrambles.
fn fnv(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(ranks: usize, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        let mut counts = vec![0.0; ranks];
        let mut random = Random::new(5);
        for _ in 0..DRAWS {
            counts[usize::try_from(draw(&mut random)).unwrap()] += 1.0;
        }
        counts
    }

    /// Five standard deviations of a binomial count, with 2 % for what the formula approximates.
    fn near(count: f64, share: f64) -> bool {
        let want = share * DRAWS as f64;
        (count - want).abs() < 5.0 * want.sqrt() + 0.02 * want
    }

    #[test]
    fn ranks_follow_the_zipf_distribution() {
        let zipf = Zipf::new(1000);
        let counts = counts(1000, |random| zipf.next(random));
        // The formula is exact for the first two, and close for sums of others.
        for rank in 0..2 {
            let share = term(rank + 1) / zeta(1000);
            let count = counts[usize::try_from(rank).unwrap()];
            assert!(near(count, share), "rank {rank}: {count} of {DRAWS}, not {share}");
        }
        for (from, to) in [(10, 100), (100, 1000)] {
            let share = (zeta(to) - zeta(from)) / zeta(1000);
            let count: f64 =
                counts[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()].iter().sum();
            assert!(
                (count / DRAWS as f64 / share - 1.0).abs() < 0.1,
                "{from} to {to}: {count}, {share}"
            );
        }
    }

    #[test]
    fn grown_zipf_equals_a_new_larger_one() {
        let mut grown = Zipf::new(10);
        (0..90).for_each(|_| grown.grow());
        let large = Zipf::new(100);
        assert_eq!(grown.ranks, large.ranks);
        assert!((grown.zeta - large.zeta).abs() < 1e-9);
        let one = Zipf::new(1);
        assert!(counts(1, |random| one.next(random))[0] == DRAWS as f64);
    }

    #[test]
    fn scrambled_keys_are_spread_and_skewed() {
        let zipf = ScrambledZipf::new(1000);
        let mut counts = counts(1000, |random| zipf.next(random));
        // The most popular rank, 1 of 26.5, is not the first key.
        let popular = usize::try_from(fnv(0) % 1000).unwrap();
        assert!(popular != 0 && counts[popular] > DRAWS as f64 / 27.5, "{}", counts[popular]);
        assert!(counts.iter().all(|&count| count > 0.0));
        counts.sort_by(|a, b| b.total_cmp(a));
        let head: f64 = counts[..100].iter().sum();
        // Ranks beyond the first thousands fall uniformly on all keys: 100 keys get a tenth of
        // them.
        assert!((0.25..0.5).contains(&(head / DRAWS as f64)), "{head}");
    }

    #[test]
    fn fnv_matches_published_values() {
        // Of eight zero bytes: the offset basis times the prime to the eighth, modulo 2^64.
        let want =
            (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| hash.wrapping_mul(1_099_511_628_211));
        assert_eq!(fnv(0), want);
    }
}
