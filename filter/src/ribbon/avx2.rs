//! A block of eight columns in two AVX2 registers.

use core::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_pd, _mm256_loadu_si256, _mm256_movemask_pd,
    _mm256_set1_epi64x, _mm256_slli_epi64, _mm256_xor_si256,
};

use super::Ribbon;
use super::group::{Group, LINE_WORDS};
use super::query::{Place, test_all, test_batch};

/// Columns that one register holds.
const LANES: usize = 4;

/// Proof that this CPU has AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        has.then_some(Self(()))
    }

    #[inline]
    pub(crate) fn may_contain_hash(self, ribbon: &Ribbon, hash: u64) -> bool {
        // SAFETY: `detect` alone makes an `Avx2`, and only where the CPU has it.
        unsafe { may_contain_hash(ribbon, hash) }
    }

    #[inline]
    pub(crate) fn may_contain_hashes(self, ribbon: &Ribbon, hashes: &[u64], answers: &mut [bool]) {
        // SAFETY: as above.
        unsafe { may_contain_hashes(ribbon, hashes, answers) }
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn may_contain_hash(ribbon: &Ribbon, hash: u64) -> bool {
    test_all(ribbon, &Place::of(ribbon, hash), |group, place, print| matches(group, place, print))
}

#[target_feature(enable = "avx2,bmi2")]
fn may_contain_hashes(ribbon: &Ribbon, hashes: &[u64], answers: &mut [bool]) {
    test_batch(ribbon, hashes, answers, |group, place, print| matches(group, place, print));
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn matches(group: &Group, place: &Place, fingerprint: u8) -> bool {
    let (first, next, columns) = place.words(group);
    // `next` is not below `first`.
    assert!(next + LINE_WORDS <= group.lines.len() * LINE_WORDS, "a place is in its group");
    let words = group.lines.as_ptr().cast::<u64>();
    let mut sums = 0;
    for half in [0, LANES] {
        // SAFETY: the eight words from `first` on are in the group, by the assertion.
        let front = unsafe { _mm256_loadu_si256(words.wrapping_add(first + half).cast()) };
        // SAFETY: so are those from `next` on.
        let back = unsafe { _mm256_loadu_si256(words.wrapping_add(next + half).cast()) };
        let slots = _mm256_xor_si256(
            _mm256_and_si256(front, _mm256_set1_epi64x(place.low.cast_signed())),
            _mm256_and_si256(back, _mm256_set1_epi64x(place.high.cast_signed())),
        );
        sums |= parities(slots) << half;
    }
    // Columns of other blocks do not count.
    let used = !(!0_u32 << columns);
    (sums ^ u32::from(fingerprint)) & used == 0
}

/// Bit `i` says whether lane `i` has an odd number of bits.
#[inline]
#[target_feature(enable = "avx2")]
fn parities(lanes: __m256i) -> u32 {
    // The high bit of a lane gathers its parity.
    let x = _mm256_xor_si256(lanes, _mm256_slli_epi64::<32>(lanes));
    let x = _mm256_xor_si256(x, _mm256_slli_epi64::<16>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi64::<8>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi64::<4>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi64::<2>(x));
    let x = _mm256_xor_si256(x, _mm256_slli_epi64::<1>(x));
    _mm256_movemask_pd(_mm256_castsi256_pd(x)).cast_unsigned()
}
