//! Significance tests for counts of rare events.

/// Counts less probable than this are significant.
const PROBABILITY_MIN: f64 = 1e-7;

/// Returns `true` if `count` is significantly above `expected`, for a Poisson distribution.
pub(crate) fn is_above(count: u64, expected: f64) -> bool {
    if count == 0 || count as f64 <= expected {
        return false;
    }
    let mut next = count;
    is_less(count, expected, || {
        next += 1;
        expected / next as f64
    })
}

/// Returns `true` if `count` is significantly below `expected`, for a Poisson distribution.
pub(crate) fn is_below(count: u64, expected: f64) -> bool {
    if count as f64 >= expected {
        return false;
    }
    let mut next = count;
    is_less(count, expected, || {
        let ratio = next as f64 / expected;
        next = next.saturating_sub(1);
        ratio
    })
}

/// Sums the Poisson probabilities of `count` and of the counts beyond it. `ratio` returns the
/// quotient of the next probability and the current one. Returns `true` if the sum is less than
/// [`PROBABILITY_MIN`].
fn is_less(count: u64, expected: f64, mut ratio: impl FnMut() -> f64) -> bool {
    let (mut probability, mut sum) = (poisson(count, expected), 0.0);
    while sum < PROBABILITY_MIN && probability > PROBABILITY_MIN * 1e-9 {
        sum += probability;
        probability *= ratio();
    }
    sum < PROBABILITY_MIN
}

/// Returns the Poisson probability of `count` events with the mean `expected`.
fn poisson(count: u64, expected: f64) -> f64 {
    let n = count as f64;
    if count == 0 {
        return (-expected).exp();
    }
    // Stirling's series.
    let ln_factorial = n * n.ln() - n + (std::f64::consts::TAU * n).ln() / 2.0 + 1.0 / (12.0 * n)
        - 1.0 / (360.0 * n.powi(3));
    (n * expected.ln() - expected - ln_factorial).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_poisson() {
        for (count, expected, want) in
            [(0, 2.0, 0.135_335), (1, 2.0, 0.270_671), (5, 2.0, 0.036_089), (40, 40.0, 0.062_947)]
        {
            let found = poisson(count, expected);
            assert!((found / want - 1.0).abs() < 1e-3, "{count} of {expected}: {found}");
        }
    }

    #[test]
    fn counts_are_compared_with_tails() {
        // Expected events, the largest count that is significantly low, and the least that is
        // significantly high.
        let cases = [
            (0.0, None, 1),
            (0.01, None, 4),
            (0.3, None, 7),
            (6.0, None, 24),
            (100.0, Some(52), 157),
            (1e6, Some(994_804), 1_005_205),
        ];
        for (expected, few, many) in cases {
            assert!(!is_above(many - 1, expected) && is_above(many, expected), "{expected}");
            match few {
                None => assert!(!is_below(0, expected), "{expected}"),
                Some(few) => {
                    assert!(is_below(few, expected) && !is_below(few + 1, expected), "{expected}");
                }
            }
        }
    }
}
