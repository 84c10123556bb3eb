//! A cache line of a blocked Bloom filter: which bits a hash sets in it, and how they are tested.
//!
//! Parts of a 64-bit hash:
//!
//! | bits    | use                                                                             |
//! |---------|---------------------------------------------------------------------------------|
//! | high    | the line: `hash * lines / 2^64`, which needs no division and takes any `lines`  |
//! | 0 to 31 | the probes: `g(i) = low * 0x9e3779b9^i mod 2^32`; the 9 high bits of `g(i)` are the bit |
//!
//! With up to 2^32 lines (256 GiB) the two parts do not overlap. Bit `b` of a line is bit `b % 8`
//! of its byte `b / 8`. Probes may coincide; the formulas in [`crate::params`] know that.
//!
//! The layout is that of RocksDB's `FastLocalBloom`, with 64 instead of 32 bits for the choice of
//! the line.
//!
//! | file       | what it holds                                                   |
//! |------------|-----------------------------------------------------------------|
//! | `path`     | which of the following this CPU takes                           |
//! | `portable` | a question and an insertion: the definition                     |
//! | `avx2`     | a question in two halves of the line                            |
//! | `avx512`   | a question and an insertion, with the line in one register      |
//! | `neon`     | a question by a table of bytes, on little-endian 64-bit ARM     |
//! | `batch`    | many of them, with their lines on the way from memory           |
//!
//! All paths set the same bits and give the same answers; tests compare them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod path;
mod portable;
#[cfg(test)]
mod tests;

pub(crate) use path::Path;

/// Bytes of a line: those of a cache line.
pub const LINE_BYTES: usize = 64;

/// Bits of a line.
pub(crate) const LINE_BITS: u32 = 512;

/// Most probes of a key: an AVX-512 register full, or two of AVX2.
pub const PROBES_MAX: u8 = 16;

/// 2^32 divided by the golden ratio: its powers spread the probes of a key.
const GOLDEN: u32 = 0x9e37_79b9;

/// In a cache line of its own: a question that reads it reads no second one, wherever the linker
/// puts it.
#[repr(C, align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// The powers 0 to 15 of [`GOLDEN`].
static POWERS: Aligned<[u32; PROBES_MAX as usize]> = Aligned(powers(PROBES_MAX as usize));

/// As many powers of [`GOLDEN`] as a key has probes, and behind them the first again.
const fn powers(probes: usize) -> [u32; PROBES_MAX as usize] {
    let mut powers = [1; PROBES_MAX as usize];
    let mut i = 1;
    while i < probes {
        powers[i] = GOLDEN.wrapping_mul(powers[i - 1]);
        i += 1;
    }
    powers
}

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
}

/// Which of `lines` lines `hash` belongs to.
#[inline]
fn line_index(hash: u64, lines: usize) -> usize {
    // The high half of the product is below `lines`.
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

/// The line of `hash`.
#[inline]
pub(crate) fn line_of<T>(lines: &[T], hash: u64) -> &T {
    &lines[line_index(hash, lines.len())]
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
#[inline(always)]
pub(crate) fn prefetch<T>(line: &T) {
    prefetch_at(core::ptr::from_ref(line));
}

/// Asks for the cache line of `address`, which may be any, without waiting for it.
#[inline(always)]
pub(crate) fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program can see, and takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address; // No stable intrinsic: the test fetches the line itself.
}
