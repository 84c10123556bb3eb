//! A block of eight columns in one AVX-512 register.

use core::arch::x86_64::{
    __m512i, _bzhi_u32, _mm512_and_si512, _mm512_loadu_si512, _mm512_or_si512, _mm512_popcnt_epi64,
    _mm512_set1_epi64, _mm512_setr_epi64, _mm512_slli_epi64, _mm512_srlv_epi64,
    _mm512_storeu_si512, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::Ribbon;
use super::band::Band;
use super::group::{Group, LINE_WORDS};
use super::query::{Place, test_all, test_batch, test_one};
use super::questions::questions;
use super::row::{Mixed, TurnedRow};
use super::rows::Rows;
use super::shape::BLOCK_SLOTS;
use super::window::Window;

const ROWS: usize = BLOCK_SLOTS as usize;

/// Proof that this CPU has AVX-512 with the population count of words and matrices of bits: those of
/// Intel since Ice Lake, of AMD since Zen 4.
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

    /// Adds all of `rows` to `window` or none; `groups` is from 1 to 4.
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
        // SAFETY: `detect` alone makes an `Avx512`, and only where the CPU has it.
        unsafe { insert_all(window, rows, band) }
    }

    /// Moves the rows of the layer from `window` to `band`. Slots count anew from its end.
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

questions!(Avx512, "avx512f,avx512vpopcntdq,bmi2");

#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq,bmi2")]
fn matches(group: &Group, place: &Place, fingerprint: u8) -> bool {
    let (first, next, columns) = place.words(group);
    let words = group.lines.as_ptr().cast::<u64>();
    // SAFETY: the eight words from `first` on are in the group, as `words` promises.
    let front = unsafe { _mm512_loadu_si512(words.wrapping_add(first).cast()) };
    // SAFETY: so are those from `next` on.
    let back = unsafe { _mm512_loadu_si512(words.wrapping_add(next).cast()) };
    let slots = _mm512_xor_si512(
        _mm512_and_si512(front, splat(place.low)),
        _mm512_and_si512(back, splat(place.high)),
    );
    let sums = _mm512_test_epi64_mask(_mm512_popcnt_epi64(slots), _mm512_set1_epi64(1));
    // Columns of other blocks do not count.
    _bzhi_u32(u32::from(sums ^ fingerprint), columns.into()) == 0
}

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
        let wanted = _mm512_srlv_epi64(splat(u64::from(fingerprint >> shift)), lanes);
        let slot = _mm512_and_si512(_mm512_xor_si512(sums, wanted), one);
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
