//! AVX2: the line in two registers, eight probes at a time.

use core::arch::x86_64::{
    __m256, __m256i, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi32,
    _mm256_setr_epi32, _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_testc_si256,
};

use super::{Line, POWERS, batch};

/// Probes per register.
const LANES: u8 = 8;

/// Entry `n` has `n` ones, then zeros.
const FIRST_ONES: [[u32; LANES as usize]; LANES as usize + 1] = {
    let mut entries = [[0; LANES as usize]; LANES as usize + 1];
    let mut n = 1;
    while n < entries.len() {
        entries[n] = entries[n - 1];
        entries[n][n - 1] = 1;
        n += 1;
    }
    entries
};

/// Proof that this CPU has AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    #[inline]
    pub(super) fn contains(self, line: &Line, hash: u64, probes: u8) -> bool {
        // SAFETY: only `detect` creates an `Avx2`, and only if the CPU has it.
        unsafe { contains(line, hash, probes) }
    }

    #[inline]
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

#[target_feature(enable = "avx2")]
fn contains_all(lines: &[Line], probes: u8, hashes: &[u64], results: &mut [bool]) {
    batch::test_all(lines, hashes, results, |line, hash| contains(line, hash, probes));
}

#[inline]
#[target_feature(enable = "avx2")]
fn contains(line: &Line, hash: u64, probes: u8) -> bool {
    let low = hash as u32; // The high half selects the line.
    let (halves, _) = line.0.as_chunks();
    let (front, back) = (load(&halves[0]), load(&halves[1]));
    if probes <= LANES {
        return contains_eight(front, back, low, probes);
    }
    let ninth = low.wrapping_mul(POWERS.0[usize::from(LANES)]);
    contains_eight(front, back, low, LANES) & contains_eight(front, back, ninth, probes - LANES)
}

/// Returns `true` if the first `probes` of the eight bits that start from `low` are set.
#[inline]
#[target_feature(enable = "avx2")]
fn contains_eight(front: __m256i, back: __m256i, low: u32, probes: u8) -> bool {
    let [p0, p1, p2, p3, p4, p5, p6, p7, ..] = POWERS.0.map(u32::cast_signed);
    let g = _mm256_mullo_epi32(
        _mm256_set1_epi32(low.cast_signed()),
        _mm256_setr_epi32(p0, p1, p2, p3, p4, p5, p6, p7),
    );
    // Bits 28 to 31 of `g` are the word of the line: the highest one selects the half.
    let word = _mm256_srli_epi32::<28>(g);
    let words = _mm256_castps_si256(_mm256_blendv_ps(
        permute(front, word),
        permute(back, word),
        _mm256_castsi256_ps(g),
    ));
    // Bits 23 to 27 are the bit within the word.
    let bit = _mm256_srli_epi32::<27>(_mm256_slli_epi32::<4>(g));
    let mask = _mm256_sllv_epi32(load(&FIRST_ONES[usize::from(probes)]), bit);
    // 1 if all bits of the second are set in the first.
    _mm256_testc_si256(words, mask) == 1
}

/// Returns lane `word[i] % 8` of `half` in lane `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn permute(half: __m256i, word: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(half, word))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(lanes: &[u32; LANES as usize]) -> __m256i {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` needs no alignment.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}
