//! Keys of 16 bytes in random order, and others between them that are never stored.

use sievedb_workload::{VALUE_BYTES, random::mix, value_of};

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 16;

/// A key: 64 random bits as hexadecimal digits.
pub(crate) type Key = [u8; KEY_BYTES];

/// A value, half of which is noise.
pub(crate) type Value = [u8; VALUE_BYTES];

/// A key and its value.
pub(crate) type Entry = (Key, Value);

/// The keys of a seed.
///
/// Their numbers are mixed by a bijection, even ones for stored keys and odd ones for absent keys.
/// So no two are equal, and both kinds are spread alike over the whole range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    seed: u64,
}

impl Keys {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns stored key number `index`.
    pub(crate) fn present(self, index: u64) -> Key {
        self.key(index << 1)
    }

    /// Returns absent key number `index`.
    pub(crate) fn absent(self, index: u64) -> Key {
        self.key(index << 1 | 1)
    }

    /// Returns stored key number `index` with its value.
    pub(crate) fn entry(self, index: u64) -> Entry {
        let key = self.present(index);
        (key, self.value(&key))
    }

    /// Returns ascending key number `index`. Ascending keys are independent of the others.
    pub(crate) fn ascending(index: u64) -> Key {
        digits(index)
    }

    /// Returns the value of a stored key.
    pub(crate) fn value(self, key: &Key) -> Value {
        self.value_of_version(key, 0)
    }

    /// Returns the value of a stored key after `version` changes.
    pub(crate) fn value_of_version(self, key: &Key, version: u64) -> Value {
        value_of(key, if version == 0 { self.seed } else { self.seed ^ mix(version) })
    }

    fn key(self, number: u64) -> Key {
        digits(mix(number ^ mix(self.seed)))
    }
}

/// Hexadecimal digits, which are in the order of the numbers.
fn digits(bits: u64) -> Key {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| DIGITS[(bits >> (60 - 4 * place) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn absent_keys_lie_between_distinct_present_keys() {
        let keys = Keys::new(1);
        let present: HashSet<Key> = (0..10_000).map(|index| keys.present(index)).collect();
        let absent: HashSet<Key> = (0..10_000).map(|index| keys.absent(index)).collect();
        assert_eq!(present.union(&absent).count(), 20_000);
        let (first, last) = (present.iter().min().unwrap(), present.iter().max().unwrap());
        let outside = absent.iter().filter(|key| *key < first || *key > last).count();
        // Two are expected.
        assert!(outside < 20, "{outside}");
        assert!(present.iter().flatten().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn seed_determines_keys_and_values() {
        assert_eq!(Keys::new(1).entry(7), Keys::new(1).entry(7));
        assert_ne!(Keys::new(1).entry(7), Keys::new(2).entry(7));
    }

    #[test]
    fn each_version_has_its_own_values() {
        let keys = Keys::new(1);
        let key = keys.present(7);
        let values: HashSet<Value> = (0..100).map(|v| keys.value_of_version(&key, v)).collect();
        assert_eq!(values.len(), 100);
        assert_eq!(keys.value_of_version(&key, 0), keys.value(&key));
    }

    #[test]
    fn ascending_keys_ascend() {
        let indexes = [0, 1, 9, 10, 15, 16, 255, 256, 1 << 32, u64::MAX];
        assert!(indexes.map(Keys::ascending).is_sorted());
    }
}
