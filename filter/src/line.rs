//! A cache line of a blocked Bloom filter: which bits a hash sets in it, and how they are tested.
//!
//! Parts of a 64-bit hash:
//!
//! | bits    | use                                                                             |
//! |---------|---------------------------------------------------------------------------------|
//! | high    | the line: `hash * lines / 2^64`, which needs no division and takes any `lines`  |
//! | 0 to 31 | the probes: `g(i) = low * 0x9e3779b9^i mod 2^32`; the 9 high bits of `g(i)` are the bit |
//!
//! With up to 2^32 lines (256 GiB) the two parts do not overlap. Bit `b` of a line is bit `b % 8` of
//! its byte `b / 8`. Probes may coincide; the formulas in [`crate::params`] know that.
//!
//! The layout is that of RocksDB's `FastLocalBloom`, with 64 instead of 32 bits for the choice of the
//! line. [`portable`] is the definition; [`avx2`] gives the same answers, and a test compares them.

/// Bytes of a line: those of a cache line.
pub const LINE_BYTES: usize = 64;

/// Bits of a line.
pub(crate) const LINE_BITS: u32 = 512;

/// Most probes of a key: two AVX2 registers full.
pub const PROBES_MAX: u8 = 16;

/// 2^32 divided by the golden ratio: its powers spread the probes of a key.
const GOLDEN: u32 = 0x9e37_79b9;

/// 512 bits, at an address that is a multiple of 64, so that a question touches one cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line([u32; 16]);

impl Line {
    pub(crate) const EMPTY: Self = Self([0; 16]);

    pub(crate) fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let mut line = Self::EMPTY;
        for (word, bytes) in line.0.iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        line
    }

    pub(crate) fn to_bytes(self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let (words, _) = bytes.as_chunks_mut();
        for (bytes, word) in words.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Sets the bits of `hash`.
    pub(crate) fn insert(&mut self, hash: u64, probes: u8) {
        for bit in bits(hash, probes) {
            self.0[bit as usize / 32] |= 1 << (bit % 32);
        }
    }
}

/// Which of `lines` lines `hash` belongs to.
#[inline]
pub(crate) fn line_index(hash: u64, lines: usize) -> usize {
    // The high half of the product is below `lines`.
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

/// The bits of `hash` in its line, each below [`LINE_BITS`]; may repeat.
#[inline]
pub(crate) fn bits(hash: u64, probes: u8) -> impl Iterator<Item = u32> {
    let mut g = hash as u32; // The low half; the high half chose the line.
    (0..probes).map(move |_| {
        let bit = g >> (u32::BITS - LINE_BITS.ilog2());
        g = g.wrapping_mul(GOLDEN);
        bit
    })
}

/// Asks for the cache line of `line`, without waiting for it.
#[inline]
pub(crate) fn prefetch<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and the reference is valid anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(line).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line; // No stable intrinsic: the test fetches the line itself.
}

/// How this CPU tests a line. All give the same answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tester {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
}

impl Tester {
    /// The fastest one of this CPU. Detected once per filter, not once per question.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = avx2::Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Portable
    }

    /// Whether all bits of `hash` are set in `line`.
    #[inline]
    pub(crate) fn contains(self, line: &Line, hash: u64, probes: u8) -> bool {
        match self {
            Self::Portable => portable::contains(line, hash, probes),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.contains(line, hash, probes),
        }
    }
}

mod portable {
    use super::{Line, bits};

    /// Looks at every bit: leaving at the first missing one costs more, in mispredicted branches.
    #[inline]
    pub(super) fn contains(line: &Line, hash: u64, probes: u8) -> bool {
        bits(hash, probes).fold(1, |found, bit| found & (line.0[bit as usize / 32] >> (bit % 32)))
            == 1
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256, __m256i, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256,
        _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_load_si256, _mm256_mullo_epi32,
        _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_slli_epi32,
        _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_testc_si256,
    };

    use super::{GOLDEN, Line};

    /// Probes that one register holds.
    const LANES: u8 = 8;

    /// The powers 0 to 8 of [`GOLDEN`].
    const POWERS: [u32; LANES as usize + 1] = {
        let mut powers = [1; LANES as usize + 1];
        let mut i = 1;
        while i < powers.len() {
            powers[i] = GOLDEN.wrapping_mul(powers[i - 1]);
            i += 1;
        }
        powers
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
            // SAFETY: `detect` alone makes an `Avx2`, and only where the CPU has it.
            unsafe { contains(line, hash as u32, probes) }
        }
    }

    #[target_feature(enable = "avx2")]
    fn contains(line: &Line, low: u32, probes: u8) -> bool {
        let (halves, _) = line.0.as_chunks();
        let (front, back) = (load(&halves[0]), load(&halves[1]));
        if probes <= LANES {
            return contains_eight(front, back, low, probes);
        }
        let beyond = low.wrapping_mul(POWERS[usize::from(LANES)]);
        contains_eight(front, back, low, LANES)
            & contains_eight(front, back, beyond, probes - LANES)
    }

    /// Whether the first `probes` of the eight bits that start from `low` are set.
    #[target_feature(enable = "avx2")]
    fn contains_eight(front: __m256i, back: __m256i, low: u32, probes: u8) -> bool {
        let [p0, p1, p2, p3, p4, p5, p6, p7, _] = POWERS.map(u32::cast_signed);
        let g = _mm256_mullo_epi32(
            _mm256_set1_epi32(low.cast_signed()),
            _mm256_setr_epi32(p0, p1, p2, p3, p4, p5, p6, p7),
        );
        // Bits 28 to 31 of `g` are the word of the line: the highest one chooses the half.
        let word = _mm256_srli_epi32::<28>(g);
        let words = _mm256_castps_si256(_mm256_blendv_ps(
            permute(front, word),
            permute(back, word),
            _mm256_castsi256_ps(g),
        ));
        // Bits 23 to 27 are the bit within the word.
        let bit = _mm256_srli_epi32::<27>(_mm256_slli_epi32::<4>(g));
        let lanes = _mm256_cmpgt_epi32(
            _mm256_set1_epi32(probes.into()),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        );
        let wanted = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), bit), lanes);
        // 1 when no bit of the second is missing from the first.
        _mm256_testc_si256(words, wanted) == 1
    }

    /// Lane `i` of the result is lane `word[i] % 8` of `half`.
    #[target_feature(enable = "avx2")]
    fn permute(half: __m256i, word: __m256i) -> __m256 {
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(half, word))
    }

    #[target_feature(enable = "avx2")]
    fn load(half: &[u32; 8]) -> __m256i {
        // SAFETY: the reference covers the 32 bytes read. It points to the start or the middle of a
        // `Line`, which is aligned to 64.
        unsafe { _mm256_load_si256(half.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Half of the lines hold the hash, most others miss few of its bits.
        #[test]
        fn every_tester_gives_the_portable_answer(
            noise in any::<[[u8; 32]; 2]>(),
            dense in 0_u8..4,
            hash in any::<u64>(),
            present in any::<bool>(),
            missing in proptest::option::of(0_u32..512),
            probes in 1..=PROBES_MAX,
        ) {
            let mut line = Line::from_bytes(noise.concat().as_slice().try_into().expect("64 bytes"));
            for word in &mut line.0 {
                *word |= (0..dense).fold(0, |mask, i| mask | word.rotate_left(u32::from(i) * 7 + 3));
            }
            if present {
                line.insert(hash, probes);
            }
            if let Some(bit) = missing {
                line.0[bit as usize / 32] &= !(1 << (bit % 32));
            }
            let want = bits(hash, probes).all(|bit| line.to_bytes()[bit as usize / 8] >> (bit % 8) & 1 == 1);
            prop_assert_eq!(portable::contains(&line, hash, probes), want);
            prop_assert_eq!(Tester::detect().contains(&line, hash, probes), want);
        }

        #[test]
        fn bytes_and_back(bytes in any::<[[u8; 32]; 2]>()) {
            let bytes: [u8; LINE_BYTES] = bytes.concat().try_into().expect("64 bytes");
            prop_assert_eq!(Line::from_bytes(&bytes).to_bytes(), bytes);
        }
    }

    /// Every single missing bit is noticed, whichever probe it belongs to.
    #[test]
    fn one_missing_bit_is_noticed() {
        let hash = 0x0123_4567_89ab_cdef;
        for probes in 1..=PROBES_MAX {
            for bit in bits(hash, probes) {
                let mut line = Line([u32::MAX; 16]);
                line.0[bit as usize / 32] &= !(1 << (bit % 32));
                for tester in [Tester::Portable, Tester::detect()] {
                    assert!(!tester.contains(&line, hash, probes), "{tester:?}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn the_line_is_always_there() {
        for lines in [1, 2, 3, 1 << 20, (1 << 32) + 1, usize::MAX] {
            assert_eq!(line_index(0, lines), 0);
            assert_eq!(line_index(u64::MAX, lines), lines - 1, "{lines} lines");
        }
    }
}
