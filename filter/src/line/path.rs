//! Selection of the SIMD path for lines. All paths give the same results and set the same bits.

use super::{Line, PROBES_MAX, batch, line_of, portable};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use crate::instruction_path::instruction_path;

instruction_path!();

impl Path {
    /// Returns `true` if all bits of `hash` are set in its line of `lines`.
    ///
    /// # Panics
    ///
    /// If `lines` is empty.
    #[inline]
    pub(crate) fn contains(self, lines: &[Line], hash: u64, probes: u8) -> bool {
        match self {
            Self::Portable => portable::contains(line_of(lines, hash), hash, probes),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.contains(line_of(lines, hash), hash, probes),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.contains(lines, hash, probes),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(neon) => neon.contains(line_of(lines, hash), hash, probes),
        }
    }

    /// Sets each of `results` to the result for the hash at its index.
    pub(crate) fn contains_all(
        self,
        lines: &[Line],
        probes: u8,
        hashes: &[u64],
        results: &mut [bool],
    ) {
        match self {
            Self::Portable => batch::test_all(lines, hashes, results, |line, hash| {
                portable::contains(line, hash, probes)
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.contains_all(lines, probes, hashes, results),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.contains_all(lines, probes, hashes, results),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(neon) => neon.contains_all(lines, probes, hashes, results),
        }
    }

    /// Sets the bits of `hashes` in their lines of `lines`.
    pub(crate) fn insert_all(self, lines: &mut [Line], probes: u8, hashes: &[u64]) {
        debug_assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        debug_assert!(!lines.is_empty(), "a filter has lines");
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.insert_all(lines, probes, hashes),
            _ => {
                batch::insert_all(lines, hashes, |line, hash| portable::insert(line, hash, probes));
            }
        }
    }
}
