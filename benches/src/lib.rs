//! Keys for the criterion benches.
//!
//! The benches measure the parts of one crate. `sieve bench misses` measures the whole engine.

use sievedb_filter::key_hash;

/// Bytes of a key of [`key`].
pub const KEY_BYTES: usize = 16;

/// Bytes of a value of [`value`].
pub const VALUE_BYTES: usize = 100;

/// Returns key number `index` in hexadecimal digits. Numeric neighbours are not neighbours in key
/// order.
#[must_use]
pub fn key(index: u64) -> [u8; KEY_BYTES] {
    let number = key_hash(&index.to_le_bytes(), 0);
    let mut key = [0; KEY_BYTES];
    for (digit, place) in key.iter_mut().zip((0..u64::BITS).step_by(4).rev()) {
        // Four bits of a number fit a byte.
        let value = (number >> place) as u8 & 0xf;
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
    }
    key
}

/// Returns a value for key number `index`; half of it compresses.
#[must_use]
pub fn value(index: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'v'; VALUE_BYTES];
    for (part, place) in value[..VALUE_BYTES / 2].chunks_mut(KEY_BYTES).zip(1..) {
        part.copy_from_slice(&key(index ^ place << 56)[..part.len()]);
    }
    value
}

/// Yields 0 to `count` - 1 in pseudorandom order, repeatedly.
///
/// # Panics
///
/// Unless `count` is a power of two.
pub fn shuffled(count: u64) -> impl FnMut() -> u64 {
    assert!(count.is_power_of_two(), "{count} is no power of two");
    let mut index = 0_u64;
    move || {
        // A congruential generator of full period: Hull and Dobell, "Random Number Generators",
        // SIAM Review 4(3), 1962. Keys are hashes of their number, so low bits may be regular.
        index = index.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1) & (count - 1);
        index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_cover_every_index() {
        let mut next = shuffled(1 << 12);
        let keys: HashSet<_> = (0..1 << 12).map(|_| key(next())).collect();
        assert_eq!(keys.len(), 1 << 12);
    }
}
