//! The slots and bits of a cuckoo filter, and its false-positive rate.

use super::slots::{BITS_MAX, BITS_MIN, WINDOW};

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Achievable load: the first failure was at 95.6 % of 20 million slots. Smaller filters reach
/// more, except for random variation, which [`spare_slots`] covers.
const LOAD: f64 = 0.95;

/// Probability of a failure because more than four keys share fingerprint and windows.
const CROWDED_MAX: f64 = 0.01;

/// Returns slots and bits of a slot for `capacity` keys at rate `fpr`.
///
/// # Panics
///
/// If `fpr` is not below 1, or cannot be reached with [`BITS_MAX`] bits.
pub(super) fn shape_for(capacity: u64, fpr: f64) -> (u64, u32) {
    assert!(fpr > 0.0 && fpr < 1.0, "fpr is {fpr}");
    let keys = capacity.max(1);
    // No number of slots in memory is near 2^53. The addition saturates, so that impossible sizes
    // stay impossible.
    let slots = ((keys as f64 / LOAD).ceil() as u64).saturating_add(spare_slots(keys));
    let good = |&bits: &u32| {
        let (windows, fingerprints) = (slots - (WINDOW - 1), (1 << (bits - 1)) - 1);
        rate_of(keys, windows, fingerprints) <= fpr
            && crowded(keys, windows, fingerprints) <= CROWDED_MAX
    };
    let bits = (BITS_MIN..=BITS_MAX).find(good);
    (slots, bits.unwrap_or_else(|| panic!("fpr is {fpr}, too small for {BITS_MAX} bits")))
}

/// Returns the spare slots for random variation: some filters of 100 slots fail at 85 %.
fn spare_slots(keys: u64) -> u64 {
    8 + keys.isqrt() / 2
}

/// Returns the rate of a filter of `keys` distinct keys: the probability that at least one of them
/// has the fingerprint and the pair of windows of an absent key.
///
/// Exact, wherever evictions moved the fingerprints. A fingerprint pairs each window with another;
/// on average it pairs one window with itself, where half as many keys collide.
pub(super) fn rate_of(keys: u64, windows: u64, fingerprints: u32) -> f64 {
    let (windows, keys) = (windows as f64, keys as f64);
    let cell = 1.0 / (windows * f64::from(fingerprints));
    // 1 - (1 - x)^keys, accurate for small values.
    let met = |x: f64| -(keys * (-x.min(1.0)).ln_1p()).exp_m1();
    if keys == 0.0 {
        return 0.0;
    }
    met(2.0 * cell) * (1.0 - 1.0 / windows) + met(cell) / windows
}

/// Returns the expected number of pairs of windows that five keys with one fingerprint share, while
/// they hold four.
fn crowded(keys: u64, windows: u64, fingerprints: u32) -> f64 {
    let pairs = windows as f64 * f64::from(fingerprints) / 2.0;
    let load = keys as f64 / pairs;
    pairs * load.powi(5) / 120.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_reach_the_rate() {
        let cases = [
            ("1 %", 1_000_000, 0.01, 9),
            ("0.1 %", 1_000_000, 0.001, 12),
            ("0.01 %", 1_000_000, 0.0001, 16),
            ("10 %, few keys", 100, 0.1, 6),
            ("10 %, crowded", 10_000_000, 0.1, 8),
            ("no keys", 0, 0.01, 6),
            ("the smallest", 1000, 1e-7, 26),
        ];
        for (name, keys, fpr, want) in cases {
            let (slots, bits) = shape_for(keys, fpr);
            assert_eq!(bits, want, "{name}");
            assert!(rate_of(keys, slots - 1, (1 << (bits - 1)) - 1) <= fpr, "{name}");
        }
        assert_eq!(shape_for(1_000_000, 0.01).0, 1_053_140);
        assert_eq!(shape_for(u64::MAX, 0.01).0, u64::MAX, "impossible sizes stay impossible");
    }

    #[test]
    fn the_rate_approaches_the_limit() {
        let (keys, windows, fingerprints) = (950_000, 1_000_000, 255);
        let want = 1.0 - (-2.0 * 0.95 / 255.0_f64).exp();
        assert!((rate_of(keys, windows, fingerprints) / want - 1.0).abs() < 1e-5);
        assert_eq!(rate_of(0, 1, 7), 0.0);
        // With one window every key is in it, and one fingerprint in seven is equal.
        assert!((rate_of(1, 1, 7) - 1.0 / 7.0).abs() < 1e-12);
    }
}
