//! Comparison of measured and stated rates.

/// Measurements with independent hashes; a test fails only if all of them are off.
const ATTEMPTS: u64 = 3;

/// Fails unless `sigmas(seed)`, the deviation of a measurement in standard deviations, is at most 3
/// for one of three seeds derived from `seed`.
///
/// Even with correct rates, one measurement in 370 is off by more, and one in 140 whose deviation
/// is estimated from 20 filters. There are some two hundred, so that with a random `SIEVE_SEED`
/// every second run would fail. Three in a row are off once in 10,000 runs; with a wrong rate,
/// always.
pub(crate) fn assert_within_three_sigmas(
    name: &str,
    seed: u64,
    mut sigmas: impl FnMut(u64) -> f64,
) {
    let mut found = Vec::new();
    for attempt in 0..ATTEMPTS {
        // Rounds within a measurement use the bits from 32 on.
        let off = sigmas(seed ^ attempt << 56);
        eprintln!("{name}: {off:+.2} standard deviations");
        if off.abs() <= 3.0 {
            return;
        }
        found.push(off);
    }
    panic!("{name}: {found:.2?} standard deviations off");
}

/// Returns the deviation of the mean of `rates` from `want`, in standard errors. The error is
/// estimated from the rates, and so covers the randomness of probes and of filters.
///
/// Infinite if the error exceeds a share `resolution` of the rate.
pub(crate) fn sigmas_off(name: &str, rates: &[f64], want: f64, resolution: f64) -> f64 {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let error = (variance / n).sqrt();
    let part = error / want / resolution;
    eprintln!(
        "{name}: measured {mean:.3e}, computed {want:.3e}, error {part:.2} of the resolution"
    );
    if part < 1.0 { (mean - want) / error } else { f64::INFINITY }
}

/// Returns the deviation of `matched` matches in a sample from the expected `want`, in standard
/// deviations.
pub(crate) fn sigmas_of_sample(matched: f64, want: f64, variance: f64) -> f64 {
    eprintln!("{matched} matches, {want:.0} expected");
    (matched - want) / variance.sqrt()
}
