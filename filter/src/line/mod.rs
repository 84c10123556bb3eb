//! A cache line of a blocked Bloom filter: the bits of a hash in it.
//!
//! Parts of a 64-bit hash:
//!
//! | bits    | use                                                                             |
//! |---------|---------------------------------------------------------------------------------|
//! | high    | the line: `hash * lines / 2^64`, which needs no division and takes any `lines`  |
//! | 0 to 31 | the probes: `g(i) = low * 0x9e3779b9^i mod 2^32`; the 9 high bits of `g(i)` are the bit |
//!
//! With up to 2^32 lines (256 GiB) the two parts do not overlap. Bit `b` of a line is bit `b % 8`
//! of its byte `b / 8`. Probes may coincide; the formulas in [`crate::params`] account for that.
//!
//! The layout is that of RocksDB's `FastLocalBloom`, with 64 instead of 32 bits for the choice of
//! the line.
//!
//! | file       | contents                                                 |
//! |------------|----------------------------------------------------------|
//! | `path`     | choice of one of the following for this CPU              |
//! | `portable` | probe and insertion: the reference                       |
//! | `avx2`     | probe in two halves of the line                          |
//! | `avx512`   | probe and insertion, with the line in one register       |
//! | `neon`     | probe by a table lookup, on little-endian 64-bit ARM     |
//! | `batch`    | batches with prefetched lines                            |
//!
//! All paths set the same bits and give the same results; tests compare them.

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

/// Bytes of a line: a cache line.
pub const LINE_BYTES: usize = 64;

/// Bits of a line.
pub(crate) const LINE_BITS: u32 = 512;

/// Maximum probes per key: the lanes of an AVX-512 register, or of two AVX2 registers.
pub const PROBES_MAX: u8 = 16;

/// 2^32 divided by the golden ratio. Its powers spread the probes of a key.
const GOLDEN: u32 = 0x9e37_79b9;

/// Aligned to a cache line, so that a constant of 64 bytes is never split.
#[repr(C, align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// The powers 0 to 15 of [`GOLDEN`].
static POWERS: Aligned<[u32; PROBES_MAX as usize]> = Aligned(powers(PROBES_MAX as usize));

/// Returns as many powers of [`GOLDEN`] as a key has probes, then copies of the first.
const fn powers(probes: usize) -> [u32; PROBES_MAX as usize] {
    let mut powers = [1; PROBES_MAX as usize];
    let mut i = 1;
    while i < probes {
        powers[i] = GOLDEN.wrapping_mul(powers[i - 1]);
        i += 1;
    }
    powers
}

/// 512 bits aligned to 64, so that a probe touches one cache line.
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

/// Returns the index of the line of `hash`.
#[inline]
fn line_index(hash: u64, lines: usize) -> usize {
    // The high half of the product is below `lines`.
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

/// Returns the line of `hash`.
#[inline]
pub(crate) fn line_of<T>(lines: &[T], hash: u64) -> &T {
    &lines[line_index(hash, lines.len())]
}

/// Returns the bits of `hash` in its line, each below [`LINE_BITS`]; they may repeat.
#[inline]
pub(crate) fn bits(hash: u64, probes: u8) -> impl Iterator<Item = u32> {
    let mut g = hash as u32; // The low half; the high half selects the line.
    (0..probes).map(move |_| {
        let bit = g >> (u32::BITS - LINE_BITS.ilog2());
        g = g.wrapping_mul(GOLDEN);
        bit
    })
}

/// Prefetches the cache line of `line`.
#[inline(always)]
pub(crate) fn prefetch<T>(line: &T) {
    crate::prefetch::prefetch_at(core::ptr::from_ref(line));
}
