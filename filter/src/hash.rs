//! The 64-bit hash of a key.
//!
//! A filter cannot be better than its hash. With 32 bits, hashes of 40 million keys collide as
//! often as a filter of 10 bits per key has false positives.

use core::hash::{BuildHasher, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Version of [`key_hash`]. A filter built with another version matches every key.
pub const HASH_VERSION: u8 = 1;

/// Returns `xxh3_64` of `key`.
///
/// `seed` is random per store, so that colliding keys cannot be prepared.
///
/// Source: the XXH3 specification,
/// <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The default hasher of the [standalone filters](crate::standalone): [`key_hash`] with a seed, 0
/// by default.
///
/// With a known seed an attacker can prepare colliding keys: use a random one if keys are
/// untrusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xxh3 {
    seed: u64,
}

impl Xxh3 {
    /// Creates a hasher with this seed.
    #[must_use]
    pub const fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the seed.
    #[must_use]
    pub const fn seed(self) -> u64 {
        self.seed
    }
}

impl BuildHasher for Xxh3 {
    type Hasher = Xxh3Hasher;

    #[inline]
    fn build_hasher(&self) -> Xxh3Hasher {
        Xxh3Hasher { state: self.seed }
    }
}

/// The [`Hasher`] of [`Xxh3`]. Each write is hashed with the result of the previous one as its
/// seed.
///
/// One write returns [`key_hash`], which is how the filters use it. Several writes give a good hash
/// too, but not that of their concatenation.
#[derive(Debug, Clone)]
pub struct Xxh3Hasher {
    state: u64,
}

impl Hasher for Xxh3Hasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.state = xxh3_64_with_seed(bytes, self.state);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// Returns the hash of `key` for a filter with this hasher: one write of the bytes.
///
/// Differs from [`BuildHasher::hash_one`], which adds a length or a terminator by the type of the
/// key.
#[inline]
#[must_use]
pub fn hash_with<S: BuildHasher>(hasher: &S, key: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(key);
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_gives_the_key_hash() {
        for seed in [0, 1, u64::MAX] {
            for key in [&b""[..], b"sieve", &[7; 1000]] {
                assert_eq!(hash_with(&Xxh3::with_seed(seed), key), key_hash(key, seed));
            }
        }
        assert_eq!(Xxh3::default(), Xxh3::with_seed(0));
    }

    /// Stored filters depend on these: a change needs a new [`HASH_VERSION`]. The values come from
    /// the reference implementation in C.
    #[test]
    fn hashes_are_pinned() {
        let cases: [(&[u8], u64, u64); 4] = [
            (b"", 0, 0x2d06_8005_38d3_94c2),
            (b"", 1, 0x4dc5_b0cc_826f_6703),
            (b"sieve", 1, 0x6888_a839_d3d0_6257),
            (&[0xff; 300], 1, 0x357c_796d_d4d8_3e0b),
        ];
        for (key, seed, want) in cases {
            assert_eq!(key_hash(key, seed), want, "{} bytes, seed {seed}", key.len());
        }
    }
}
