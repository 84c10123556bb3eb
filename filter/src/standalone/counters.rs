//! Saturating counters of four bits.

use alloc::boxed::Box;

use crate::decode_error::DecodeError;
use crate::memory;
use crate::saved::{Reader, Writer};

/// A counter with this value is saturated: its true value is unknown.
pub(super) const COUNTER_MAX: u64 = 15;
const PER_WORD: u64 = 16;

/// Counter `i` is the four bits from `4 (i % 16)` of word `i / 16`. Counters after the last are
/// zero.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Counters {
    words: Box<[u64]>,
    len: u64,
    /// Number of nonzero counters.
    used: u64,
    /// Number of counters at [`COUNTER_MAX`].
    saturated: u64,
}

impl Counters {
    /// # Panics
    ///
    /// If `len` is 0 or exceeds the memory.
    pub(super) fn new(len: u64) -> Self {
        assert!(len > 0, "a filter has counters");
        let words = usize::try_from(len.div_ceil(PER_WORD));
        let words = words.expect("the filter exceeds the address space");
        Self { words: memory::filled(0, words).into(), len, used: 0, saturated: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn saturated(&self) -> u64 {
        self.saturated
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    #[inline]
    pub(super) fn get(&self, i: u64) -> u64 {
        // Positions are in memory and so fit a `usize`.
        (self.words[(i / PER_WORD) as usize] >> (i % PER_WORD * 4)) & COUNTER_MAX
    }

    /// Increments a counter unless it is saturated. Returns its old value.
    #[inline]
    pub(super) fn increment(&mut self, i: u64) -> u64 {
        let was = self.get(i);
        self.words[(i / PER_WORD) as usize] += u64::from(was < COUNTER_MAX) << (i % PER_WORD * 4);
        self.used += u64::from(was == 0);
        self.saturated += u64::from(was == COUNTER_MAX - 1);
        was
    }

    /// Decrements a counter unless it is saturated or zero. Returns its old value.
    #[inline]
    pub(super) fn decrement(&mut self, i: u64) -> u64 {
        let was = self.get(i);
        let counts = was != 0 && was != COUNTER_MAX;
        self.words[(i / PER_WORD) as usize] -= u64::from(counts) << (i % PER_WORD * 4);
        self.used -= u64::from(was == 1);
        was
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.used = 0;
        self.saturated = 0;
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u64s(self.words.iter().copied());
    }

    /// Reads `len` counters.
    pub(super) fn read(reader: &mut Reader<'_>, len: u64) -> Result<Self, DecodeError> {
        let words: Box<[u64]> = reader.u64s("filter counters", len.div_ceil(PER_WORD))?.collect();
        let mut counters = Self { words, len, used: 0, saturated: 0 };
        let padded_len = counters.words.len() as u64 * PER_WORD;
        if let Some(i) = (len..padded_len).find(|&i| counters.get(i) != 0) {
            return Err(DecodeError::OutOfRange {
                what: "padding of the filter counters",
                value: counters.get(i),
            });
        }
        counters.used = (0..len).map(|i| u64::from(counters.get(i) != 0)).sum();
        counters.saturated = (0..len).map(|i| u64::from(counters.get(i) == COUNTER_MAX)).sum();
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_saturate_at_both_ends() {
        let mut counters = Counters::new(33);
        for i in [0, 15, 16, 32] {
            for want in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15, 15] {
                assert_eq!(counters.increment(i), want, "counter {i}");
            }
            assert_eq!((counters.decrement(i), counters.get(i)), (15, 15), "saturated");
            assert_eq!((counters.decrement(i + 1 - i / 32 * 31), 0), (0, 0), "empty");
        }
        assert_eq!((counters.used(), counters.saturated()), (4, 4));
        assert!((0..33).all(|i| (counters.get(i) != 0) == [0, 15, 16, 32].contains(&i)));
    }

    #[test]
    fn increments_can_be_undone() {
        let mut counters = Counters::new(20);
        (0..14).for_each(|_| {
            counters.increment(7);
        });
        assert_eq!((counters.get(7), counters.used(), counters.saturated()), (14, 1, 0));
        (0..14).for_each(|_| {
            counters.decrement(7);
        });
        assert!(counters == Counters::new(20));
    }
}
