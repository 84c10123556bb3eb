//! 8 × 8 bit matrices in AVX-512 registers.
//!
//! The affine instruction of GFNI multiplies the bytes of a word with a matrix. It sums over the
//! bits of the bytes on both sides. Hence two forms of an 8 × 8 matrix `m` in a word, which a
//! product with [`TURN`] converts into each other:
//!
//! * by rows: bit `c` of byte `7 - r` is `m[r][c]`,
//! * by columns: bit `r` of byte `7 - c` is `m[r][c]`.

use core::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_permutexvar_epi8,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_shuffle_i64x2, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::group::{LINE_WORDS as LANES, WordLine};

/// The unit matrix in either form, which also converts one form into the other.
pub(super) const TURN: u64 = 0x0102_0408_1020_4080;

/// Copies a byte to all bytes of a word.
pub(super) fn spread(byte: u8) -> u64 {
    u64::from(byte) * 0x0101_0101_0101_0101
}

/// Transposes the bytes: byte `b` of word `w` becomes byte `w` of word `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn transposed(bytes: __m512i) -> __m512i {
    const INDEX: WordLine = index(false, false);
    _mm512_permutexvar_epi8(load(&INDEX), bytes)
}

/// Returns the permutation from one row per word to eight rows by eight columns per word, by rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn by_rows() -> __m512i {
    const INDEX: WordLine = index(true, false);
    load(&INDEX)
}

/// Returns the inverse of [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn from_rows() -> __m512i {
    const INDEX: WordLine = index(false, true);
    load(&INDEX)
}

/// Returns the permutation that moves byte `w` of word `b` to byte `b` of word `w`, optionally with
/// bytes or words in reverse order.
const fn index(reverse_bytes: bool, reverse_words: bool) -> WordLine {
    let mut words = [[0; 8]; LANES];
    let mut at = 0;
    while at < 64 {
        let (word, byte) = (at / 8, at % 8);
        let from_word = if reverse_bytes { 7 - byte } else { byte };
        let from_byte = if reverse_words { 7 - word } else { word };
        words[word][byte] = (8 * from_word + from_byte) as u8; // Below 64.
        at += 1;
    }
    let mut line = WordLine([0; LANES]);
    let mut word = 0;
    while word < LANES {
        line.0[word] = u64::from_le_bytes(words[word]);
        word += 1;
    }
    line
}

/// Converts each 8 × 8 matrix from one form to the other.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn turned(words: __m512i) -> __m512i {
    affine(splat(TURN), words)
}

/// Multiplies the bytes of each word with the matrix in the same lane.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn affine(bytes: __m512i, matrices: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrices)
}

/// Returns the sum over GF(2) of the eight words, in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sum_of_lanes(words: __m512i) -> __m512i {
    let four = _mm512_xor_si512(words, _mm512_shuffle_i64x2::<0b01_00_11_10>(words, words));
    let two = _mm512_xor_si512(four, _mm512_shuffle_i64x2::<0b10_11_00_01>(four, four));
    _mm512_xor_si512(two, _mm512_shuffle_epi32::<0b01_00_11_10>(two))
}

/// Returns the sums of adjacent pairs of words: those of `left`, then those of `right`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn halves(left: __m512i, right: __m512i) -> __m512i {
    _mm512_xor_si512(
        _mm512_shuffle_i64x2::<0b10_00_10_00>(left, right),
        _mm512_shuffle_i64x2::<0b11_01_11_01>(left, right),
    )
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(words: &WordLine) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read.
    unsafe { _mm512_loadu_si512(words.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(words: &mut WordLine, lanes: __m512i) {
    // SAFETY: the reference covers the 64 bytes written.
    unsafe { _mm512_storeu_si512(words.0.as_mut_ptr().cast(), lanes) };
}
