//! NEON: a block of eight columns in four registers.
//!
//! Tested under emulation: the unit tests of this crate, built for `aarch64-unknown-linux-gnu`,
//! pass in `qemu-aarch64`. Its speed has not been measured.

use core::arch::aarch64::{
    uint8x16_t, vandq_u64, vcntq_u8, vdup_n_u8, vdupq_n_u64, veor_u8, veorq_u64, vget_lane_u64,
    vget_low_u8, vld1_s8, vld1q_u64, vpaddq_u8, vreinterpret_u64_u8, vreinterpretq_u8_u64, vshl_u8,
};

use super::Ribbon;
use super::batch::test_batch;
use super::group::View;
use super::probe_methods::probe_methods;
use super::query::{Place, test_all, test_one};
use super::row::{Mixed, TurnedRow};

/// Proof that this CPU has NEON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Returns the proof if this CPU has NEON, as all targets of this architecture but bare metal
    /// do.
    pub(crate) fn detect() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self(()))
    }
}

probe_methods!(Neon, "neon");

#[inline]
#[target_feature(enable = "neon")]
fn matches(group: View<'_>, place: &Place, fingerprint: u8) -> bool {
    /// Shifts that move bit `i` to the lowest position of lane `i`.
    const SHIFTS: [i8; 8] = [0, -1, -2, -3, -4, -5, -6, -7];

    let (first, next, columns) = place.words(group);
    let words = group.lines.as_ptr().cast::<u64>();
    // Bit counts of each byte of the selected slots, for two of the eight columns.
    let counts = |two: usize| -> uint8x16_t {
        // SAFETY: the eight words from `first` on are in the group, as `words` ensures.
        let front = unsafe { vld1q_u64(words.wrapping_add(first + two)) };
        // SAFETY: the eight words from `next` on are in the group, as `words` ensures.
        let back = unsafe { vld1q_u64(words.wrapping_add(next + two)) };
        let slots = veorq_u64(
            vandq_u64(front, vdupq_n_u64(place.low())),
            vandq_u64(back, vdupq_n_u64(place.high())),
        );
        vcntq_u8(vreinterpretq_u8_u64(slots))
    };
    // Each round adds adjacent bytes: from eight bytes per column down to one.
    let front = vpaddq_u8(counts(0), counts(2));
    let back = vpaddq_u8(counts(4), counts(6));
    let sums = vpaddq_u8(front, back);
    let sums = vget_low_u8(vpaddq_u8(sums, sums));
    // SAFETY: the reference covers the 8 bytes read.
    let shifts = unsafe { vld1_s8(SHIFTS.as_ptr()) };
    let wrong = veor_u8(sums, vshl_u8(vdup_n_u8(fingerprint), shifts));
    let wrong = vget_lane_u64::<0>(vreinterpret_u64_u8(wrong)) & 0x0101_0101_0101_0101;
    // Columns of other blocks do not count: they are shifted out.
    wrong.checked_shl(u64::BITS - 8 * u32::from(columns)).is_none_or(|wrong| wrong == 0)
}
