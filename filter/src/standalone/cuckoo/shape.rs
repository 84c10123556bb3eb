//! How many slots of how many bits a cuckoo filter takes, and which false-positive rate that gives.

use super::slots::{BITS_MAX, BITS_MIN, WINDOW};

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Share of the slots that can be filled: the first refusal came at 95.6 % of 20 million slots, and
/// later in smaller filters but for chance, which [`spare_slots`] is for.
const LOAD: f64 = 0.95;

/// The chance of a refusal that is due to more than four keys with one fingerprint in one pair of
/// windows.
const CROWDED_MAX: f64 = 0.01;

/// Slots and bits of a slot for `capacity` keys at rate `fpr`.
///
/// # Panics
///
/// If `fpr` is not below 1, or so small that slots of [`BITS_MAX`] bits do not reach it.
pub(super) fn shape_for(capacity: u64, fpr: f64) -> (u64, u32) {
    assert!(fpr > 0.0 && fpr < 1.0, "fpr is {fpr}");
    let keys = capacity.max(1);
    // No count of slots in memory comes near 2^53. Those that no memory has must not become few.
    let slots = ((keys as f64 / LOAD).ceil() as u64).saturating_add(spare_slots(keys));
    let good = |&bits: &u32| {
        let (windows, fingerprints) = (slots - (WINDOW - 1), (1 << (bits - 1)) - 1);
        rate_of(keys, windows, fingerprints) <= fpr
            && crowded(keys, windows, fingerprints) <= CROWDED_MAX
    };
    let bits = (BITS_MIN..=BITS_MAX).find(good);
    (slots, bits.unwrap_or_else(|| panic!("fpr is {fpr}, less than {BITS_MAX} bits can give")))
}

/// For chance: a filter of 100 slots now and then refuses a key when 85 % of them are filled.
fn spare_slots(keys: u64) -> u64 {
    8 + keys.isqrt() / 2
}

/// The rate of a filter that holds `keys` different keys: the chance that one of them at least has
/// the fingerprint and the pair of windows of an absent one.
///
/// Exact, wherever evictions moved the fingerprints. A fingerprint pairs each window with another;
/// on average it pairs one of all windows with itself, and a key there meets half as many others.
pub(super) fn rate_of(keys: u64, windows: u64, fingerprints: u32) -> f64 {
    let (windows, keys) = (windows as f64, keys as f64);
    let cell = 1.0 / (windows * f64::from(fingerprints));
    // 1 - (1 - x)^keys, accurate also where it is small.
    let met = |x: f64| -(keys * (-x.min(1.0)).ln_1p()).exp_m1();
    if keys == 0.0 {
        return 0.0;
    }
    met(2.0 * cell) * (1.0 - 1.0 / windows) + met(cell) / windows
}

/// How many pairs of windows are expected to be chosen by five keys with one fingerprint, of which
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
        assert_eq!(shape_for(u64::MAX, 0.01).0, u64::MAX, "more than any memory has");
    }

    #[test]
    fn the_rate_is_that_of_the_limit() {
        let (keys, windows, fingerprints) = (950_000, 1_000_000, 255);
        let want = 1.0 - (-2.0 * 0.95 / 255.0_f64).exp();
        assert!((rate_of(keys, windows, fingerprints) / want - 1.0).abs() < 1e-5);
        assert_eq!(rate_of(0, 1, 7), 0.0);
        // One window: every key is there, and one fingerprint in seven is that of the other.
        assert!((rate_of(1, 1, 7) - 1.0 / 7.0).abs() < 1e-12);
    }
}
