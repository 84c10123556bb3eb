//! A filter that compares fingerprints, such as a ribbon or a binary fuse filter.

use super::check_fpr;

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Returns the expected rate of a filter that compares fingerprints of `columns` bits:
/// `2^-columns`.
///
/// With a fraction, that share of the filter has one column more, and this is the average of both
/// rates. It is up to 6 % above `2^-columns`.
///
/// # Panics
///
/// If `columns` is negative or not finite.
#[must_use]
pub fn columns_fpr(columns: f64) -> f64 {
    assert!(columns >= 0.0 && columns.is_finite(), "columns is {columns}");
    let whole = columns.floor();
    // A share of `columns - whole` has one column more, and half the rate.
    (-whole).exp2() * (1.0 - (columns - whole) / 2.0)
}

/// Returns the columns for rate `fpr`: the inverse of [`columns_fpr`].
///
/// At most 0.09 above `log2(1 / fpr)`.
///
/// # Panics
///
/// If `fpr` is not in `0 < fpr <= 1`.
#[must_use]
pub fn columns_for_fpr(fpr: f64) -> f64 {
    check_fpr(fpr);
    let whole = fpr.recip().log2().floor();
    // Ratio of the rate to that of the whole columns. Near a power of two, the logarithm may have
    // been rounded across it.
    let excess = fpr * whole.exp2();
    whole + (2.0 * (1.0 - excess)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::assert_near;

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_fraction_of_a_column_is_a_mixture() {
        let cases =
            [(0.0, 1.0), (1.0, 0.5), (7.0, 0.007_812_5), (6.72, 0.01), (7.5, 0.005_859_375)];
        for (columns, want) in cases {
            let name = format!("{columns} columns");
            assert_near(columns_fpr(columns), want, 1e-9, &name);
            assert_near(1.0 + columns_for_fpr(want), 1.0 + columns, 1e-9, &name);
        }
        for columns in (0..=3200).map(|hundredths| f64::from(hundredths) / 100.0) {
            let bound = (-columns).exp2();
            assert!((1.0 - 1e-9..1.062).contains(&(columns_fpr(columns) / bound)), "{columns}");
        }
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn columns_reach_the_rate() {
        let near_powers = (0..=32).map(|power| (-f64::from(power)).exp2());
        let near_powers =
            near_powers.flat_map(|fpr: f64| [fpr.next_down(), fpr, fpr.next_up().min(1.0)]);
        let others = (1..=3000).map(|i| (-f64::from(i) / 100.0).exp());
        for fpr in near_powers.chain(others) {
            let columns = columns_for_fpr(fpr);
            assert_near(columns_fpr(columns), fpr, 1e-12, &format!("rate {fpr}"));
            let bound = -fpr.log2();
            assert!((bound - 1e-9..=bound + 0.09).contains(&columns), "rate {fpr}: {columns}");
        }
    }
}
