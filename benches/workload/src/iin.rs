//! Individual identification numbers of Kazakhstan: short keys that follow a distribution.
//!
//! | digits  | meaning                                                                       |
//! |---------|-------------------------------------------------------------------------------|
//! | 1 to 6  | date of birth, YYMMDD                                                         |
//! | 7       | century and sex: 1 and 2 for births of the 1800s, 3 and 4, 5 and 6; odd: male |
//! | 8 to 11 | serial number                                                                 |
//! | 12      | control digit, of weighted sums modulo 11                                     |

use std::ops::RangeInclusive;

use super::random::Permutation;

/// Bytes of a number: digits in ASCII.
pub const IIN_BYTES: usize = 12;

/// Years of birth, all equally likely.
const YEARS: RangeInclusive<u32> = 1880..=2025;

const SEXES: u64 = 2;
const SERIALS: u64 = 10_000;

/// Weights of the first eleven digits, first try.
const WEIGHTS: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// The same for the second try.
const WEIGHTS_AGAIN: [u32; 11] = [3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2];

/// Yields about a billion distinct valid numbers in a random order determined by `seed`.
pub fn iins(seed: u64) -> impl Iterator<Item = u64> {
    let births = births();
    let bodies = births.len() as u64 * SEXES * SERIALS;
    let order = Permutation::new(bodies, seed);
    (0..bodies).filter_map(move |index| {
        let body = order.at(index);
        let (person, serial) = (body / SERIALS, body % SERIALS);
        let birth = usize::try_from(person / SEXES).expect("an index of a list fits");
        let body = (births[birth] + person % SEXES) * SERIALS + serial;
        Some(body * 10 + u64::from(control_digit(body)?))
    })
}

/// Returns the control digit of the eleven digits of `body`.
///
/// It is the sum of the digits by [`WEIGHTS`] modulo 11, or by [`WEIGHTS_AGAIN`] if that is 10. If
/// both are 10, the number is not issued.
fn control_digit(body: u64) -> Option<u8> {
    let mut rest = body;
    let (mut first, mut second) = (0, 0);
    for (weight, again) in WEIGHTS.iter().zip(WEIGHTS_AGAIN).rev() {
        let digit = u32::try_from(rest % 10).expect("a digit fits");
        rest /= 10;
        first += digit * weight;
        second += digit * again;
    }
    let sum = [first % 11, second % 11].into_iter().find(|&sum| sum != 10)?;
    Some(u8::try_from(sum).expect("a remainder of 11 fits"))
}

/// Yields the first seven digits of a man born on each day of [`YEARS`].
fn births() -> Vec<u64> {
    let days = YEARS.flat_map(|year| (1..=12).map(move |month| (year, month)));
    let days = days
        .flat_map(|(year, month)| (1..=days_in(year, month)).map(move |day| (year, month, day)));
    let digits = days.map(|(year, month, day)| {
        let century = (year / 100 - 18) * 2 + 1;
        u64::from((((year % 100) * 100 + month) * 100 + day) * 10 + century)
    });
    digits.collect()
}

/// Returns the days of a month of the Gregorian calendar.
fn days_in(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_digits_match_examples() {
        let cases = [
            // 9·1 + 1·4 + 1·6 + 3·7 = 40 = 3·11 + 7
            ("first sum", 90_010_130_000, Some(7)),
            // 40 + 4·9 = 76 = 6·11 + 10; then 9·3 + 1·6 + 1·8 + 3·9 + 4·11 = 112 = 10·11 + 2
            ("second sum", 90_010_130_400, Some(2)),
            // 40 + 4·9 + 4·11 = 120 = 10·11 + 10; then 112 + 4·2 = 120 again
            ("not issued", 90_010_130_404, None),
            // 5·3 + 1·4 + 2·5 + 9·6 + 5·7 + 1·11 = 129 = 11·11 + 8
            ("leading zeros", 512_950_001, Some(8)),
            ("all zeros", 0, Some(0)),
        ];
        for (name, body, want) in cases {
            assert_eq!(control_digit(body), want, "{name}");
        }
    }

    #[test]
    fn birth_dates_are_valid() {
        let births = births();
        // 146 years, of which 36 have a 29 February: every fourth from 1880 to 2024 but for 1900.
        assert_eq!(births.len(), 146 * 365 + 36);
        let cases = [
            ("the first day", 8_001_011, true),
            ("29 February 2000", 2_295, true),
            ("29 February 1900", 2_293, false),
            ("31 April 1990", 9_004_313, false),
            ("31 December 1899", 9_912_311, true),
            ("31 December 2025", 2_512_315, true),
            ("the day after the last", 2_601_015, false),
        ];
        for (name, digits, want) in cases {
            assert_eq!(births.contains(&digits), want, "{name}");
        }
    }
}
