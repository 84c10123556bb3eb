//! AVX-512: the whole line in one register, and one lane per probe.

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _bzhi_u32, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_srli_epi32,
    _mm512_mullo_epi32, _mm512_permutexvar_epi32, _mm512_rorv_epi32, _mm512_set1_epi32,
    _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_store_si512, _mm512_ternarylogic_epi32,
    _mm512_testn_epi32_mask,
};

use super::{Aligned, Line, POWERS, PROBES_MAX, batch, powers};

/// The powers for each number of probes; those for [`PROBES_MAX`] at index 0.
static POWERS_OF: [Aligned<[u32; PROBES_MAX as usize]>; PROBES_MAX as usize] = {
    let mut all = [const { Aligned(powers(PROBES_MAX as usize)) }; PROBES_MAX as usize];
    let mut probes = 1;
    while probes < all.len() {
        all[probes] = Aligned(powers(probes));
        probes += 1;
    }
    all
};

/// Returns the powers with one lane per probe. The remaining lanes repeat the first probe.
#[inline(always)]
fn powers_of(probes: u8) -> &'static [u32; PROBES_MAX as usize] {
    &POWERS_OF[usize::from(probes % PROBES_MAX)].0
}

/// Proof that this CPU has AVX-512.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2");
        has.then_some(Self(()))
    }

    /// Returns `true` if all bits of `hash` are set in its line of `lines`, which is not empty.
    ///
    /// In assembly, because a function with intrinsics is never inlined into one compiled for any
    /// CPU. A probe is bound by its number of instructions: in the caches, and also from memory,
    /// where the reorder buffer limits the probes in flight. So `mulx` computes the line without a
    /// check or moves, and the load adds the address. Unused lanes repeat the first probe instead
    /// of being masked. A loop takes 16 instructions instead of 21, and 0.7 ns instead of 1.0.
    #[inline(always)]
    pub(super) fn contains(self, lines: &[Line], hash: u64, probes: u8) -> bool {
        assert!(!lines.is_empty(), "a filter has lines");
        let missing: u32;
        // SAFETY: only `detect` creates an `Avx512`, and only if the CPU has it. The assembly reads
        // the 64 bytes of two references, the powers and a line. The index of the line is the high
        // half of the product, which is below the number of lines, and that is not 0.
        unsafe {
            asm!(
                // As `line_index`, times the bytes of a line.
                "mulx {at}, {missing:r}, {count}",
                "shl {at}, 6",
                // Lane `i` is `g(i)` of `hash`.
                "vpbroadcastd zmm16, edx",
                "vpmulld zmm16, zmm16, [{powers}]",
                // Bits 28 to 31 are the word of the line.
                "vpsrld zmm17, zmm16, 28",
                "vpermd zmm17, zmm17, [{lines} + {at}]",
                // Bits 23 to 27 are the bit within the word. The rotation ignores higher bits.
                "vpsrld zmm16, zmm16, 23",
                "vprorvd zmm16, zmm17, zmm16",
                // The first power is 1.
                "vptestnmd k1, zmm16, dword ptr [{powers}]{{1to16}}",
                "kmovw {missing:e}, k1",
                in("rdx") hash,
                count = in(reg) lines.len() as u64,
                powers = in(reg) powers_of(probes),
                lines = in(reg) lines.as_ptr(),
                at = out(reg) _,
                missing = out(reg) missing,
                out("zmm16") _,
                out("zmm17") _,
                out("k1") _,
                options(pure, readonly, nostack),
            );
        }
        missing == 0
    }

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

    pub(super) fn insert_all(self, lines: &mut [Line], probes: u8, hashes: &[u64]) {
        // SAFETY: as above.
        unsafe { insert_all(lines, probes, hashes) }
    }
}

#[target_feature(enable = "avx512f,bmi2")]
fn contains_all(lines: &[Line], probes: u8, hashes: &[u64], results: &mut [bool]) {
    let powers = load(powers_of(probes));
    batch::test_all(lines, hashes, results, |line, hash| contains(line, hash, powers));
}

#[target_feature(enable = "avx512f,bmi2")]
fn insert_all(lines: &mut [Line], probes: u8, hashes: &[u64]) {
    batch::insert_all(lines, hashes, |line, hash| insert(line, hash, probes));
}

/// Does the same as [`Avx512::contains`], for loops that keep the constants in registers.
#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn contains(line: &Line, hash: u64, powers: __m512i) -> bool {
    let g = products(hash, powers);
    // Bits 28 to 31 of `g` are the word of the line, bits 23 to 27 the bit within the word. The
    // rotation ignores higher bits.
    let words = _mm512_permutexvar_epi32(_mm512_srli_epi32::<28>(g), load(&line.0));
    let found = _mm512_rorv_epi32(words, _mm512_srli_epi32::<23>(g));
    _mm512_testn_epi32_mask(found, _mm512_set1_epi32(1)) == 0
}

#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn insert(line: &mut Line, hash: u64, probes: u8) {
    // Lanes from `probes` on are outside of the line.
    let lanes = _bzhi_u32(u32::MAX, probes.into()) as u16;
    let outside = _mm512_set1_epi32(1 << 16);
    let positions = _mm512_mask_srli_epi32::<23>(outside, lanes, products(hash, load(&POWERS.0)));
    let mut stored = Line::EMPTY;
    store(&mut stored, positions);
    let (pairs, _) = stored.0.as_chunks::<2>();
    let mut filled = load(&line.0);
    for pair in pairs.iter().take(probes.div_ceil(2).into()) {
        let (left, right) = (single_bit(pair[0]), single_bit(pair[1]));
        filled = _mm512_ternarylogic_epi32::<0xfe>(filled, left, right); // The three, or-ed.
    }
    store(line, filled);
}

/// Returns a line with only this bit set, or none if it is outside of the line.
#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn single_bit(bit: u32) -> __m512i {
    /// Entry `i` is the first bit of word `i`, negated.
    const FIRST_BITS: [u32; 16] = {
        let mut bits = [0_u32; 16];
        let mut i = 1;
        while i < bits.len() {
            bits[i] = bits[i - 1].wrapping_sub(u32::BITS);
            i += 1;
        }
        bits
    };
    // In all other words the shift is out of range, which gives 0.
    let shift = _mm512_add_epi32(_mm512_set1_epi32(bit.cast_signed()), load(&FIRST_BITS));
    _mm512_sllv_epi32(_mm512_set1_epi32(1), shift)
}

/// Returns `g(i)` of `hash` in lane `i`.
#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn products(hash: u64, powers: __m512i) -> __m512i {
    _mm512_mullo_epi32(_mm512_set1_epi32(hash as i32), powers) // The low half.
}

#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn load(words: &[u32; 16]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and `loadu` needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,bmi2")]
fn store(line: &mut Line, words: __m512i) {
    // SAFETY: the reference covers the 64 bytes written, and a line is aligned to 64.
    unsafe { _mm512_store_si512(core::ptr::from_mut(line).cast(), words) }
}
