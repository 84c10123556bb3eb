//! Binary fuse filter: 9 bits per key at a rate of 1/256, with the fastest probe of the compact
//! filters.
//!
//! A key has three slots, in three adjacent segments, whose XOR is its fingerprint. A probe reads
//! three cache lines concurrently. It is as fast as a probe of a blocked Bloom filter in the cache,
//! and slower outside of it. A build accesses 12 % more slots than keys at random. A
//! [`Ribbon`](crate::Ribbon) is 11 % smaller and has any rate; this filter has two.
//!
//! With four slots a filter would be 4 % smaller but read one line more. The ribbon is the compact
//! choice.
//!
//! | file     | contents                                     |
//! |----------|----------------------------------------------|
//! | `place`  | the slots and fingerprint of a hash          |
//! | `shape`  | slots and segments                           |
//! | `print`  | fingerprints of 8 and 16 bits                |
//! | `build`  | the build, and its memory                    |
//! | `stored` | the payload of a filter block                |
//!
//! Source: Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", JEA 27, 2022,
//! <https://arxiv.org/abs/2201.01174>.

use core::fmt;

mod build;
mod place;
mod print;
mod shape;
mod stored;
#[cfg(test)]
mod tests;

use build::{Built, build};
use place::{ATTEMPTS, Hasher, SATURATED};
use shape::Shape;

use crate::arena::Slice;
use crate::line::prefetch;
use crate::params::columns_fpr;

pub(crate) use print::Print;
pub(crate) use stored::Header;

/// Bits per key of a large [`BinaryFuse8`].
pub const BITS_PER_KEY: f64 = 9.0;

/// Bits per key of a large [`BinaryFuse16`], and the minimum for which one is built.
pub const BITS_PER_KEY_WIDE: f64 = 18.0;

/// Returns the fingerprint bits for `bits_per_key`: 8 below [`BITS_PER_KEY_WIDE`], 16 from there
/// on.
#[must_use]
pub fn fingerprint_bits_for(bits_per_key: f64) -> u8 {
    if bits_per_key < BITS_PER_KEY_WIDE { 8 } else { 16 }
}

/// A binary fuse filter with fingerprints of 8 bits: 1 in 256 absent keys matches.
pub type BinaryFuse8 = BinaryFuse<u8>;

/// A binary fuse filter with fingerprints of 16 bits: 1 in 65,536 absent keys matches.
pub type BinaryFuse16 = BinaryFuse<u16>;

/// An immutable binary fuse filter with fingerprints `P`: see [`BinaryFuse8`] and [`BinaryFuse16`].
#[derive(Clone)]
pub struct BinaryFuse<P> {
    hasher: Hasher,
    slots: Slice<P>,
    shape: Shape,
    attempt: u8,
    key_count: u64,
}

impl<P: Print> BinaryFuse<P> {
    /// Builds a filter over the hashes of keys, which may repeat.
    ///
    /// Slots per key: 9/8 from a million keys on, 1.18 for 100,000, 1.25 for 10,000, 1.4 for 1,000;
    /// at least 12 slots. Hashes should be random; with any hashes there are no false negatives. If
    /// no seed works, which does not happen by chance, the filter matches every key.
    ///
    /// Allocates 20 bytes per key besides the hashes, or 28 if duplicates are not adjacent. Costs
    /// 13 to 21 ns per key up to 100,000 keys, 33 ns at a million, 45 ns at a hundred million.
    #[must_use]
    pub fn build(hashes: &[u64]) -> Self {
        Self::build_within(hashes, ATTEMPTS)
    }

    /// Does the same as [`build`](Self::build), but returns `None` soon after `is_cancelled`
    /// returns `true`, which it must then always do.
    pub(crate) fn build_unless(hashes: &[u64], is_cancelled: &dyn Fn() -> bool) -> Option<Self> {
        build(hashes, ATTEMPTS, is_cancelled).map(Self::of)
    }

    fn build_within(hashes: &[u64], attempts: u8) -> Self {
        Self::of(build(hashes, attempts, &|| false).expect("the build is not cancelled"))
    }

    fn of(Built { shape, attempt, slots, key_count }: Built<P>) -> Self {
        Self::from_parts(shape, attempt, slots, key_count)
    }

    fn from_parts(shape: Shape, attempt: u8, slots: Slice<P>, key_count: u64) -> Self {
        assert_eq!(slots.len() as u64, shape.slots(), "the shape gives the number of slots");
        Self { hasher: Hasher::new(shape, attempt), slots, shape, attempt, key_count }
    }

    /// Returns `false` only if no key with this hash was added.
    ///
    /// Reads three cache lines. No branch depends on the result.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let (places, spread) = self.hasher.places(self.hasher.mix(hash));
        self.adds_up(places, spread)
    }

    #[inline(always)]
    fn adds_up(&self, places: [usize; 3], spread: u64) -> bool {
        // With bounds checks: 1.9 ns a probe, 1.7 without. xorf takes 2.3 ns either way.
        let [first, second, third] = places.map(|place| self.slots[place]);
        P::of(spread) == first ^ second ^ third
    }

    /// Prefetches the three lines that [`may_contain_hash`](Self::may_contain_hash) reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let (places, _) = self.hasher.places(self.hasher.mix(hash));
        self.prefetch_places(places);
    }

    #[inline(always)]
    fn prefetch_places(&self, places: [usize; 3]) {
        for place in places {
            prefetch(&self.slots[place]);
        }
    }

    /// Sets each of `results` to [`may_contain_hash`](Self::may_contain_hash) of the hash at its
    /// index, with many loads in flight at once.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn may_contain_hashes(&self, hashes: &[u64], results: &mut [bool]) {
        /// Probes in flight at once.
        const BATCH: usize = 32;

        assert_eq!(hashes.len(), results.len(), "one result per hash");
        for (hashes, results) in hashes.chunks(BATCH).zip(results.chunks_mut(BATCH)) {
            let mut probes = [([0; 3], 0); BATCH];
            for (probe, &hash) in probes.iter_mut().zip(hashes) {
                *probe = self.hasher.places(self.hasher.mix(hash));
                self.prefetch_places(probe.0);
            }
            for (result, &(places, spread)) in results.iter_mut().zip(&probes) {
                *result = self.adds_up(places, spread);
            }
        }
    }

    /// Returns the bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns the bytes that the arena counts.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.slots.arena_bytes()
    }

    /// Returns the expected false-positive rate, from 0 to 1: `2^-8` or `2^-16`, also for an empty
    /// filter.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        if self.attempt == SATURATED { 1.0 } else { columns_fpr(P::BITS.into()) }
    }

    /// Returns the number of distinct hashes added.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }
}

/// Prints the shape, not the bits.
impl<P> fmt::Debug for BinaryFuse<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryFuse")
            .field("print_bits", &(size_of::<P>() * 8))
            .field("slots", &self.slots.len())
            .field("keys", &self.key_count)
            .finish_non_exhaustive()
    }
}
