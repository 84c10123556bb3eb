//! Binary fuse filter: 9 bits a key for a rate of 1 in 256, the fastest to ask of the small ones.
//!
//! A key has three slots, in three adjacent segments; they add up, by XOR, to its fingerprint. A
//! question always reads three cache lines, side by side: as fast as a blocked Bloom filter while
//! the filter is in the cache, slower when it is not. Building one takes random access to 12 % more
//! slots than keys. A [`Ribbon`](crate::Ribbon) takes 11 % less memory and any rate; this one has
//! two.
//!
//! Three slots and not four: with four a filter is 4 % smaller and reads a line more, and for
//! memory there is the ribbon.
//!
//! | file     | what it holds                                |
//! |----------|----------------------------------------------|
//! | `place`  | what a hash means to a filter                |
//! | `shape`  | slots and segments                           |
//! | `print`  | fingerprints of 8 and 16 bits                |
//! | `build`  | from hashes to slots, and the memory it takes |
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

/// Bits per key of a large [`BinaryFuse16`], and the fewest for which one is built.
pub const BITS_PER_KEY_WIDE: f64 = 18.0;

/// Bits of the fingerprints of a filter of so many bits per key: 8 below [`BITS_PER_KEY_WIDE`], 16
/// from there on.
#[must_use]
pub fn print_bits_for(bits_per_key: f64) -> u8 {
    if bits_per_key < BITS_PER_KEY_WIDE { 8 } else { 16 }
}

/// A binary fuse filter with fingerprints of 8 bits: 1 in 256 absent keys is a "maybe".
pub type BinaryFuse8 = BinaryFuse<u8>;

/// A binary fuse filter with fingerprints of 16 bits: 1 in 65,536 absent keys is a "maybe".
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
    /// A filter over keys with these hashes, which may repeat.
    ///
    /// Slots are 9/8 of a million keys or more, 1.18 of 100,000, 1.25 of 10,000, 1.4 of 1,000, and
    /// at least 12. Hashes must be as good as random. Whatever they are, no key is denied: those
    /// for which no seed is found, which does not happen by chance, give a filter that says "maybe"
    /// to every key.
    ///
    /// Takes 20 bytes a key beside the hashes while it builds, and 28 if equal ones are no
    /// neighbours. 13 to 21 ns a key up to 100,000 keys, 33 ns at a million, 45 ns at a
    /// hundred.
    #[must_use]
    pub fn build(hashes: &[u64]) -> Self {
        Self::build_within(hashes, ATTEMPTS)
    }

    /// As [`build`](Self::build); returns `None` soon after `is_cancelled` returns `true`, as it
    /// must from then on.
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
        assert_eq!(slots.len() as u64, shape.slots(), "as many slots as the shape says");
        Self { hasher: Hasher::new(shape, attempt), slots, shape, attempt, key_count }
    }

    /// Returns `false` only if no key with this hash was added.
    ///
    /// Reads three cache lines and has no branch that depends on the answer.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let (places, spread) = self.hasher.places(self.hasher.mix(hash));
        self.adds_up(places, spread)
    }

    #[inline(always)]
    fn adds_up(&self, places: [usize; 3], spread: u64) -> bool {
        // Checked: without, 1.7 ns a question instead of 1.9, and less than xorf's 2.3 both.
        let [first, second, third] = places.map(|place| self.slots[place]);
        P::of(spread) == first ^ second ^ third
    }

    /// Starts to load the three lines that [`may_contain_hash`](Self::may_contain_hash) will read.
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

    /// Sets each of `answers` to what [`may_contain_hash`](Self::may_contain_hash) says of the hash
    /// at its place, with many loads from memory in flight at once.
    ///
    /// # Panics
    ///
    /// If there are not as many answers as hashes.
    pub fn may_contain_hashes(&self, hashes: &[u64], answers: &mut [bool]) {
        /// So many questions are on their way from memory at once.
        const BATCH: usize = 32;

        assert_eq!(hashes.len(), answers.len(), "an answer for each hash");
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            let mut asked = [([0; 3], 0); BATCH];
            for (asked, &hash) in asked.iter_mut().zip(hashes) {
                *asked = self.hasher.places(self.hasher.mix(hash));
                self.prefetch_places(asked.0);
            }
            for (answer, &(places, spread)) in answers.iter_mut().zip(&asked) {
                *answer = self.adds_up(places, spread);
            }
        }
    }

    /// Bytes of the slots.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Those that the arena counts.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.slots.arena_bytes()
    }

    /// Expected false-positive rate, from 0 to 1: `2^-8` or `2^-16`, also of a filter without keys.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        if self.attempt == SATURATED { 1.0 } else { columns_fpr(P::BITS.into()) }
    }

    /// Different hashes that were added.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }
}

/// Shows the shape, not the bits.
impl<P> fmt::Debug for BinaryFuse<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryFuse")
            .field("print_bits", &(size_of::<P>() * 8))
            .field("slots", &self.slots.len())
            .field("keys", &self.key_count)
            .finish_non_exhaustive()
    }
}
