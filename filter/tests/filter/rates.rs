//! Whether a measured rate is the stated one.

/// Measurements, each with hashes of its own, that must all be off before a test fails.
const ATTEMPTS: u64 = 3;

/// Fails unless `sigmas(seed)`, by how many standard deviations a measurement is off, is at most 3
/// under one of three seeds that follow from `seed`. The first mostly does.
///
/// Even if all rates are right, one measurement in 370 is off by more, and one in 140 whose
/// deviation is estimated from 20 filters. There are some two hundred: under a random `SIEVE_SEED`
/// every second run would fail. Three in a row are off once in 10,000 runs; where a rate is wrong,
/// they always are.
pub(crate) fn assert_within_three_sigmas(
    name: &str,
    seed: u64,
    mut sigmas: impl FnMut(u64) -> f64,
) {
    let mut found = Vec::new();
    for attempt in 0..ATTEMPTS {
        // Rounds within a measurement take the bits from 32 on.
        let off = sigmas(seed ^ attempt << 56);
        eprintln!("{name}: {off:+.2} standard deviations");
        if off.abs() <= 3.0 {
            return;
        }
        found.push(off);
    }
    panic!("{name}: {found:.2?} standard deviations off");
}

/// By how many standard errors the mean of `rates` is off `want`. The error is estimated from the
/// rates, so that it holds the chance of the questions and that between filters.
///
/// Infinitely many if the error is too large to tell: more than `resolution` of the rate.
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

/// By how many standard deviations `maybe` questions of a sample are off, of which `want` were
/// expected.
pub(crate) fn sigmas_of_sample(maybe: f64, want: f64, variance: f64) -> f64 {
    eprintln!("{maybe} times maybe, {want:.0} expected");
    (maybe - want) / variance.sqrt()
}
