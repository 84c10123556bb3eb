//! The reference implementation: one probe after the other.

use super::{Line, bits};

/// Tests every bit: an early exit costs more, in mispredicted branches.
#[inline]
pub(super) fn contains(line: &Line, hash: u64, probes: u8) -> bool {
    bits(hash, probes).fold(1, |found, bit| found & (line.0[bit as usize / 32] >> (bit % 32))) == 1
}

/// Sets the bits of `hash`.
#[inline]
pub(super) fn insert(line: &mut Line, hash: u64, probes: u8) {
    for bit in bits(hash, probes) {
        line.0[bit as usize / 32] |= 1 << (bit % 32);
    }
}
