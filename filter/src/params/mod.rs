//! Bits, probes and false-positive rates of filters.
//!
//! | file      | computes                                                                         |
//! |-----------|----------------------------------------------------------------------------------|
//! | `bloom`   | an unblocked Bloom filter: bits, probes, rate, capacity; keys and rate from the fill |
//! | `blocked` | a Bloom filter of 512-bit lines: probes, rate, bits for a rate                   |
//! | `columns` | a filter that compares fingerprints, such as a ribbon: rate, columns for a rate  |
//!
//! A rate is the share of absent keys that match, from 0 to 1. Bits per key are filter bits divided
//! by distinct keys. Probes are the bits set per key. The fill is the share of bits that are set,
//! from 0 to 1. Hashes are assumed independent and uniform.

#[cfg(not(feature = "std"))]
use crate::float::Float;

mod blocked;
mod bloom;
mod columns;

pub use blocked::{
    blocked_bloom_bits_per_key, blocked_bloom_fpr, blocked_bloom_fpr_of, blocked_bloom_lines,
    blocked_bloom_probes,
};
pub use bloom::{
    bloom_bits, bloom_bits_per_key, bloom_capacity, bloom_fpr, bloom_fpr_from_fill, bloom_fpr_of,
    bloom_keys_from_fill, bloom_optimal_fpr, bloom_probes,
};
pub use columns::{columns_for_fpr, columns_fpr};

/// Maximum bits per key of a filter.
pub const BITS_PER_KEY_MAX: f64 = 40.0;

/// Returns the smallest bits per key that any filter needs for rate `fpr`: `log2(1 / fpr)`.
///
/// Source: Carter, Floyd, Gill, Markowsky and Wegman, "Exact and Approximate Membership Testers",
/// STOC 1978.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn lower_bound_bits_per_key(fpr: f64) -> f64 {
    check_fpr(fpr);
    fpr.recip().log2()
}

fn check_fpr(fpr: f64) {
    assert!(fpr > 0.0 && fpr <= 1.0, "fpr is {fpr}");
}

fn check_bits_per_key(bits_per_key: f64) {
    assert!(bits_per_key > 0.0 && bits_per_key.is_finite(), "bits_per_key is {bits_per_key}");
}

#[cfg(test)]
#[track_caller]
fn assert_near(found: f64, want: f64, tolerance: f64, name: &str) {
    assert!((found / want - 1.0).abs() <= tolerance, "{name}: found {found}, expected {want}");
}
