//! How a key becomes the 64-bit hash that every filter takes.
//!
//! 64 bits, because a filter cannot be better than its hash: with 32 bits and 10 bits per key, the
//! hashes of 40 million keys collide as often as the filter errs.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Names the function behind [`key_hash`]. A filter built with another version means "maybe".
pub const HASH_VERSION: u8 = 1;

/// `xxh3_64` of `key`.
///
/// `seed` is drawn once per store, so that nobody can prepare keys that collide in it.
///
/// Source: the XXH3 specification, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

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
