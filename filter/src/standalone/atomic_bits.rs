//! A bit array that threads set concurrently.

use alloc::boxed::Box;

use super::bits::{Bits, word_of};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// [`Bits`] through a shared reference. Bits are only set, by atomic read-modify-writes: no thread
/// clears the bit of another.
pub(super) struct AtomicBits {
    words: Box<[AtomicU64]>,
    len: u64,
}

impl AtomicBits {
    /// # Panics
    ///
    /// If `len` is 0 or exceeds the memory.
    pub(super) fn new(len: u64) -> Self {
        Self::from(Bits::new(len))
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Returns `true` if all of these bits are set.
    #[inline]
    pub(super) fn all(&self, places: impl Iterator<Item = u64>) -> bool {
        Self::all_in(core::slice::from_ref(self), places)
    }

    /// Returns `true` if each of these bits is set in at least one of the arrays, which have the
    /// same length.
    #[inline]
    pub(super) fn all_in(arrays: &[Self], places: impl Iterator<Item = u64>) -> bool {
        let found = places.fold(1, |found, place| {
            let words = arrays.iter().map(|array| array.words[word_of(place)].load(Relaxed));
            found & (words.fold(0, |word, other| word | other) >> (place % 64))
        });
        found & 1 == 1
    }

    /// Sets these bits. Returns `true` if all were set before. A set bit is not written, so that a
    /// hot key does not invalidate its lines in other caches.
    #[inline]
    pub(super) fn set_all(&self, places: impl Iterator<Item = u64>) -> bool {
        debug_assert_eq!(self.words.len() as u64, self.len.div_ceil(64));
        let mut present = true;
        for place in places {
            debug_assert!(place < self.len, "bit {place} of {}", self.len);
            let (word, bit) = (&self.words[word_of(place)], 1 << (place % 64));
            if word.load(Relaxed) & bit == 0 {
                // Another thread may have set it meanwhile: only one of the two changed it.
                present &= word.fetch_or(bit, Relaxed) & bit != 0;
            }
        }
        present
    }

    /// Sets the bits of `other`, which has the same length.
    pub(super) fn unite(&self, other: &Self) {
        debug_assert_eq!(self.len, other.len, "arrays of one shape");
        for (word, other) in self.words.iter().zip(&other.words) {
            let missing = other.load(Relaxed) & !word.load(Relaxed);
            if missing != 0 {
                word.fetch_or(missing, Relaxed);
            }
        }
    }

    /// Clears the bits that are not set in `other`, which has the same length.
    pub(super) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word = AtomicU64::new(word.load(Relaxed) & other.load(Relaxed));
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word = AtomicU64::new(0));
    }

    /// Returns a copy of the current bits.
    pub(super) fn snapshot(&self) -> Bits {
        Bits::from_words(self.words.iter().map(|word| word.load(Relaxed)).collect(), self.len)
    }
}

impl From<Bits> for AtomicBits {
    fn from(bits: Bits) -> Self {
        let len = bits.len();
        Self { words: bits.into_words().into_iter().map(AtomicU64::new).collect(), len }
    }
}
