//! AVX-512: a block of eight columns in one register.

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_loadu_si512, _mm512_or_si512, _mm512_popcnt_epi64,
    _mm512_set1_epi64, _mm512_setr_epi64, _mm512_slli_epi64, _mm512_srlv_epi64,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::Ribbon;
use super::band::Band;
use super::batch::test_batch;
use super::group::{LINE_WORDS, View};
use super::query::{Place, test_all, test_group};
use super::row::Mixed;
use super::rows::Rows;
use super::shape::BLOCK_SLOTS;
use super::window::Window;
use crate::line::Aligned;

const ROWS: usize = BLOCK_SLOTS as usize;

/// Proof that this CPU has AVX-512 with VPOPCNTDQ and GFNI: Intel since Ice Lake, AMD since Zen 4.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vpopcntdq")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2");
        has.then_some(Self(()))
    }

    /// Adds all of `rows` to `window`, or none. `groups` is from 1 to 4.
    pub(crate) fn insert_all(
        self,
        window: &mut Window,
        rows: Rows<'_>,
        band: &mut Band,
        groups: usize,
    ) -> bool {
        let insert_all = match groups {
            1 => Window::insert_all::<1>,
            2 => Window::insert_all::<2>,
            3 => Window::insert_all::<3>,
            _ => Window::insert_all::<4>,
        };
        // SAFETY: only `detect` creates an `Avx512`, and only if the CPU has the features.
        unsafe { insert_all(window, rows, band) }
    }

    /// Moves the rows of the layer from `window` to `band`. Slots then count from the end of the
    /// layer.
    pub(crate) fn finish(self, window: &mut Window, band: &mut Band) {
        // SAFETY: as above.
        unsafe { window.finish(band) };
    }

    #[inline]
    pub(crate) fn solve_block(
        self,
        coefficients: &[u64; ROWS],
        fingerprints: &[u32; ROWS],
        shift: u32,
        columns: &mut [u64; LINE_WORDS],
    ) {
        // SAFETY: as above.
        unsafe { solve_block(coefficients, fingerprints, shift, columns) }
    }
}

/// Probes. Only the assembly in [`sums`](Avx512::sums) needs these target features.
impl Avx512 {
    /// Probes the filter. Only the common case is inlined into every caller.
    ///
    /// Alternative tried: one function, which the compiler inlined only in programs with one call
    /// site. Elsewhere a probe in the caches took 4.7 instead of 3.5 ns, for the call, saved
    /// registers, and loop invariants.
    #[inline(always)]
    pub(crate) fn may_contain_mixed(self, ribbon: &Ribbon, hash: u64, mixed: Mixed) -> bool {
        let group = ribbon.groups.first.view();
        if !ribbon.groups.others.is_empty() {
            self.probe_groups(ribbon, hash, mixed)
        } else if group.shape.upper > 0 {
            self.probe_mixed_columns(ribbon, hash, mixed)
        } else {
            self.probe_group(ribbon, group.unmixed(), hash, mixed)
        }
    }

    /// Probes several groups.
    #[inline(never)]
    fn probe_groups(self, ribbon: &Ribbon, hash: u64, mixed: Mixed) -> bool {
        let Some(row) = ribbon.front.row(ribbon, mixed) else {
            return self.probe_bumped(ribbon, hash);
        };
        test_all(ribbon, &Place::new(row), |group, place, print| self.matches(group, place, print))
    }

    /// Probes one group with mixed columns.
    #[inline(never)]
    fn probe_mixed_columns(self, ribbon: &Ribbon, hash: u64, mixed: Mixed) -> bool {
        self.probe_group(ribbon, ribbon.groups.first.view(), hash, mixed)
    }

    #[inline(always)]
    fn probe_group(self, ribbon: &Ribbon, group: View<'_>, hash: u64, mixed: Mixed) -> bool {
        test_group(
            ribbon,
            group,
            hash,
            mixed,
            |group, place, print| self.matches(group, place, print),
            |ribbon, hash| self.probe_bumped(ribbon, hash),
        )
    }

    #[inline(never)]
    fn probe_bumped(self, ribbon: &Ribbon, hash: u64) -> bool {
        let place = Place::bumped(ribbon, hash);
        test_all(ribbon, &place, |group, place, print| self.matches(group, place, print))
    }

    #[inline(never)]
    pub(crate) fn may_contain_hashes(self, ribbon: &Ribbon, hashes: &[u64], results: &mut [bool]) {
        let test = |group: View<'_>, place: &Place, print| self.matches(group, place, print);
        test_batch(ribbon, hashes, results, test);
    }

    #[inline(always)]
    fn matches(self, group: View<'_>, place: &Place, fingerprint: u8) -> bool {
        let (first, _, columns) = place.words(group);
        let words = group.lines.as_ptr().cast::<u64>().wrapping_add(first);
        // SAFETY: `Place::words` returns indexes within the group, followed by whole lines, and an
        // offset is below 64.
        let sums = unsafe { self.sums(words, columns, place) };
        let wrong = sums ^ u32::from(fingerprint);
        // Columns of other blocks do not count. In a mixture the last group has no column in some
        // blocks.
        wrong & ((1 << columns) - 1) == 0
    }

    /// Returns the sums of the slots of `place`: bit `j` for column `j`. The words of its block are
    /// at `words`, those of the next block `columns` words later.
    ///
    /// In assembly, because a function with intrinsics is never inlined into one compiled for any
    /// CPU. The call, its reloaded constants, and the `vzeroupper` that compilers emit after using
    /// registers below 16, made a probe a quarter slower.
    ///
    /// # Safety
    ///
    /// Eight words from `words` on, and eight from `columns` words later, must be readable, and the
    /// offset of `place` must be below 64.
    #[inline(always)]
    unsafe fn sums(self, words: *const u64, columns: u8, place: &Place) -> u32 {
        let sums: u32;
        // SAFETY: `self` proves that the CPU has these instructions. They read the table and the
        // eight words from both addresses, which the caller ensures.
        unsafe {
            asm!(
                // Slots before the start are those of the next block.
                "vpbroadcastq zmm16, [{table} + 8 * {offset}]",
                "vmovdqu64 zmm17, [{words} + 8 * {columns}]",
                "vpternlogq zmm17, zmm16, [{words}], 0xb8",
                // The selected slots, and the start.
                "vpbroadcastq zmm16, {coefficients}",
                "vpternlogq zmm17, zmm16, qword ptr [{table} + 8 * {offset} + 512]{{1to8}}, 0xe0",
                "vpopcntq zmm17, zmm17",
                // The first of the single bits is 1.
                "vptestmq k1, zmm17, qword ptr [{table} + 512]{{1to8}}",
                "kmovw {sums:e}, k1",
                table = in(reg) &raw const BITS,
                offset = in(reg) place.offset,
                words = in(reg) words,
                columns = in(reg) u64::from(columns),
                coefficients = in(reg) place.coefficients,
                sums = lateout(reg) sums,
                out("zmm16") _,
                out("zmm17") _,
                out("k1") _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        sums
    }
}

/// By slot of a block: the mask from it on, then its own bit. Computing them takes instructions on
/// the critical path.
static BITS: Aligned<[[u64; ROWS]; 2]> = {
    let mut bits = [[0; ROWS]; 2];
    let mut slot = 0;
    while slot < ROWS {
        bits[0][slot] = u64::MAX << slot;
        bits[1][slot] = 1 << slot;
        slot += 1;
    }
    Aligned(bits)
};

#[target_feature(enable = "avx512f,avx512vpopcntdq,bmi2")]
fn solve_block(
    coefficients: &[u64; ROWS],
    fingerprints: &[u32; ROWS],
    shift: u32,
    columns: &mut [u64; LINE_WORDS],
) {
    // SAFETY: the reference covers the 64 bytes read.
    let mut slots = unsafe { _mm512_loadu_si512(columns.as_ptr().cast()) };
    let lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    let one = _mm512_set1_epi64(1);
    for (&coefficients, &fingerprint) in coefficients.iter().zip(fingerprints).rev() {
        let sums = _mm512_popcnt_epi64(_mm512_and_si512(slots, splat(coefficients >> 1)));
        let target = _mm512_srlv_epi64(splat(u64::from(fingerprint >> shift)), lanes);
        let slot = _mm512_and_si512(_mm512_xor_si512(sums, target), one);
        slots = _mm512_or_si512(_mm512_slli_epi64::<1>(slots), slot);
    }
    // SAFETY: the reference covers the 64 bytes written.
    unsafe { _mm512_storeu_si512(columns.as_mut_ptr().cast(), slots) };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}
