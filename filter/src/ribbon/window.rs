//! Elimination in constant time a key, with AVX-512.
//!
//! Keys come in rising order of their starts, so the rows that can still meet a key have their first
//! slots within the 64 slots from its start on. They are held as a fully reduced 64 × 64 matrix: a
//! row has no other row's first slot. To reduce a key is then one masked sum of rows instead of a
//! chain of steps that wait for each other. Lane and bit `s % 64` stand for slot `s`.

use core::arch::x86_64::{
    __m512i, _mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_xor_si256, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_castsi512_si256, _mm512_extracti64x4_epi64, _mm512_mask_xor_epi64,
    _mm512_maskz_mov_epi64, _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_test_epi64_mask,
};

use super::band::Band;
use super::row::{Row, WIDTH};

/// Registers that hold the rows: eight lanes each.
const REGISTERS: usize = 8;

/// The rows that keys can still meet. Those before `base` are in the band.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    rows: [__m512i; REGISTERS],
    /// Lane `j` of entry `g` holds, for each row, the bit of its fingerprint for column `8 g + j`.
    prints: [__m512i; 4],
    /// Lanes that hold a row. All others are zero.
    pivots: u64,
    base: usize,
}

impl Window {
    #[target_feature(enable = "avx512f")]
    pub(super) fn new() -> Self {
        let zero = _mm512_setzero_si512();
        Self { rows: [zero; REGISTERS], prints: [zero; 4], pivots: 0, base: 0 }
    }

    /// Adds all of these equations, in the order of their starts, or none if one contradicts the
    /// others. Only the first `8 * GROUPS` bits of a fingerprint count.
    ///
    /// Slots from `base` on may hold anything in `band` until [`retire`](Self::retire) passes them.
    #[target_feature(enable = "avx512f,avx512vpopcntdq,bmi1,bmi2")]
    pub(super) fn insert_all<const GROUPS: usize>(
        &mut self,
        rows: &[Row],
        band: &mut Band,
    ) -> bool {
        let mut window = *self;
        for row in rows {
            let start = row.start as usize; // A slot in memory.
            if start > window.base {
                window.retire::<GROUPS>(start, band);
            }
            if !window.insert::<GROUPS>(row) {
                return false;
            }
        }
        *self = window;
        true
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vpopcntdq,bmi1,bmi2")]
    fn insert<const GROUPS: usize>(&mut self, row: &Row) -> bool {
        let rotation = (row.start % WIDTH) as u32;
        let coefficients = row.coefficients.rotate_left(rotation);
        let met = coefficients & self.pivots;
        let mut sum = _mm512_setzero_si512();
        for (i, rows) in self.rows.iter().enumerate() {
            sum = _mm512_mask_xor_epi64(sum, (met >> (8 * i)) as u8, sum, *rows);
        }
        let reduced = coefficients ^ fold(sum);
        let mut fingerprint = row.fingerprint;
        for (g, prints) in self.prints[..GROUPS].iter().enumerate() {
            let ones = _mm512_popcnt_epi64(_mm512_and_si512(*prints, splat(met)));
            let odd = _mm512_test_epi64_mask(ones, _mm512_set1_epi64(1));
            fingerprint ^= u32::from(odd) << (8 * g);
        }
        if reduced == 0 {
            return fingerprint == 0;
        }
        // The first slot of the new row, counted from the start of the key.
        let first = reduced.rotate_right(rotation).trailing_zeros();
        let pivot = 1_u64.rotate_left(rotation + first);
        // The rows that have it lose it, and the empty lane becomes the new row.
        let wanted = splat(pivot);
        let mut changed = pivot;
        for (i, rows) in self.rows.iter().enumerate() {
            changed |= u64::from(_mm512_test_epi64_mask(*rows, wanted)) << (8 * i);
        }
        let reduced = splat(reduced);
        for (i, rows) in self.rows.iter_mut().enumerate() {
            *rows = _mm512_mask_xor_epi64(*rows, (changed >> (8 * i)) as u8, *rows, reduced);
        }
        let lanes = splat(changed);
        for (g, prints) in self.prints[..GROUPS].iter_mut().enumerate() {
            let columns = (fingerprint >> (8 * g)) as u8;
            *prints = _mm512_mask_xor_epi64(*prints, columns, *prints, lanes);
        }
        self.pivots |= pivot;
        true
    }

    /// Moves the rows of the slots before `base` to the band: no later key meets them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vpopcntdq,bmi1,bmi2")]
    pub(super) fn retire<const GROUPS: usize>(&mut self, base: usize, band: &mut Band) {
        let mut rows = [0_u64; WIDTH as usize];
        for (words, lanes) in rows.as_chunks_mut::<8>().0.iter_mut().zip(&self.rows) {
            // SAFETY: the reference covers the 64 bytes written.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), *lanes) };
        }
        let end = base.min(self.base + WIDTH as usize);
        let mut kept = u64::MAX;
        for slot in self.base..end {
            let lane = slot % WIDTH as usize;
            let bit = 1 << lane;
            band.coefficients[slot] = rows[lane].rotate_right(lane as u32); // Below 64.
            let mut fingerprint = 0;
            for (g, prints) in self.prints[..GROUPS].iter().enumerate() {
                let columns = _mm512_test_epi64_mask(*prints, splat(bit));
                fingerprint |= u32::from(columns) << (8 * g);
            }
            band.fingerprints[slot] = fingerprint;
            kept &= !bit;
        }
        // Left from an attempt that came further and failed.
        band.coefficients[end..base].fill(0);
        band.fingerprints[end..base].fill(0);
        for (i, rows) in self.rows.iter_mut().enumerate() {
            *rows = _mm512_maskz_mov_epi64((kept >> (8 * i)) as u8, *rows);
        }
        for prints in &mut self.prints[..GROUPS] {
            *prints = _mm512_andnot_si512(splat(!kept), *prints);
        }
        self.pivots &= kept;
        self.base = base;
    }
}

/// The sum over GF(2) of the eight lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(lanes: __m512i) -> u64 {
    let four =
        _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
    let two = _mm_xor_si128(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    let one = _mm_xor_si128(two, _mm_unpackhi_epi64(two, two));
    _mm_cvtsi128_si64(one).cast_unsigned()
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}
