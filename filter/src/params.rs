//! How many bits and probes a Bloom filter takes, and which false-positive rate that gives.
//!
//! A rate is the share of absent keys that the filter calls "maybe", from 0 to 1. Bits per key are
//! filter bits divided by distinct keys. Probes are the bits set per key. Hashes are taken as
//! independent and uniform throughout.
//!
//! Sources: Broder and Mitzenmacher, "Network Applications of Bloom Filters: A Survey", Internet
//! Mathematics 1(4), 2004, for the unblocked filter; Putze, Sanders and Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", JEA 14, 2009, for the load of the lines of a blocked one.

use std::f64::consts::LN_2;

use crate::line::{LINE_BITS, PROBES_MAX};

/// The most bits per key that a filter takes.
pub const BITS_PER_KEY_MAX: f64 = 40.0;

/// Fewest bits in which any filter can hold a key at rate `fpr`: `log2(1 / fpr)`.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn lower_bound_bits_per_key(fpr: f64) -> f64 {
    assert!(fpr > 0.0 && fpr <= 1.0, "fpr is {fpr}");
    -fpr.log2()
}

/// Bits of an unblocked Bloom filter that holds `keys` at rate `fpr`: `-keys ln(fpr) / ln(2)^2`,
/// rounded up.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn bloom_bits(keys: u64, fpr: f64) -> u64 {
    assert!(fpr > 0.0 && fpr <= 1.0, "fpr is {fpr}");
    // A float turns into an integer by saturation, and no count of bits comes near 2^53.
    (-(keys as f64) * fpr.ln() / (LN_2 * LN_2)).ceil() as u64
}

/// Best number of probes of an unblocked Bloom filter: `bits_per_key ln(2)`, rounded to the nearest,
/// at least 1.
///
/// Above 2 bits per key, rounding makes the rate at most 5 % larger than `0.6185^bits_per_key`, which
/// a fraction of a probe would reach.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn bloom_probes(bits_per_key: f64) -> u32 {
    check_bits_per_key(bits_per_key);
    (bits_per_key * LN_2).round().max(1.0) as u32
}

/// Expected rate of an unblocked Bloom filter: `(1 - e^(-probes / bits_per_key))^probes`.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn bloom_fpr(bits_per_key: f64, probes: u32) -> f64 {
    check_bits_per_key(bits_per_key);
    (1.0 - (-f64::from(probes) / bits_per_key).exp()).powf(probes.into())
}

/// Best number of probes of a blocked Bloom filter, from 1 to [`PROBES_MAX`].
///
/// Fewer than an unblocked filter takes: a crowded line is punished for each bit more. The limits
/// are where [`blocked_bloom_fpr`] of one probe more becomes the smaller rate; a test holds them.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn blocked_bloom_probes(bits_per_key: f64) -> u8 {
    /// Up to entry `i`, exclusive, `i + 1` probes are best; in thousandths of a bit per key.
    const LIMITS_MILLIBITS: [u32; PROBES_MAX as usize - 1] = [
        2_090, 3_590, 5_110, 6_680, 8_320, 10_060, 11_930, 13_940, 16_130, 18_530, 21_190, 24_140,
        27_450, 31_170, 35_370,
    ];
    check_bits_per_key(bits_per_key);
    let below =
        LIMITS_MILLIBITS.iter().take_while(|&&limit| f64::from(limit) <= bits_per_key * 1e3);
    1 + below.count() as u8 // At most `PROBES_MAX`, by the length of the table.
}

/// Expected rate of a large blocked Bloom filter whose lines have 512 bits.
///
/// A line holds a Poisson-distributed number of keys, on average `512 / bits_per_key`; this is the
/// mixture of the rates of its lines. See [`blocked_bloom_fpr_of`] for the formula.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite, or `probes` is not from 1 to [`PROBES_MAX`].
#[must_use]
pub fn blocked_bloom_fpr(bits_per_key: f64, probes: u8) -> f64 {
    check_bits_per_key(bits_per_key);
    let load = f64::from(LINE_BITS) / bits_per_key;
    // The generating function of the Poisson distribution: E[(1 - x)^J] = e^(-load x).
    mixture(probes, |x| (-load * x).exp())
}

/// Expected rate of a blocked Bloom filter of `lines` lines of 512 bits that holds `keys` keys.
///
/// Exact for every size, also for one line. With `m = 512` and `k` probes, a line of `J` keys saw
/// `J k` bits set at random. That `d` given bits are all among them has the probability
/// `sum over i of (-1)^i binom(d, i) (1 - i / m)^(J k)`. `J` is binomial over `keys` keys and one
/// line in `lines`; its generating function turns the expectation of the power into
/// `(1 - (1 - (1 - i / m)^k) / lines)^keys`. What is left is the distribution of `d`, the number of
/// different bits among the `k` that a question looks at.
///
/// The common approximation by the average number of bits set in a line is 1 % too low at 10 bits
/// per key and 4 % too low at 24.
///
/// # Panics
///
/// If `lines` is 0 or `probes` is not from 1 to [`PROBES_MAX`].
#[must_use]
pub fn blocked_bloom_fpr_of(keys: u64, lines: u64, probes: u8) -> f64 {
    assert!(lines > 0, "a filter has lines");
    mixture(probes, |x| ((-x / lines as f64).ln_1p() * keys as f64).exp())
}

/// `E[(share of bits set in a line)^probes]`, where `generating(x)` is `E[(1 - x)^J]` of the number
/// `J` of keys in a line.
fn mixture(probes: u8, generating: impl Fn(f64) -> f64) -> f64 {
    assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
    let k = usize::from(probes);
    let bits = f64::from(LINE_BITS);

    // differences[0] is, in round d, the d-th finite difference of the power in the formula: the
    // alternating sum over i, found without binomial coefficients.
    let mut differences: Vec<f64> = (0..=probes)
        .map(|i| generating(1.0 - (1.0 - f64::from(i) / bits).powi(probes.into())))
        .collect();
    let mut rate = 0.0;
    for distinct in distinct_probes(k) {
        rate += distinct * differences[0];
        for i in 1..differences.len() {
            differences[i - 1] -= differences[i];
        }
        differences.pop();
    }
    // The differences of an almost empty filter cancel to a rounding error of either sign.
    rate.clamp(0.0, 1.0)
}

/// Entry `d` is the probability that `k` random bits of a line are `d` different ones.
fn distinct_probes(k: usize) -> Vec<f64> {
    let bits = f64::from(LINE_BITS);
    let mut distribution = vec![0.0; k + 1];
    distribution[0] = 1.0;
    for _ in 0..k {
        for d in (0..=k).rev() {
            let repeated = distribution[d] * d as f64 / bits;
            let fresh = match d {
                0 => 0.0,
                _ => distribution[d - 1] * (bits - (d - 1) as f64) / bits,
            };
            distribution[d] = repeated + fresh;
        }
    }
    distribution
}

/// Expected rate of a filter that compares a fingerprint of `columns` bits, such as a ribbon:
/// `2^-columns`.
///
/// With a fraction, that share of the filter has a column more than the rest, and this is the
/// mixture of the two rates. It is up to 6 % above `2^-columns`.
///
/// # Panics
///
/// If `columns` is negative or not finite.
#[must_use]
pub fn columns_fpr(columns: f64) -> f64 {
    assert!(columns >= 0.0 && columns.is_finite(), "columns is {columns}");
    let whole = columns.floor();
    // A share has this column more, and so half of the rate.
    (-whole).exp2() * (1.0 - (columns - whole) / 2.0)
}

fn check_bits_per_key(bits_per_key: f64) {
    assert!(bits_per_key > 0.0 && bits_per_key.is_finite(), "bits_per_key is {bits_per_key}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: f64, want: f64, tolerance: f64, name: &str) {
        assert!((found / want - 1.0).abs() <= tolerance, "{name}: {found}, {want} was expected");
    }

    /// The well-known sizes for a million keys, and two for twenty million.
    #[test]
    fn unblocked_sizes_are_those_of_the_literature() {
        let cases = [
            ("10 %", 1_000_000, 0.1, 4_792_530, 3),
            ("1 %", 1_000_000, 0.01, 9_585_059, 7),
            ("0.1 %", 1_000_000, 0.001, 14_377_588, 10),
            ("0.01 %", 1_000_000, 0.0001, 19_170_117, 13),
            ("20 million at 1 %", 20_000_000, 0.01, 191_701_168, 7),
        ];
        for (name, keys, fpr, bits, probes) in cases {
            assert_eq!(bloom_bits(keys, fpr), bits, "{name}");
            let bits_per_key = bits as f64 / keys as f64;
            assert_eq!(bloom_probes(bits_per_key), probes, "{name}");
            assert_near(bloom_fpr(bits_per_key, probes), fpr, 0.04, name);
            assert_near(lower_bound_bits_per_key(fpr), bits_per_key * LN_2, 1e-4, name);
        }
        let bits_per_key = (1_u64 << 28) as f64 / 20e6;
        assert_near(bloom_fpr(bits_per_key, 12), 0.0018, 0.03, "2^28 bits, 12 probes");
    }

    /// Rates that others computed for 512-bit lines with the average-load approximation, which is
    /// up to 5 % too low (see [`blocked_bloom_fpr_of`]).
    #[test]
    fn blocked_rates_agree_with_published_ones() {
        let cases = [
            (8.0, 5, 0.023_12),
            (10.0, 6, 0.009_57),
            (12.0, 8, 0.004_07),
            (14.0, 9, 0.001_80),
            (16.0, 10, 0.000_825),
            (20.0, 11, 0.000_191),
            (24.0, 13, 0.000_051),
        ];
        for (bits_per_key, probes, want) in cases {
            let rate = blocked_bloom_fpr(bits_per_key, probes);
            assert!(rate > want, "{bits_per_key} bits: {rate} is not above {want}");
            assert_near(rate, want, 0.06, &format!("{bits_per_key} bits"));
        }
    }

    /// The definition, term by term: bins are filled one probe after the other.
    #[test]
    fn the_closed_form_is_the_definition() {
        for (keys, lines, probes) in [(1, 1, 1), (1, 1, 16), (60, 1, 6), (60, 3, 6), (200, 7, 9)] {
            let bits = LINE_BITS as usize;
            let fill_after = |throws: usize| {
                let mut set = vec![0.0; bits + 1];
                set[0] = 1.0;
                for _ in 0..throws {
                    for i in (0..=bits).rev() {
                        let fresh = if i == 0 { 0.0 } else { set[i - 1] * (bits - i + 1) as f64 };
                        set[i] = (set[i] * i as f64 + fresh) / bits as f64;
                    }
                }
                let power = |i: usize| (i as f64 / bits as f64).powi(probes);
                set.iter().enumerate().map(|(i, p)| p * power(i)).sum::<f64>()
            };
            let share = 1.0 / lines as f64;
            let mut load = (1.0 - share).powi(keys); // The chance that a line holds `j` keys.
            let mut want = 0.0;
            for j in 0..=keys {
                if load > 1e-15 || j == keys {
                    let p = if lines == 1 { f64::from(u8::from(j == keys)) } else { load };
                    if p > 1e-15 {
                        want += p * fill_after(j as usize * probes as usize);
                    }
                }
                load *= f64::from(keys - j) / f64::from(j + 1) * share / (1.0 - share);
            }
            let found = blocked_bloom_fpr_of(keys as u64, lines, probes as u8);
            assert!((found - want).abs() < 1e-9, "{keys} keys, {lines} lines: {found}, {want}");
        }
    }

    #[test]
    fn many_lines_have_a_poisson_load() {
        for bits_per_key in [0.5, 3.0, 10.0, 16.0, 24.0] {
            let probes = blocked_bloom_probes(bits_per_key);
            let lines = 10_000_000;
            let keys = (lines as f64 * 512.0 / bits_per_key) as u64;
            let exact = blocked_bloom_fpr_of(keys, lines, probes);
            let poisson = blocked_bloom_fpr(bits_per_key, probes);
            assert_near(exact, poisson, 1e-4, &format!("{bits_per_key} bits"));
        }
    }

    /// No other number of probes is better by more than the step of the table.
    #[test]
    fn probes_are_the_best() {
        for millibits in (10..=40_000).step_by(10) {
            let bits_per_key = f64::from(millibits) / 1e3;
            let chosen = blocked_bloom_fpr(bits_per_key, blocked_bloom_probes(bits_per_key));
            for other in 1..=PROBES_MAX {
                let rate = blocked_bloom_fpr(bits_per_key, other);
                assert!(chosen <= rate * 1.001, "{bits_per_key} bits: {other} probes give {rate}");
            }
        }
    }

    #[test]
    fn a_fraction_of_a_column_is_a_mixture() {
        let cases =
            [(0.0, 1.0), (1.0, 0.5), (7.0, 0.007_812_5), (6.72, 0.01), (7.5, 0.005_859_375)];
        for (columns, want) in cases {
            assert_near(columns_fpr(columns), want, 1e-9, &format!("{columns} columns"));
        }
        for columns in (0..=3200).map(|hundredths| f64::from(hundredths) / 100.0) {
            let bound = (-columns).exp2();
            assert!((1.0 - 1e-9..1.062).contains(&(columns_fpr(columns) / bound)), "{columns}");
        }
    }

    #[test]
    fn an_empty_filter_has_no_false_positives() {
        for probes in 1..=PROBES_MAX {
            assert!(blocked_bloom_fpr_of(0, 1, probes) < 1e-12, "{probes} probes");
        }
    }
}
