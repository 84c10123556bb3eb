//! An array of bits that many threads set at once.

use alloc::boxed::Box;

use super::bits::{Bits, word_of};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// As [`Bits`], through a shared reference. Bits are only ever set, each by an atomic
/// read-modify-write: no thread undoes the bit of another.
pub(super) struct AtomicBits {
    words: Box<[AtomicU64]>,
    len: u64,
}

impl AtomicBits {
    /// # Panics
    ///
    /// If `len` is 0 or more than the memory can have.
    pub(super) fn new(len: u64) -> Self {
        Self::from(Bits::new(len))
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Whether all of these bits are set.
    #[inline]
    pub(super) fn all(&self, places: impl Iterator<Item = u64>) -> bool {
        Self::all_in(core::slice::from_ref(self), places)
    }

    /// Whether each of these bits is set in at least one of the arrays, which are equally long.
    #[inline]
    pub(super) fn all_in(arrays: &[Self], places: impl Iterator<Item = u64>) -> bool {
        let found = places.fold(1, |found, place| {
            let words = arrays.iter().map(|array| array.words[word_of(place)].load(Relaxed));
            found & (words.fold(0, |word, other| word | other) >> (place % 64))
        });
        found & 1 == 1
    }

    /// Sets these bits. Returns whether all were set before. A bit that is set already is not
    /// written, so that a hot key does not take its lines from the caches of other threads.
    #[inline]
    pub(super) fn set_all(&self, places: impl Iterator<Item = u64>) -> bool {
        let mut present = true;
        for place in places {
            let (word, bit) = (&self.words[word_of(place)], 1 << (place % 64));
            if word.load(Relaxed) & bit == 0 {
                // Another thread may have set it in between: one of the two made the difference.
                present &= word.fetch_or(bit, Relaxed) & bit != 0;
            }
        }
        present
    }

    /// Sets the bits that `other` has, which has as many.
    pub(super) fn unite(&self, other: &Self) {
        for (word, other) in self.words.iter().zip(&other.words) {
            let missing = other.load(Relaxed) & !word.load(Relaxed);
            if missing != 0 {
                word.fetch_or(missing, Relaxed);
            }
        }
    }

    /// Keeps the bits that `other` has too, which has as many.
    pub(super) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word = AtomicU64::new(word.load(Relaxed) & other.load(Relaxed));
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word = AtomicU64::new(0));
    }

    /// A copy of the bits that are set now.
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
