//! An unblocked Bloom filter: `m` bits, `n` keys, `k` probes, rate `p`.
//!
//! Sources: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13(7), 1970;
//! Broder and Mitzenmacher, "Network Applications of Bloom Filters: A Survey", Internet Mathematics
//! 1(4), 2004; Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures to
//! Improve Chemical Retrieval", J. Chem. Inf. Model. 47(3), 2007, for the number of keys.

use core::f64::consts::LN_2;

#[cfg(not(feature = "std"))]
use crate::float::Float;

use super::{check_bits_per_key, check_fpr};

/// Returns the bits of a filter for `keys` keys at rate `fpr`: `-keys ln(fpr) / ln(2)^2`, rounded
/// up.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn bloom_bits(keys: u64, fpr: f64) -> u64 {
    check_fpr(fpr);
    // The cast saturates, and no number of bits is near 2^53.
    (-(keys as f64) * fpr.ln() / (LN_2 * LN_2)).ceil() as u64
}

/// Returns the bits per key for rate `fpr`: `-ln(fpr) / ln(2)^2`, or `1.44 log2(1 / fpr)`.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn bloom_bits_per_key(fpr: f64) -> f64 {
    check_fpr(fpr);
    // Avoids the reciprocal, which is infinite for the smallest rates. The difference gives 0
    // instead of -0 for the rate 1.
    (0.0 - fpr.ln()) / (LN_2 * LN_2)
}

/// Returns the optimal number of probes: `bits_per_key ln(2)`, rounded to nearest, at least 1.
///
/// Above 2 bits per key, rounding raises the rate by at most 5 % over [`bloom_optimal_fpr`], which
/// a fractional number of probes would reach.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn bloom_probes(bits_per_key: f64) -> u32 {
    check_bits_per_key(bits_per_key);
    (bits_per_key * LN_2).round().max(1.0) as u32
}

/// Returns the expected rate: `(1 - e^(-probes / bits_per_key))^probes`.
///
/// The limit of [`bloom_fpr_of`] for large filters. They differ by less than 0.1 % from 10,000 bits
/// on.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn bloom_fpr(bits_per_key: f64, probes: u32) -> f64 {
    check_bits_per_key(bits_per_key);
    bloom_fpr_from_fill(-(-f64::from(probes) / bits_per_key).exp_m1(), probes)
}

/// Returns the expected rate of a filter of `bits` bits with `keys` keys: `(1 - (1 - 1 /
/// bits)^(probes keys))^probes`.
///
/// The exact expected fill to the power of the probes. Small filters have a slightly higher rate,
/// because their fill varies: 1 % at 512 bits and 10 bits per key.
///
/// # Panics
///
/// If `bits` is 0.
#[must_use]
pub fn bloom_fpr_of(keys: u64, bits: u64, probes: u32) -> f64 {
    assert!(bits > 0, "a filter has bits");
    if keys == 0 {
        return bloom_fpr_from_fill(0.0, probes);
    }
    let insertions = keys as f64 * f64::from(probes);
    let fill = -((-1.0 / bits as f64).ln_1p() * insertions).exp_m1();
    bloom_fpr_from_fill(fill, probes)
}

/// Returns the rate at `bits_per_key` with the optimal, possibly fractional number of probes:
/// `2^(-bits_per_key ln 2)`, or `0.6185^bits_per_key`.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn bloom_optimal_fpr(bits_per_key: f64) -> f64 {
    check_bits_per_key(bits_per_key);
    (-bits_per_key * LN_2).exp2()
}

/// Returns the keys that `bits` bits hold at rate `fpr`: `-bits ln(2)^2 / ln(fpr)`, rounded down.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr < 1`.
#[must_use]
pub fn bloom_capacity(bits: u64, fpr: f64) -> u64 {
    assert!(fpr < 1.0, "fpr is {fpr}");
    (bits as f64 / bloom_bits_per_key(fpr)).floor() as u64
}

/// Returns the current rate of a filter from the share of its bits that are set: `fill^probes`.
///
/// For one specific filter; the other functions average over all possible filters.
///
/// # Panics
///
/// If `fill` is not in `0 <= fill <= 1`.
#[must_use]
pub fn bloom_fpr_from_fill(fill: f64, probes: u32) -> f64 {
    assert!((0.0..=1.0).contains(&fill), "fill is {fill}");
    fill.powf(probes.into())
}

/// Estimates the number of distinct keys in a filter of `bits` bits, of which `bits_set` are set:
/// `-bits / probes * ln(1 - bits_set / bits)`.
///
/// Infinite if all bits are set. The standard error is at most `sqrt(keys)` while the fill is below
/// 0.7.
///
/// Source: Swamidass and Baldi, 2007.
///
/// # Panics
///
/// If `bits` or `probes` is 0, or `bits_set` exceeds `bits`.
#[must_use]
pub fn bloom_keys_from_fill(bits: u64, bits_set: u64, probes: u32) -> f64 {
    assert!(bits > 0 && probes > 0, "{bits} bits, {probes} probes");
    assert!(bits_set <= bits, "{bits_set} of {bits} bits are set");
    if bits_set == 0 {
        return 0.0; // The formula's is -0.
    }
    -(bits as f64) / f64::from(probes) * (-(bits_set as f64) / bits as f64).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::f64::consts::LOG2_E;

    use crate::params::{assert_near, blocked_bloom_fpr_of, lower_bound_bits_per_key};

    #[test]
    fn the_smallest_rate_needs_finitely_many_bits() {
        let bits = bloom_bits_per_key(5e-324);
        assert_near(bits, 1074.0 / LN_2, 1e-9, "2^-1074");
        assert_eq!(bloom_capacity(1_000_000, 5e-324), 645);
        assert!(bloom_bits_per_key(1.0).is_sign_positive());
    }

    /// Published sizes for a million keys and for twenty million.
    #[test]
    fn sizes_equal_published_ones() {
        let cases = [
            ("10 %", 1_000_000, 0.1, 4_792_530, 3, 0.571),
            ("1 %", 1_000_000, 0.01, 9_585_059, 7, 1.143),
            ("0.1 %", 1_000_000, 0.001, 14_377_588, 10, 1.714),
            ("0.01 %", 1_000_000, 0.0001, 19_170_117, 13, 2.285),
            ("20 million at 1 %", 20_000_000, 0.01, 191_701_168, 7, 22.85),
        ];
        for (name, keys, fpr, bits, probes, mebibytes) in cases {
            assert_eq!(bloom_bits(keys, fpr), bits, "{name}");
            assert_near(bits as f64 / 8.0 / 1_048_576.0, mebibytes, 1e-3, name);
            let bits_per_key = bits as f64 / keys as f64;
            assert_near(bloom_bits_per_key(fpr), bits_per_key, 1e-6, name);
            assert_eq!(bloom_probes(bits_per_key), probes, "{name}");
            assert_near(bloom_fpr(bits_per_key, probes), fpr, 0.04, name);
            assert_near(bloom_fpr_of(keys, bits, probes), fpr, 0.04, name);
            assert_near(bloom_optimal_fpr(bits_per_key), fpr, 1e-5, name);
            assert_eq!(bloom_capacity(bits, fpr), keys, "{name}");
            assert_near(lower_bound_bits_per_key(fpr), bits_per_key * LN_2, 1e-4, name);
        }
    }

    /// The optimum is 9.3 probes: 9 when rounded to nearest; 10 is 2 % worse.
    #[test]
    fn twenty_million_keys_in_32_mebibytes() {
        let (bits, keys) = (1_u64 << 28, 20_000_000);
        let bits_per_key = bits as f64 / keys as f64;
        assert_eq!(bloom_probes(bits_per_key), 9);
        for (probes, want) in [(9, 0.001_58), (10, 0.001_61), (12, 0.001_83)] {
            assert_near(bloom_fpr(bits_per_key, probes), want, 0.01, "by bits per key");
            assert_near(bloom_fpr_of(keys, bits, probes), want, 0.01, "by the size");
        }
    }

    #[test]
    fn constants_equal_published_ones() {
        assert_near(bloom_optimal_fpr(1.0), 0.6185, 1e-4, "rate of one bit per key");
        assert_near(bloom_bits_per_key(0.5), LOG2_E, 1e-12, "bits per key for one half");
        assert_near(bloom_fpr_from_fill(0.5, 7), 0.007_812_5, 1e-12, "half full");
    }

    /// The bound in the documentation of [`bloom_probes`].
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_whole_number_of_probes_costs_little() {
        for bits_per_key in (201..4000).map(|hundredths| f64::from(hundredths) / 100.0) {
            let rate = bloom_fpr(bits_per_key, bloom_probes(bits_per_key));
            let excess = rate / bloom_optimal_fpr(bits_per_key);
            assert!((1.0 - 1e-9..1.05).contains(&excess), "{bits_per_key} bits: {excess}");
        }
    }

    /// The filter keeps the rate at its capacity, but not with one more key.
    #[test]
    fn capacity_is_the_inverse_of_bits() {
        for (bits, fpr) in [(64, 0.5), (1000, 0.01), (1 << 28, 0.03), (1 << 40, 1e-9)] {
            let keys = bloom_capacity(bits, fpr);
            assert!(bloom_bits(keys, fpr) <= bits, "{bits} bits, rate {fpr}");
            assert!(bloom_bits(keys + 1, fpr) > bits, "{bits} bits, rate {fpr}");
        }
        assert_eq!(bloom_capacity(0, 0.01), 0);
    }

    /// The estimate from the expected fill equals the number of keys.
    #[test]
    fn keys_are_estimated_from_the_fill() {
        let bits = 1 << 20;
        for (keys, probes) in
            [(1_u64, 1_u32), (50_000, 7), (100_000, 7), (300_000, 3), (80_000, 16)]
        {
            let throws = keys as f64 * f64::from(probes);
            let fill = -((-1.0 / bits as f64).ln_1p() * throws).exp_m1();
            let set = (fill * bits as f64).round() as u64;
            assert_near(bloom_keys_from_fill(bits, set, probes), keys as f64, 1e-4, "keys");
        }
        assert_eq!(bloom_keys_from_fill(64, 0, 3).to_bits(), 0.0_f64.to_bits());
        assert_eq!(bloom_keys_from_fill(64, 64, 3), f64::INFINITY);
    }

    /// The two forms of the rate differ for small filters and agree for large ones.
    #[test]
    fn both_forms_of_the_rate_agree_for_large_filters() {
        for (bits, tolerance) in [(100, 0.1), (10_000, 1e-3), (1 << 30, 1e-7)] {
            let keys = bits / 10;
            let exact = bloom_fpr_of(keys, bits, 7);
            assert_near(exact, bloom_fpr(bits as f64 / keys as f64, 7), tolerance, "rate");
        }
        // One line of a blocked filter is an unblocked one, and its rate is exact.
        let truth = blocked_bloom_fpr_of(51, 1, 7);
        assert_near(truth, bloom_fpr_of(51, 512, 7) * 1.0126, 1e-3, "512 bits");
        assert_eq!(bloom_fpr_of(0, 1, 7), 0.0);
        assert_eq!(bloom_fpr_of(1, 1, 7), 1.0);
    }
}
