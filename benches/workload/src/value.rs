//! Values determined by their keys, so that answers of lookups can be checked.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::random::Random;

/// Bytes of every value.
pub const VALUE_BYTES: usize = 100;

/// The first half is noise, the second half compresses to nothing.
const NOISE_BYTES: usize = VALUE_BYTES / 2;

/// Returns the value of `key` in a key set of `seed`.
#[must_use]
pub fn value_of(key: &[u8], seed: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'.'; VALUE_BYTES];
    let mut random = Random::new(xxh3_64_with_seed(key, seed));
    for chunk in value[..NOISE_BYTES].chunks_mut(size_of::<u64>()) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_by_key_and_seed() {
        assert_eq!(value_of(b"a", 1), value_of(b"a", 1));
        assert_ne!(value_of(b"a", 1), value_of(b"b", 1));
        assert_ne!(value_of(b"a", 1), value_of(b"a", 2));
        assert_ne!(value_of(b"", 1)[..8], value_of(b"", 1)[8..16]);
        assert!(value_of(b"a", 1)[50..].iter().all(|&byte| byte == b'.'));
    }
}
