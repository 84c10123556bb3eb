//! The crate sbbf-rs-safe: a Bloom filter with blocks of 256 bits, as in Parquet.

use sbbf_rs_safe::Filter;

use super::{BITS, Family, Given, Origin, Structure};

pub(super) const FAMILY: Family = Family {
    name: "sbbf-rs-safe",
    origin: Origin::Crate,
    given: Given::Hash,
    settings: BITS,
    for_rate: Some(bits_for_rate),
    build: |hashes, bits| {
        // Whole bits, from `for_rate` and the settings.
        let mut filter = Filter::new(bits as usize, hashes.len());
        for &hash in hashes {
            filter.insert_hash(hash);
        }
        Box::new(filter)
    },
};

impl Structure for Filter {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

/// Returns the fewest whole bits per key that give `rate`, if at most 60.
pub(crate) fn bits_for_rate(rate: f64) -> Option<f64> {
    (1..=60).map(f64::from).find(|&bits| fpr(bits) <= rate)
}

/// Returns the expected rate, which the crate does not state. A block has eight words of 32 bits,
/// and a key sets a bit of each. The number of keys in a block has a Poisson distribution.
fn fpr(bits_per_key: f64) -> f64 {
    let load = 256.0 / bits_per_key;
    let mut chance = (-load).exp();
    let mut rate = 0.0;
    for keys in 0..1000 {
        rate += chance * (1.0 - (31.0 / 32.0_f64).powi(keys)).powi(8);
        chance *= load / f64::from(keys + 1);
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_match_the_published_values() {
        let cases = [(8.0, 0.033_21), (10.0, 0.012_65), (12.0, 0.005_42), (16.0, 0.001_32)];
        for (bits, want) in cases {
            let rate = fpr(bits);
            assert!((rate / want - 1.0).abs() < 0.01, "{bits} bits: {rate}, {want} was expected");
        }
        assert_eq!(bits_for_rate(0.01), Some(11.0));
    }
}
