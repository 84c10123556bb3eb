//! How a key becomes the 64-bit hash that every filter takes.
//!
//! 64 bits, because a filter cannot be better than its hash: with 32 bits and 10 bits per key, the
//! hashes of 40 million keys collide as often as the filter errs.

use core::hash::{BuildHasher, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Names the function behind [`key_hash`]. A filter built with another version means "maybe".
pub const HASH_VERSION: u8 = 1;

/// `xxh3_64` of `key`.
///
/// `seed` is drawn once per store, so that nobody can prepare keys that collide in it.
///
/// Source: the XXH3 specification,
/// <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The default hasher of the [standalone filters](crate::standalone): [`key_hash`] with a seed.
///
/// Seed 0 unless another is given. Whoever can choose keys can prepare ones that collide under a
/// seed that is known to them; give a random one to a filter that strangers fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xxh3 {
    seed: u64,
}

impl Xxh3 {
    /// The hasher with this seed.
    #[must_use]
    pub const fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed that was given.
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

/// The [`Hasher`] of [`Xxh3`]: each write is hashed with the result of the one before as its seed.
///
/// So one write gives [`key_hash`], which is how the filters use it. Several writes give a good
/// hash too, but not that of their bytes joined.
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

/// The hash of `key` that a filter with this hasher takes: of one write, and nothing else.
///
/// Not [`BuildHasher::hash_one`], which adds a length or a terminator by the type of the key.
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

    /// Stored filters depend on these: a change needs a new [`HASH_VERSION`]. The values were
    /// computed with the reference implementation in C.
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
