//! A bit array of any length.

use alloc::boxed::Box;

use crate::decode_error::DecodeError;
use crate::memory;
use crate::saved::{Reader, Writer};

/// Bit `i` is bit `i % 64` of word `i / 64`. Bits after the last are zero.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bits {
    words: Box<[u64]>,
    len: u64,
    /// Number of set bits.
    ones: u64,
}

impl Bits {
    /// # Panics
    ///
    /// If `len` is 0 or exceeds the memory.
    pub(super) fn new(len: u64) -> Self {
        assert!(len > 0, "a filter has bits");
        let words =
            usize::try_from(len.div_ceil(64)).expect("the filter exceeds the address space");
        Self { words: memory::filled(0, words).into(), len, ones: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn ones(&self) -> u64 {
        self.ones
    }

    /// Returns the share of set bits, from 0 to 1.
    pub(super) fn fill(&self) -> f64 {
        self.ones as f64 / self.len as f64
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Returns `true` if all of these bits are set.
    ///
    /// Tests every bit: an early exit takes twice as long with 7 bits, because its branch is
    /// unpredictable.
    #[inline]
    pub(super) fn all(&self, places: impl Iterator<Item = u64>) -> bool {
        let words = &*self.words;
        let found = places.fold(1, |found, place| found & (words[word_of(place)] >> (place % 64)));
        found & 1 == 1
    }

    /// Sets these bits. Returns `true` if all were set before.
    #[inline]
    pub(super) fn set_all(&mut self, places: impl Iterator<Item = u64>) -> bool {
        let words = &mut *self.words;
        let mut fresh = 0;
        for place in places {
            let word = &mut words[word_of(place)];
            let set = *word | 1 << (place % 64);
            fresh += u64::from(set != *word);
            *word = set;
        }
        self.ones += fresh;
        fresh == 0
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.ones = 0;
    }

    /// Replaces every word by `combine` of the word and that of `other`, which has the same length.
    pub(super) fn combine(&mut self, other: &Self, combine: impl Fn(u64, u64) -> u64) {
        for (word, &other) in self.words.iter_mut().zip(&other.words) {
            *word = combine(*word, other);
        }
        self.count();
    }

    pub(super) fn into_words(self) -> Box<[u64]> {
        self.words
    }

    /// Creates an array of `len` bits from its words.
    pub(super) fn from_words(words: Box<[u64]>, len: u64) -> Self {
        debug_assert_eq!(words.len() as u64, len.div_ceil(64), "the words hold `len` bits");
        let mut bits = Self { words, len, ones: 0 };
        bits.count();
        bits
    }

    fn count(&mut self) {
        self.ones = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u64s(self.words.iter().copied());
    }

    /// Reads `len` bits.
    pub(super) fn read(reader: &mut Reader<'_>, len: u64) -> Result<Self, DecodeError> {
        let words: Box<[u64]> = reader.u64s("filter bits", len.div_ceil(64))?.collect();
        let last = words.last().copied().unwrap_or_default();
        if !len.is_multiple_of(64) && last >> (len % 64) != 0 {
            return Err(DecodeError::OutOfRange {
                what: "padding of the filter bits",
                value: last,
            });
        }
        Ok(Self::from_words(words, len))
    }
}

/// Positions are in memory and so fit a `usize`.
#[inline]
pub(super) fn word_of(place: u64) -> usize {
    (place / 64) as usize
}
