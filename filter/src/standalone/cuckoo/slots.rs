//! The slots of a cuckoo filter: packed integers of a few bits.
//!
//! Slot `s` is the bits from `s b` to `(s + 1) b` of a little-endian bit array. A slot is empty
//! (zero) or holds `fingerprint * 2 + place`: a fingerprint from 1, and the slot's place in the
//! window of the fingerprint. Window `i` is the slots `i` and `i + 1`, so windows overlap.

use alloc::{boxed::Box, vec::Vec};

use crate::decode_error::DecodeError;
use crate::memory;
use crate::saved::{Reader, Writer};

/// Slots of a window.
pub(super) const WINDOW: u64 = 2;
/// Minimum bits of a slot: fingerprints from 1 to 7.
pub(super) const BITS_MIN: u32 = 4;
/// Maximum bits of a slot: a window at any bit offset fits one load of 64 bits.
pub(super) const BITS_MAX: u32 = 28;

/// Bytes after the last slot, so that every load can be 8 bytes long.
const PADDING_BYTES: usize = 8;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Slots {
    bytes: Box<[u8]>,
    len: u64,
    bits: u32,
}

impl Slots {
    /// Creates `len` empty slots of `bits` bits.
    ///
    /// # Panics
    ///
    /// If `len` is below [`WINDOW`] or exceeds the memory, or `bits` is not from [`BITS_MIN`] to
    /// [`BITS_MAX`].
    pub(super) fn new(len: u64, bits: u32) -> Self {
        assert!((BITS_MIN..=BITS_MAX).contains(&bits), "bits is {bits}");
        assert!(len >= WINDOW, "slots is {len}");
        let bytes = Self::bytes_for(len, bits).and_then(|bytes| bytes.checked_add(PADDING_BYTES));
        let bytes = bytes.expect("the filter exceeds the address space");
        Self { bytes: memory::filled(0, bytes).into(), len, bits }
    }

    fn bytes_for(len: u64, bits: u32) -> Option<usize> {
        usize::try_from(len.checked_mul(bits.into())?.div_ceil(8)).ok()
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn windows(&self) -> u64 {
        self.len - (WINDOW - 1)
    }

    /// Returns the largest fingerprint; the smallest is 1.
    #[inline]
    pub(super) fn fingerprints(&self) -> u32 {
        (1 << (self.bits - 1)) - 1
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Returns the byte index of `slot`, the 64 bits from there, and the shift of `slot` within
    /// them. They include the whole window `slot`.
    #[inline]
    fn load(&self, slot: u64) -> (usize, u64, u32) {
        let bit = slot * u64::from(self.bits);
        // Positions are in memory and so fit a `usize`.
        let at = (bit / 8) as usize;
        let word = self.bytes[at..].first_chunk().expect("padding follows the last slot");
        (at, u64::from_le_bytes(*word), (bit % 8) as u32)
    }

    /// Returns the slots of window `i`, the first in the low bits.
    #[inline]
    fn window(&self, i: u64) -> u64 {
        let (_, word, shift) = self.load(i);
        word >> shift
    }

    #[inline]
    pub(super) fn get(&self, slot: u64) -> u32 {
        (self.window(slot) & self.mask()) as u32 // At most `BITS_MAX` bits.
    }

    #[inline]
    pub(super) fn set(&mut self, slot: u64, value: u32) {
        let (at, word, shift) = self.load(slot);
        let word = word & !(self.mask() << shift) | u64::from(value) << shift;
        self.bytes[at..at + size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
    }

    /// Returns the places of `fingerprint` in window `i`, as bits. Branchless.
    #[inline]
    pub(super) fn find(&self, i: u64, fingerprint: u32) -> u32 {
        let value = u64::from(fingerprint) << 1;
        let differing = self.window(i) ^ (value | (value | 1) << self.bits);
        self.zero_slots(differing)
    }

    /// Returns the empty places of window `i`, as bits.
    #[inline]
    pub(super) fn empty(&self, i: u64) -> u32 {
        self.zero_slots(self.window(i))
    }

    #[inline]
    fn zero_slots(&self, window: u64) -> u32 {
        let first = window & self.mask() == 0;
        let second = (window >> self.bits) & self.mask() == 0;
        u32::from(first) | u32::from(second) << 1
    }

    /// Prefetches window `i`.
    #[inline]
    pub(super) fn prefetch(&self, i: u64) {
        let at = (i * u64::from(self.bits) / 8) as usize; // As in `load`.
        crate::line::prefetch(&self.bytes[at]);
    }

    /// Counts the slots in use. Reads all.
    pub(super) fn used(&self) -> u64 {
        (0..self.len).map(|slot| u64::from(self.get(slot) != 0)).sum()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.bytes[..self.bytes.len() - PADDING_BYTES]);
    }

    /// Reads `len` slots of `bits` bits, which must be in the ranges of [`Self::new`].
    pub(super) fn read(reader: &mut Reader<'_>, len: u64, bits: u32) -> Result<Self, DecodeError> {
        let n = Self::bytes_for(len, bits).map_or(u64::MAX, |bytes| bytes as u64);
        let stored = reader.bytes("cuckoo slots", n)?;
        let mut bytes = Vec::with_capacity(stored.len() + PADDING_BYTES);
        bytes.extend_from_slice(stored);
        bytes.extend([0; PADDING_BYTES]);
        let slots = Self { bytes: bytes.into(), len, bits };
        slots.check()?;
        Ok(slots)
    }

    /// Checks that every fingerprint is at least 1 and within its window, and that the bits after
    /// the last slot are zero.
    fn check(&self) -> Result<(), DecodeError> {
        for slot in 0..self.len {
            let value = self.get(slot);
            let first = slot == 0 && value & 1 == 1;
            let last = slot == self.len - 1 && value & 1 == 0;
            if value == 1 || value != 0 && (first || last) {
                return Err(DecodeError::OutOfRange { what: "cuckoo slot", value: value.into() });
            }
        }
        // The window of the last slot: the slot and the padding.
        match self.window(self.len - 1) >> self.bits {
            0 => Ok(()),
            value => Err(DecodeError::OutOfRange { what: "padding of cuckoo slots", value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        for bits in BITS_MIN..=BITS_MAX {
            let mut slots = Slots::new(67, bits);
            let value = |slot: u64| (slot as u32).wrapping_mul(0x9e37_79b9) >> (u32::BITS - bits);
            for slot in (0..67).step_by(2).chain((1..67).step_by(2)) {
                slots.set(slot, value(slot));
            }
            for slot in 0..67 {
                assert_eq!(slots.get(slot), value(slot), "{bits} bits, slot {slot}");
            }
            slots.set(30, 0);
            assert_eq!(slots.empty(30) & 1, 1, "{bits} bits");
            assert_eq!(slots.get(29), value(29), "{bits} bits");
            assert_eq!(slots.get(31), value(31), "{bits} bits");
        }
    }

    #[test]
    fn a_fingerprint_is_found_only_at_its_place() {
        for bits in BITS_MIN..=BITS_MAX {
            let mut slots = Slots::new(9, bits);
            let fingerprint = slots.fingerprints();
            let cases = [(0, 0, 0b01), (1, 0, 0b00), (0, 1, 0b00), (1, 1, 0b10)];
            for (slot, place, found) in cases {
                slots.clear();
                slots.set(3 + slot, fingerprint << 1 | place);
                assert_eq!(
                    slots.find(3, fingerprint),
                    found,
                    "{bits} bits, slot {slot}, place {place}"
                );
                assert_eq!(slots.find(3, fingerprint - 1), 0, "{bits} bits");
                assert_eq!(slots.empty(3), 0b11 ^ (1 << slot), "{bits} bits");
            }
        }
    }
}
