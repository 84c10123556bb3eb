//! AVX2: a block of eight columns in two registers.

use core::arch::x86_64::{
    __m256i, _bzhi_u32, _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_loadu_si256, _mm256_movemask_ps, _mm256_permute4x64_epi64, _mm256_set1_epi64x,
    _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_xor_si256,
};

use super::Ribbon;
use super::batch::test_batch;
use super::group::View;
use super::probe_methods::probe_methods;
use super::query::{Place, test_all, test_one};
use super::row::{Mixed, TurnedRow};

/// Columns per register.
const LANES: usize = 4;

/// Proof that this CPU has AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        has.then_some(Self(()))
    }
}

probe_methods!(Avx2, "avx2,bmi2");

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn matches(group: View<'_>, place: &Place, fingerprint: u8) -> bool {
    let (first, next, columns) = place.words(group);
    let words = group.lines.as_ptr().cast::<u64>();
    let chosen = |half: usize| {
        // SAFETY: the eight words from `first` on are in the group, as `words` ensures.
        let front = unsafe { _mm256_loadu_si256(words.wrapping_add(first + half).cast()) };
        // SAFETY: the eight words from `next` on are in the group, as `words` ensures.
        let back = unsafe { _mm256_loadu_si256(words.wrapping_add(next + half).cast()) };
        _mm256_xor_si256(
            _mm256_and_si256(front, _mm256_set1_epi64x(place.low().cast_signed())),
            _mm256_and_si256(back, _mm256_set1_epi64x(place.high().cast_signed())),
        )
    };
    let sums = parities(chosen(0), chosen(LANES));
    // Columns of other blocks do not count.
    _bzhi_u32(sums ^ u32::from(fingerprint), columns.into()) == 0
}

/// Returns the parity of each of the eight lanes, as bits.
#[inline]
#[target_feature(enable = "avx2")]
fn parities(front: __m256i, back: __m256i) -> u32 {
    let (front, back) = (_mm256_castsi256_ps(front), _mm256_castsi256_ps(back));
    // The low halves of all lanes in one register and their high halves in another, so that all
    // eight fold at once.
    let low = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(front, back));
    let high = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(front, back));
    // The high bit of each half accumulates its parity.
    let x = _mm256_xor_si256(low, high);
    let x = _mm256_xor_si256(x, _mm256_slli_epi32::<16>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi32::<8>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi32::<4>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi32::<2>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi32::<1>(x));
    // The shuffles left the lanes in the order 0 1 4 5 2 3 6 7.
    let x = _mm256_permute4x64_epi64::<0b11_01_10_00>(x);
    _mm256_movemask_ps(_mm256_castsi256_ps(x)).cast_unsigned()
}
