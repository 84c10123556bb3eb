//! Keys, values and clocks of measurements.
//!
//! | module     | contents                                                       |
//! |------------|----------------------------------------------------------------|
//! | [`iin`]    | identification numbers of 12 digits                            |
//! | `urls`     | invented URLs of 77 bytes on average                           |
//! | `lines`    | keys from a file                                               |
//! | [`random`] | random numbers and orders, reproducible from a seed            |
//! | [`zipf`]   | Zipf's distribution                                            |
//! | [`clock`]  | real time, and CPU time of a thread                            |

pub mod clock;
pub mod iin;
mod lines;
pub mod random;
mod urls;
mod value;
pub mod zipf;

use std::{fmt, path::PathBuf, str::FromStr};

pub use self::value::{VALUE_BYTES, value_of};
use self::{
    iin::{IIN_BYTES, iins},
    lines::Lines,
    random::Permutation,
    urls::Urls,
};

/// Source of the keys of a benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Identification numbers of 12 digits, see [`iin`].
    Iin,
    /// Invented URLs, of 77 bytes on average.
    Urls,
    /// The lines of a file, one key a line.
    File(PathBuf),
}

impl FromStr for KeySource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "iin" => Self::Iin,
            "urls" => Self::Urls,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iin => f.write_str("iin"),
            Self::Urls => f.write_str("urls"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Keys to store, and absent keys of the same distribution.
#[derive(Debug, Clone)]
pub struct KeySet {
    /// Keys to store.
    pub stored: Keys,
    /// Keys that are never stored.
    pub absent: Keys,
}

impl KeySet {
    /// Creates sets of identification numbers; fewer if `seed` has not enough.
    #[must_use]
    pub fn iins(seed: u64, stored: u64, absent: u64) -> Self {
        let mut numbers = iins(seed);
        let mut take = |count| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            Keys::Iins(numbers.by_ref().take(count).collect())
        };
        Self { stored: take(stored), absent: take(absent) }
    }

    /// Creates sets of invented URLs.
    pub fn urls(seed: u64, stored: u64, absent: u64) -> Self {
        let [stored, absent] = Urls::pair(seed, stored, absent).map(Keys::Urls);
        Self { stored, absent }
    }

    /// Creates sets of the distinct lines of `text`: one half to store, the other half absent, at
    /// most `stored_max` and `absent_max` of them.
    #[must_use]
    pub fn lines(text: Vec<u8>, stored_max: u64, absent_max: u64) -> Self {
        let [mut stored, mut absent] = Lines::split(text);
        stored.truncate(stored_max);
        absent.truncate(absent_max);
        Self { stored: Keys::Lines(stored), absent: Keys::Lines(absent) }
    }
}

/// Distinct keys in an order independent of their byte order.
#[derive(Debug, Clone)]
pub enum Keys {
    /// Identification numbers, without their leading zeros.
    Iins(Vec<u64>),
    /// Invented URLs.
    Urls(Urls),
    /// Lines of a file.
    Lines(Lines),
}

impl Keys {
    /// Returns the number of keys.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Iins(numbers) => numbers.len() as u64,
            Self::Urls(urls) => urls.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    /// Appends key number `index`, which is below [`len`](Self::len).
    pub fn append(&self, index: u64, key: &mut Vec<u8>) {
        match self {
            Self::Iins(numbers) => {
                let index = usize::try_from(index).expect("an index of a list fits");
                key.extend_from_slice(format!("{:0IIN_BYTES$}", numbers[index]).as_bytes());
            }
            Self::Urls(urls) => urls.append(index, key),
            Self::Lines(lines) => lines.append(index, key),
        }
    }

    /// Returns all keys in random order, as numbers for [`append`](Self::append).
    pub fn shuffled(&self, seed: u64) -> impl Iterator<Item = u64> + use<> {
        let order = Permutation::new(self.len(), seed);
        (0..self.len()).map(move |index| order.at(index))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns key sets of `stored` and `absent` keys, by name.
    fn key_sets(seed: u64, stored: u64, absent: u64) -> [(&'static str, KeySet); 3] {
        let lines = (0..4 * stored).map(|line| format!("{seed} {line}\n")).collect::<String>();
        [
            ("iin", KeySet::iins(seed, stored, absent)),
            ("urls", KeySet::urls(seed, stored, absent)),
            ("lines", KeySet::lines(lines.into_bytes(), stored, absent)),
        ]
    }

    fn all(keys: &Keys) -> Vec<Vec<u8>> {
        let key = |index| {
            let mut key = Vec::new();
            keys.append(index, &mut key);
            key
        };
        (0..keys.len()).map(key).collect()
    }

    #[test]
    fn stored_and_absent_keys_are_distinct() {
        for (name, set) in key_sets(1, 30_000, 20_000) {
            let (stored, absent) = (all(&set.stored), all(&set.absent));
            assert_eq!((stored.len(), absent.len()), (30_000, 20_000), "{name}");
            let distinct: HashSet<_> = stored.iter().chain(&absent).collect();
            assert_eq!(distinct.len(), 50_000, "{name}");
        }
    }

    #[test]
    fn seed_determines_the_keys() {
        for ((name, one), (_, same)) in key_sets(1, 1000, 10).into_iter().zip(key_sets(1, 1000, 10))
        {
            assert_eq!(all(&one.stored), all(&same.stored), "{name}");
            assert_eq!(all(&one.absent), all(&same.absent), "{name}");
        }
        for ((name, one), (_, other)) in
            key_sets(1, 1000, 10).into_iter().zip(key_sets(2, 1000, 10))
        {
            assert_ne!(all(&one.stored), all(&other.stored), "{name}");
        }
    }

    #[test]
    fn stored_and_absent_keys_have_equal_distributions() {
        // The sum of the second last bytes differs for sets with different digits.
        for (name, set) in key_sets(1, 20_000, 20_000) {
            let mean = |keys: &Keys| {
                let digits = all(keys).iter().map(|key| f64::from(key[key.len() - 2])).sum::<f64>();
                digits / 20_000.0
            };
            // Digits have a deviation of 2.9; that of the difference of two means is 0.029.
            assert!((mean(&set.stored) - mean(&set.absent)).abs() < 0.15, "{name}");
        }
    }

    #[test]
    fn identification_numbers_have_twelve_digits_and_all_centuries() {
        let numbers = all(&KeySet::iins(1, 20_000, 0).stored);
        assert!(numbers.iter().all(|key| key.len() == 12 && key.iter().all(u8::is_ascii_digit)));
        let centuries: HashSet<u8> = numbers.iter().map(|key| key[6]).collect();
        assert_eq!(centuries, HashSet::from(*b"123456"));
    }

    #[test]
    fn source_names_are_parsed() {
        for name in ["iin", "urls", "data/keys.txt"] {
            assert_eq!(name.parse::<KeySource>().unwrap().to_string(), name);
        }
    }
}
