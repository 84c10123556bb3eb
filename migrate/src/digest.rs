//! Digest of entries.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Number and digest of entries, to compare the contents of two databases. The order of the entries
/// does not matter.
///
/// Detects mistakes and damage, not forgery.
///
/// # Examples
///
/// ```
/// use sievedb_migrate::Digest;
///
/// let (mut one, mut other) = (Digest::default(), Digest::default());
/// one.add(b"a", b"1");
/// one.add(b"b", b"2");
/// other.add(b"b", b"2");
/// assert_ne!(one, other);
/// other.add(b"a", b"1");
/// assert_eq!(one, other);
/// assert_eq!(one.entries(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest {
    entries: u64,
    sum: u128,
}

impl Digest {
    /// Adds an entry. Costs a hash of key and value.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hash = Xxh3::new();
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key);
        hash.update(value);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(hash.digest128());
    }

    /// Adds all entries of another digest.
    pub fn add_all(&mut self, other: &Self) {
        self.entries += other.entries;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

impl fmt::Display for Digest {
    /// Prints 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_and_its_place_count() {
        let digest = |entries: &[(&str, &str)]| {
            let mut digest = Digest::default();
            entries.iter().for_each(|(key, value)| digest.add(key.as_bytes(), value.as_bytes()));
            digest
        };
        let all = [
            digest(&[]),
            digest(&[("", "")]),
            digest(&[("ab", "c")]),
            digest(&[("a", "bc")]),
            digest(&[("a", "c"), ("b", "")]),
            digest(&[("a", ""), ("b", "c")]),
            digest(&[("ab", "c"), ("ab", "c")]),
        ];
        for (at, left) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|right| left != right), "{at}");
        }
    }
}
