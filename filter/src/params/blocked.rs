//! A blocked Bloom filter: lines of 512 bits, and each key in one of them.
//!
//! Rates at the optimal number of probes, next to those of an unblocked filter at its own optimum.
//! The last column is the excess of bits over the
//! [`lower_bound_bits_per_key`](super::lower_bound_bits_per_key) of the blocked rate:
//!
//! | bits | probes |   blocked |  unblocked |  over |
//! |------|--------|-----------|------------|-------|
//! |    4 |      3 |    14.8 % |     14.7 % |  45 % |
//! |    5 |      3 |    9.31 % |     9.18 % |  46 % |
//! |    6 |      4 |    5.77 % |     5.61 % |  46 % |
//! |    7 |      5 |    3.66 % |     3.47 % |  47 % |
//! |    8 |      5 |    2.33 % |     2.16 % |  47 % |
//! |    9 |      6 |    1.49 % |     1.33 % |  48 % |
//! |   10 |      6 |   0.966 % |    0.819 % |  49 % |
//! |   11 |      7 |   0.625 % |    0.509 % |  50 % |
//! |   12 |      8 |   0.413 % |    0.314 % |  52 % |
//! |   13 |      8 |   0.273 % |    0.194 % |  53 % |
//! |   14 |      9 |   0.184 % |    0.120 % |  54 % |
//! |   15 |      9 |   0.123 % |   0.0744 % |  55 % |
//! |   16 |      9 |  0.0844 % |   0.0459 % |  57 % |
//! |   17 |     10 |  0.0578 % |   0.0284 % |  58 % |
//! |   18 |     10 |  0.0401 % |   0.0176 % |  60 % |
//! |   19 |     11 |  0.0281 % |   0.0109 % |  61 % |
//! |   20 |     11 |  0.0198 % |  0.00671 % |  63 % |
//! |   21 |     11 |  0.0141 % |  0.00416 % |  64 % |
//! |   22 |     12 |  0.0101 % |  0.00257 % |  66 % |
//! |   23 |     12 | 0.00729 % |  0.00159 % |  67 % |
//! |   24 |     12 | 0.00533 % | 0.000984 % |  69 % |
//!
//! Source: Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", JEA 14,
//! 2009, for the load of the lines.

use super::{BITS_PER_KEY_MAX, check_bits_per_key, check_fpr};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::line::{LINE_BITS, PROBES_MAX};

/// Returns the optimal number of probes of a blocked Bloom filter, from 1 to [`PROBES_MAX`].
///
/// Fewer than for an unblocked filter: in a crowded line each additional bit costs more. The limits
/// are where one more probe lowers [`blocked_bloom_fpr`]; a test verifies them.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn blocked_bloom_probes(bits_per_key: f64) -> u8 {
    /// Below entry `i`, `i + 1` probes are optimal; in thousandths of a bit per key.
    const LIMITS_MILLIBITS: [u32; PROBES_MAX as usize - 1] = [
        2_090, 3_590, 5_110, 6_680, 8_320, 10_060, 11_930, 13_940, 16_130, 18_530, 21_190, 24_140,
        27_450, 31_170, 35_370,
    ];
    check_bits_per_key(bits_per_key);
    let below =
        LIMITS_MILLIBITS.iter().take_while(|&&limit| f64::from(limit) <= bits_per_key * 1e3);
    1 + below.count() as u8 // At most `PROBES_MAX`, by the length of the table.
}

/// Returns the expected rate of a large blocked Bloom filter.
///
/// A line holds a Poisson-distributed number of keys, `512 / bits_per_key` on average; this is the
/// mixture of the rates of its lines. See [`blocked_bloom_fpr_of`] for the formula.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite, or `probes` is not from 1 to [`PROBES_MAX`].
#[must_use]
pub fn blocked_bloom_fpr(bits_per_key: f64, probes: u8) -> f64 {
    check_bits_per_key(bits_per_key);
    // Finite, because infinity times 0 is NaN.
    let load = (f64::from(LINE_BITS) / bits_per_key).min(f64::MAX);
    // The generating function of the Poisson distribution: E[(1 - x)^J] = e^(-load x).
    mixture(probes, |x| (-load * x).exp())
}

/// Returns the expected rate of a blocked Bloom filter of `lines` lines with `keys` keys.
///
/// Exact for every size. With `m = 512` and `k` probes, `J` keys set `J k` random bits of a line.
/// The probability that `d` given bits are all set is `sum over i of (-1)^i binom(d, i) (1 - i /
/// m)^(J k)`. `J` is binomial over `keys` keys with probability `1 / lines`. Its generating
/// function turns the expected power into `(1 - (1 - (1 - i / m)^k) / lines)^keys`. The remaining
/// factor is the distribution of `d`, the number of distinct bits among the `k` that a probe tests.
///
/// The common approximation uses the average number of set bits per line. It is 1 % too low at 10
/// bits per key and 4 % too low at 24.
///
/// # Panics
///
/// If `lines` is 0 or `probes` is not from 1 to [`PROBES_MAX`].
#[must_use]
pub fn blocked_bloom_fpr_of(keys: u64, lines: u64, probes: u8) -> f64 {
    assert!(lines > 0, "a filter has lines");
    mixture(probes, |x| ((-x / lines as f64).ln_1p() * keys as f64).exp())
}

/// Returns the lines for `keys` keys with `bits_per_key` bits each: rounded up, at least 1.
///
/// # Panics
///
/// If `bits_per_key` is not positive and finite.
#[must_use]
pub fn blocked_bloom_lines(keys: u64, bits_per_key: f64) -> u64 {
    check_bits_per_key(bits_per_key);
    // The cast saturates.
    ((keys as f64 * bits_per_key / f64::from(LINE_BITS)).ceil() as u64).max(1)
}

/// Returns the smallest bits per key with which a large blocked Bloom filter, with the optimal
/// number of probes, has at most rate `fpr`. `None` if [`BITS_PER_KEY_MAX`] are too few, which
/// reach 8e-7.
///
/// The inverse of [`blocked_bloom_fpr`], by bisection, to a billionth of a bit.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr < 1`.
#[must_use]
pub fn blocked_bloom_bits_per_key(fpr: f64) -> Option<f64> {
    check_fpr(fpr);
    assert!(fpr < 1.0, "fpr is {fpr}");
    let is_enough = |bits: f64| blocked_bloom_fpr(bits, blocked_bloom_probes(bits)) <= fpr;
    let (mut too_few, mut enough) = (0.0, BITS_PER_KEY_MAX);
    if !is_enough(enough) {
        return None;
    }
    while enough - too_few > 1e-9 {
        let middle = too_few.midpoint(enough);
        if is_enough(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(enough)
}

/// Numbers of probes, including 0.
const POWERS: usize = PROBES_MAX as usize + 1;

/// Returns `E[(share of set bits in a line)^probes]`, where `generating(x)` is `E[(1 - x)^J]` for
/// the number `J` of keys in a line.
fn mixture(probes: u8, generating: impl Fn(f64) -> f64) -> f64 {
    assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
    let k = usize::from(probes);
    let bits = f64::from(LINE_BITS);

    // In round d, differences[0] is the d-th finite difference of the power in the formula: the
    // alternating sum over i, without binomial coefficients.
    let mut differences = [0.0; POWERS];
    for (i, difference) in (0..=probes).zip(&mut differences) {
        *difference = generating(1.0 - (1.0 - f64::from(i) / bits).powi(probes.into()));
    }
    let mut rate = 0.0;
    for (d, share) in distinct_probes(k)[..=k].iter().enumerate() {
        rate += share * differences[0];
        for i in 1..=k - d {
            differences[i - 1] -= differences[i];
        }
    }
    // In an almost empty filter the differences cancel to a rounding error of either sign.
    rate.clamp(0.0, 1.0)
}

/// Returns the distribution of the number of distinct bits among `k` random bits of a line.
fn distinct_probes(k: usize) -> [f64; POWERS] {
    let bits = f64::from(LINE_BITS);
    let mut distribution = [0.0; POWERS];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{assert_near, bloom_fpr, bloom_probes, lower_bound_bits_per_key};

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn almost_no_bits_reject_nothing() {
        for bits_per_key in [1e-9, 1e-300, f64::MIN_POSITIVE, 5e-324] {
            for probes in [1, PROBES_MAX] {
                assert_near(blocked_bloom_fpr(bits_per_key, probes), 1.0, 1e-9, "full lines");
            }
        }
    }

    /// Published rates for 512-bit lines with the average-load approximation, which is up to 5 %
    /// too low (see [`blocked_bloom_fpr_of`]).
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
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

    /// Compares with the definition, term by term: bins are filled one probe after the other.
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn the_closed_form_equals_the_definition() {
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
            let mut load = (1.0 - share).powi(keys); // Probability that a line holds `j` keys.
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

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
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
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn probes_are_optimal() {
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
    fn an_empty_filter_has_no_false_positives() {
        for probes in 1..=PROBES_MAX {
            assert!(blocked_bloom_fpr_of(0, 1, probes) < 1e-12, "{probes} probes");
        }
    }

    /// The result reaches the rate, and slightly fewer bits do not.
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn bits_reach_the_rate() {
        let rate = |bits| blocked_bloom_fpr(bits, blocked_bloom_probes(bits));
        for fpr in [0.999, 0.5, 0.1, 0.03, 0.01, 0.001, 1e-4, 1e-5, 2e-6] {
            let bits = blocked_bloom_bits_per_key(fpr).expect("40 bits reach it");
            assert!(rate(bits) <= fpr, "{fpr}: {bits} bits");
            assert!(rate(bits - 0.01) > fpr, "{fpr}: {bits} bits");
        }
        for (fpr, want) in [(0.01, 9.92), (0.001, 15.54), (0.0001, 22.03)] {
            let bits = blocked_bloom_bits_per_key(fpr).expect("40 bits reach it");
            assert!((bits - want).abs() < 0.01, "{fpr}: {bits} bits");
        }
        assert_eq!(blocked_bloom_bits_per_key(1e-12), None);
    }

    #[test]
    fn lines_are_rounded_up() {
        let cases =
            [(0, 10.0, 1), (1, 10.0, 1), (512, 1.0, 1), (513, 1.0, 2), (1_000_000, 10.0, 19_532)];
        for (keys, bits_per_key, lines) in cases {
            assert_eq!(blocked_bloom_lines(keys, bits_per_key), lines, "{keys} keys");
        }
    }

    /// The table in the module documentation equals the functions' results.
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn rates_at_whole_bits_per_key() {
        for bits in 4..=24_u8 {
            let bits_per_key = f64::from(bits);
            let probes = blocked_bloom_probes(bits_per_key);
            let blocked = blocked_bloom_fpr(bits_per_key, probes);
            let unblocked = bloom_fpr(bits_per_key, bloom_probes(bits_per_key));
            let percent = |rate: f64| {
                let rate = rate * 100.0;
                let digits = (2 - rate.log10().floor() as i32).max(0) as usize;
                format!("{rate:.digits$} %")
            };
            let over = (bits_per_key / lower_bound_bits_per_key(blocked) - 1.0) * 100.0;
            let row = format!(
                "//! | {bits:4} | {probes:6} | {:>9} | {:>10} | {over:3.0} % |",
                percent(blocked),
                percent(unblocked)
            );
            assert!(include_str!("blocked.rs").lines().any(|line| line == row), "{row}");
        }
    }
}
