//! NEON: the line as a table of 64 bytes in four registers, and one byte per probe.
//!
//! Tested under emulation: the unit tests of this crate, built for `aarch64-unknown-linux-gnu`,
//! pass in `qemu-aarch64`. Its speed has not been measured.

use core::arch::aarch64::{
    uint16x8_t, vandq_u8, vcgeq_u8, vcombine_u8, vcombine_u16, vdupq_n_u8, vld1q_u8, vld1q_u8_x4,
    vld1q_u32, vminvq_u8, vmulq_n_u32, vorrq_u8, vqtbl4q_u8, vreinterpretq_s8_u8, vshlq_u8,
    vshrn_n_u16, vshrn_n_u32, vshrq_n_u8, vtstq_u8,
};

use super::{Line, POWERS, batch};

/// Proof that this CPU has NEON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Returns the proof if this CPU has NEON, as all targets of this architecture but bare metal
    /// do.
    pub(super) fn detect() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self(()))
    }

    #[inline]
    pub(super) fn contains(self, line: &Line, hash: u64, probes: u8) -> bool {
        // SAFETY: only `detect` creates a `Neon`, and only if the CPU has it.
        unsafe { contains(line, hash, probes) }
    }

    pub(super) fn contains_all(
        self,
        lines: &[Line],
        probes: u8,
        hashes: &[u64],
        results: &mut [bool],
    ) {
        // SAFETY: as above.
        unsafe { contains_all(lines, probes, hashes, results) }
    }
}

#[target_feature(enable = "neon")]
fn contains_all(lines: &[Line], probes: u8, hashes: &[u64], results: &mut [bool]) {
    batch::test_all(lines, hashes, results, |line, hash| contains(line, hash, probes));
}

#[inline]
#[target_feature(enable = "neon")]
fn contains(line: &Line, hash: u64, probes: u8) -> bool {
    const NUMBERS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    let low = hash as u32; // The high half selects the line.
    let (front, back) = (high_halves(low, 0), high_halves(low, 8));
    // Bits 10 to 15 of a high half are the byte of the line, bits 7 to 9 the bit within the byte.
    let high_bytes = vcombine_u8(vshrn_n_u16::<8>(front), vshrn_n_u16::<8>(back));
    let bit = vcombine_u8(vshrn_n_u16::<7>(front), vshrn_n_u16::<7>(back));
    let bit = vreinterpretq_s8_u8(vandq_u8(bit, vdupq_n_u8(7)));
    // SAFETY: the reference covers the 64 bytes read.
    let table = unsafe { vld1q_u8_x4(line.0.as_ptr().cast()) };
    let bytes = vqtbl4q_u8(table, vshrq_n_u8::<2>(high_bytes));
    let found = vtstq_u8(bytes, vshlq_u8(vdupq_n_u8(1), bit));
    // SAFETY: the reference covers the 16 bytes read.
    let numbers = unsafe { vld1q_u8(NUMBERS.as_ptr()) };
    // Unused probes count as set.
    vminvq_u8(vorrq_u8(found, vcgeq_u8(numbers, vdupq_n_u8(probes)))) == u8::MAX
}

/// Returns the high halves of `g(first)` to `g(first + 7)`; `first` is 0 or 8.
#[inline]
#[target_feature(enable = "neon")]
fn high_halves(low: u32, first: usize) -> uint16x8_t {
    let four = |first: usize| {
        let powers: &[u32] = &POWERS.0[first..first + 4];
        // SAFETY: the slice covers the 16 bytes read.
        let powers = unsafe { vld1q_u32(powers.as_ptr()) };
        vshrn_n_u32::<16>(vmulq_n_u32(powers, low))
    };
    vcombine_u16(four(first), four(first + 4))
}
