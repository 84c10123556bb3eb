//! Elimination of eight keys at a time, with AVX-512 and its products of 8 × 8 bit matrices.
//!
//! Keys are sorted by start, so the rows that can still meet a key have their first slots within 64
//! slots from its start. They are kept as a fully reduced 64 × 64 matrix: no row has the first slot
//! of another. Eight keys are reduced by one product with the matrix, then by each other, and
//! another product adds their rows to the matrix. One key at a time would wait for each result
//! before the next: four times as slow. Bit `s % 64` stands for slot `s`, as a row and as a column.

use core::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm256_cvtepu8_epi32, _mm256_mask_storeu_epi32,
    _mm256_maskz_loadu_epi32, _mm256_or_si256, _mm256_setzero_si256, _mm256_sll_epi32,
    _mm512_add_epi64, _mm512_and_si512, _mm512_andnot_si512, _mm512_castsi512_si128,
    _mm512_cvtepu8_epi64, _mm512_cvtepu32_epi64, _mm512_mask_loadu_epi64, _mm512_mask_storeu_epi64,
    _mm512_mask_test_epi64_mask, _mm512_mask_xor_epi64, _mm512_maskz_loadu_epi64,
    _mm512_maskz_mov_epi64, _mm512_permutexvar_epi8, _mm512_permutexvar_epi64,
    _mm512_reduce_or_epi64, _mm512_rolv_epi64, _mm512_rorv_epi64, _mm512_setr_epi64,
    _mm512_setzero_si512, _mm512_sll_epi64, _mm512_sllv_epi64, _mm512_srlv_epi64, _mm512_sub_epi64,
    _mm512_test_epi64_mask, _mm512_testn_epi64_mask, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
    _mm512_xor_si512,
};

use super::band::Band;
use super::bit_matrix::{
    TURN, affine, by_rows, from_rows, halves, load, splat, spread, store, sum_of_lanes, transposed,
    turned, xor3,
};
use super::group::{LINE_WORDS as LANES, WordLine};
use super::row::WIDTH;
use super::rows::Rows;

/// The rows that later keys can meet. Rows before `base` are in the band.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Word `j` of entry `i`: rows `8 i` to `8 i + 7`, columns `8 j` to `8 j + 7`, by columns. Zero
    /// for slots without a row.
    blocks: [WordLine; LANES],
    /// Word `i` of entry `g`: the fingerprints of rows `8 i` to `8 i + 7` in column group `g`, by
    /// columns.
    prints: [WordLine; 4],
    /// Slots that have a row.
    pivots: u64,
    base: usize,
}

impl Window {
    pub(super) fn new() -> Self {
        let zeros = WordLine([0; LANES]);
        Self { blocks: [zeros; LANES], prints: [zeros; 4], pivots: 0, base: 0 }
    }

    /// Returns the number of slots from `slot` on that have a row. No key so far starts after
    /// `slot`.
    pub(super) fn rows_from(&self, slot: usize) -> u32 {
        (self.pivots & !self.slots_before(slot)).count_ones()
    }

    /// Returns the bits of the slots from `base` up to `slot`, exclusive.
    fn slots_before(&self, slot: usize) -> u64 {
        match slot - self.base {
            count @ 0..64 => ((1_u64 << count) - 1).rotate_left((self.base % 64) as u32), // Below 64.
            _ => u64::MAX,
        }
    }

    /// Adds all of these equations, sorted by start, or none if one is inconsistent. Only the first
    /// `8 * GROUPS` bits of a fingerprint count.
    ///
    /// Slots from `base` on may have any content in `band` until [`retire`](Self::retire) passes
    /// them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi1,bmi2")]
    pub(super) fn insert_all<const GROUPS: usize>(
        &mut self,
        mut rows: Rows<'_>,
        band: &mut Band,
    ) -> bool {
        debug_assert!(rows.starts.is_sorted(), "rows are sorted by start");
        debug_assert!(rows.starts.first().is_none_or(|&start| start as usize >= self.base));
        let mut window = *self;
        while let Some(&first) = rows.starts.first() {
            let mut count = rows.starts.len().min(LANES);
            let width = WIDTH as usize;
            // All starts of a batch are within the window.
            if rows.starts[count - 1] as usize - window.base >= width {
                window.retire::<GROUPS>(first as usize, band);
                count = rows.starts[..count].partition_point(|&start| start < first + WIDTH);
            }
            let (batch, rest) = rows.split_at(count);
            if !window.insert::<GROUPS>(batch, band) {
                return false;
            }
            rows = rest;
        }
        *self = window;
        true
    }

    /// Adds a batch of 1 to 8 equations.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi1,bmi2")]
    fn insert<const GROUPS: usize>(&mut self, batch: Rows<'_>, band: &mut Band) -> bool {
        let used = u8::MAX >> (LANES - batch.starts.len());
        let last = batch.starts[batch.starts.len() - 1];
        let after = splat(last);
        // SAFETY: the mask covers only the words of the slice.
        let starts = unsafe { _mm512_mask_loadu_epi64(after, used, batch.starts.as_ptr().cast()) };
        // SAFETY: as above; the slices have the same length.
        let coefficients =
            unsafe { _mm512_maskz_loadu_epi64(used, batch.coefficients.as_ptr().cast()) };
        // SAFETY: as above.
        let prints = unsafe { _mm256_maskz_loadu_epi32(used, batch.fingerprints.as_ptr().cast()) };
        let mut prints = _mm512_cvtepu32_epi64(prints);

        // By the matrix: the sum of the rows whose first slots the key has. Slots from `base` to
        // its start stand for the slots 64 further on, which have no row yet.
        let rotated = _mm512_rolv_epi64(coefficients, starts);
        let base = splat(self.base as u64);
        let ahead = _mm512_sllv_epi64(splat(1), _mm512_sub_epi64(starts, base));
        let before_start = _mm512_rolv_epi64(_mm512_sub_epi64(ahead, splat(1)), base);
        let met = transposed(_mm512_andnot_si512(before_start, rotated));
        let product = |i: usize| {
            let bytes = _mm512_permutexvar_epi64(splat(i as u64), met);
            affine(bytes, load(&self.blocks[i]))
        };
        let sum = xor3(
            xor3(product(0), product(1), product(2)),
            xor3(product(3), product(4), product(5)),
            _mm512_xor_si512(product(6), product(7)),
        );
        let reduced = _mm512_xor_si512(rotated, transposed(sum));
        for (g, rows) in self.prints[..GROUPS].iter().enumerate() {
            let sums = sum_of_lanes(affine(met, load(rows)));
            let columns = _mm512_cvtepu8_epi64(_mm512_castsi512_si128(sums));
            let columns = _mm512_sll_epi64(columns, _mm_cvtsi64_si128(8 * g as i64));
            prints = _mm512_xor_si512(prints, columns);
        }
        // Later keys meet no slot before this one.
        self.retire::<GROUPS>(last as usize, band);

        // By each other. Bit 0 is now the slot of the key's own start.
        let mut rows = _mm512_rorv_epi64(reduced, starts);
        for k in 0..LANES - 1 {
            let lane = splat(k as u64);
            let row = _mm512_permutexvar_epi64(lane, rows);
            let first = _mm512_and_si512(row, _mm512_sub_epi64(_mm512_setzero_si512(), row));
            // A first slot before the start of a key is shifted out.
            let apart = _mm512_sub_epi64(starts, _mm512_permutexvar_epi64(lane, starts));
            let later = u8::MAX << (k + 1);
            let have = _mm512_mask_test_epi64_mask(later, rows, _mm512_srlv_epi64(first, apart));
            rows = _mm512_mask_xor_epi64(rows, have, rows, _mm512_srlv_epi64(row, apart));
            let print = _mm512_permutexvar_epi64(lane, prints);
            prints = _mm512_mask_xor_epi64(prints, have, prints, print);
        }
        if _mm512_testn_epi64_mask(rows, rows) & _mm512_test_epi64_mask(prints, prints) != 0 {
            return false;
        }

        let firsts = _mm512_and_si512(rows, _mm512_sub_epi64(_mm512_setzero_si512(), rows));
        let apart = _mm512_sub_epi64(splat(last), starts);
        let stays = _mm512_srlv_epi64(firsts, apart);
        let stays = _mm512_test_epi64_mask(stays, stays);
        let leaves = _mm512_test_epi64_mask(rows, rows) & !stays;
        if leaves != 0 {
            store_rows(leaves, starts, rows, prints, band);
        }
        let rows = _mm512_maskz_mov_epi64(stays, _mm512_rolv_epi64(rows, starts));
        let firsts = _mm512_maskz_mov_epi64(stays, _mm512_rolv_epi64(firsts, starts));
        let prints = _mm512_maskz_mov_epi64(stays, prints);
        self.pivots |= _mm512_reduce_or_epi64(firsts).cast_unsigned();
        self.add::<GROUPS>(rows, firsts, prints);
        true
    }

    /// Adds the rows of a batch to the matrix. `firsts` are their first slots; no row has the first
    /// slot of an earlier one. Lanes without a row are zero.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi1,bmi2")]
    fn add<const GROUPS: usize>(&mut self, rows: __m512i, firsts: __m512i, prints: __m512i) {
        // Word `j`: eight rows, columns `8 j` to `8 j + 7`, by rows.
        let rows = _mm512_permutexvar_epi8(by_rows(), rows);
        let firsts = _mm512_permutexvar_epi8(by_rows(), firsts);

        // Marks rows with the first slots of later ones: a matrix `1 + n` with `n^8 = 0`, whose
        // inverse is `(1 + n)(1 + n^2)(1 + n^4)`. The product with it reduces the new rows.
        let n = _mm512_andnot_si512(splat(TURN), sum_of_lanes(affine(rows, firsts)));
        let n2 = affine(n, turned(n));
        let n4 = affine(n2, turned(n2));
        let reduce = |by_columns: __m512i| {
            let by_columns = _mm512_xor_si512(by_columns, affine(by_columns, n));
            let by_columns = _mm512_xor_si512(by_columns, affine(by_columns, n2));
            _mm512_xor_si512(by_columns, affine(by_columns, n4))
        };

        // Marks old rows with the first slots of new ones, to be eliminated. Also marks lane and
        // byte of each new row, which is added to a row of zeros.
        let having = |i: usize| affine(turned(load(&self.blocks[i])), firsts);
        let pair = |i: usize| {
            let (left, right) = (having(i), having(i + 1));
            _mm512_xor_si512(_mm512_unpacklo_epi64(left, right), _mm512_unpackhi_epi64(left, right))
        };
        let having = halves(halves(pair(0), pair(2)), halves(pair(4), pair(6)));
        let changed = _mm512_xor_si512(having, turned(firsts));

        let rows = reduce(turned(rows));
        for (i, block) in self.blocks.iter_mut().enumerate() {
            let changed = _mm512_permutexvar_epi64(splat(i as u64), changed);
            let sum = _mm512_xor_si512(load(block), affine(rows, changed));
            store(block, sum);
        }
        for (g, old) in self.prints[..GROUPS].iter_mut().enumerate() {
            // The same eight bytes in all lanes: byte `g` of each row.
            let bytes = splat((0x0008_1018_2028_3038 + 0x0101_0101_0101_0101 * g) as u64);
            let new = reduce(turned(_mm512_permutexvar_epi8(bytes, prints)));
            let sum = _mm512_xor_si512(load(old), affine(new, changed));
            store(old, sum);
        }
    }

    /// Moves the rows of the layer to `band`. Slots then count from the end of the layer.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi1,bmi2")]
    pub(super) fn finish(&mut self, band: &mut Band) {
        // Both are in whole blocks, so bit `s % 64` keeps its meaning.
        self.retire::<4>(band.slots(), band);
        self.base = 0;
    }

    /// Moves the rows of slots before `base` to the band: later keys do not meet them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni,bmi1,bmi2")]
    pub(super) fn retire<const GROUPS: usize>(&mut self, base: usize, band: &mut Band) {
        if base == self.base {
            return;
        }
        debug_assert!(base > self.base, "the window moves forward");
        debug_assert!(base <= band.coefficients.len(), "the band has all slots before {base}");
        let end = base.min(self.base + WIDTH as usize);
        let gone = self.slots_before(end);
        let lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
        let mut slot = self.base;
        while slot < end {
            let first = slot - slot % LANES;
            let i = first % WIDTH as usize / LANES;
            // The rows of the block to move: from `slot` to the end of the block, or to `end`.
            let mut here = u8::MAX << (slot - first);
            if end - first < LANES {
                here &= u8::MAX >> (LANES - (end - first));
            }
            let columns = load(&self.blocks[i]);
            let rows = _mm512_permutexvar_epi8(from_rows(), turned(columns));
            let rows = _mm512_rorv_epi64(rows, _mm512_add_epi64(lanes, splat(first as u64)));
            let words = &mut band.coefficients[first..][..LANES];
            // SAFETY: the slice covers the words written.
            unsafe { _mm512_mask_storeu_epi64(words.as_mut_ptr().cast(), here, rows) };
            let mut prints = _mm256_setzero_si256();
            for (g, print) in self.prints[..GROUPS].iter_mut().enumerate() {
                let bytes = turned(splat(print.0[i]));
                let columns = _mm256_cvtepu8_epi32(_mm512_castsi512_si128(
                    _mm512_permutexvar_epi8(splat(0x0001_0203_0405_0607), bytes),
                ));
                let columns = _mm256_sll_epi32(columns, _mm_cvtsi32_si128(8 * g as i32));
                prints = _mm256_or_si256(prints, columns);
                print.0[i] &= !spread(here);
            }
            let words = &mut band.fingerprints[first..][..LANES];
            // SAFETY: as above.
            unsafe { _mm256_mask_storeu_epi32(words.as_mut_ptr().cast(), here, prints) };
            store(&mut self.blocks[i], _mm512_andnot_si512(splat(spread(here)), columns));
            slot = first + LANES;
        }
        // Left by a failed attempt that reached further.
        band.coefficients[end..base].fill(0);
        band.fingerprints[end..base].fill(0);
        self.pivots &= !gone;
        self.base = base;
    }
}

/// Stores the rows of the lanes `which`, whose bits count from the starts of their keys.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_rows(which: u8, starts: __m512i, rows: __m512i, prints: __m512i, band: &mut Band) {
    let mut words = [WordLine([0; LANES]); 3];
    for (words, lanes) in words.iter_mut().zip([starts, rows, prints]) {
        store(words, lanes);
    }
    let [starts, rows, prints] = words.map(|words| words.0);
    let mut which = which;
    while which != 0 {
        let lane = which.trailing_zeros() as usize; // Below 8.
        which &= which - 1;
        let skipped = rows[lane].trailing_zeros();
        let slot = starts[lane] as usize + skipped as usize; // An index into memory.
        band.coefficients[slot] = rows[lane] >> skipped;
        band.fingerprints[slot] = prints[lane] as u32; // Widened from 32 bits.
    }
}
