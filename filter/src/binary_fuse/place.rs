//! The slots and the fingerprint of a hash.
//!
//! | part         | from a 64-bit mix `g` of hash and seed                                    |
//! |--------------|---------------------------------------------------------------------------|
//! | first slot   | high bits: `g * starts / 2^64`, where `starts` are the slots of all segments but two |
//! | second       | one segment later; its position there XOR bits 30 to 47 of `s`            |
//! | third        | two segments later; its position there XOR bits 12 to 29 of `s`           |
//! | fingerprint  | the highest 8 or 16 bits of `s`                                           |
//!
//! `s` is a multiple of `g` modulo 2^64.

use super::shape::Shape;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;

/// Seeds to try. With random hashes the first or second works.
pub(crate) const ATTEMPTS: u8 = 64;

/// The attempt of a filter for which no seed works. See [`Hasher::new`].
pub(crate) const SATURATED: u8 = ATTEMPTS;

/// Maps hashes to slots, for filters of one shape and one seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    seed: u64,
    multiplier: u64,
    /// Slots in which a key may begin.
    starts: u64,
    segment_slots: usize,
}

impl Hasher {
    /// Creates the hasher of an attempt. With [`SATURATED`], every fingerprint is 0, like all
    /// slots, so the filter matches every key.
    pub(crate) fn new(shape: Shape, attempt: u8) -> Self {
        let number = u64::from(attempt) + 1;
        let mixed = number.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self {
            seed: (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb),
            multiplier: if attempt == SATURATED { 0 } else { SPREAD },
            starts: shape.segments << shape.segment_log2,
            segment_slots: 1 << shape.segment_log2,
        }
    }

    /// Mixes `hash`; the slots derive from the result.
    #[inline(always)]
    pub(crate) fn mix(&self, hash: u64) -> u64 {
        let product = u128::from(hash ^ self.seed) * u128::from(MIX);
        product as u64 ^ (product >> 64) as u64
    }

    /// Returns the slots of a mixed hash, ascending and below the number of slots, and a word whose
    /// highest bits are its fingerprint.
    #[inline(always)]
    pub(crate) fn places(&self, mixed: u64) -> ([usize; 3], u64) {
        let spread = mixed.wrapping_mul(self.multiplier);
        let mask = self.segment_slots - 1;
        // The high half of the product is below `starts`.
        let first = ((u128::from(mixed) * u128::from(self.starts)) >> 64) as usize;
        let second = (first + self.segment_slots) ^ ((spread >> 30) as usize & mask);
        let third = (first + 2 * self.segment_slots) ^ ((spread >> 12) as usize & mask);
        ([first, second, third], spread)
    }
}
