//! How this CPU tests and fills lines. All give the same answers and set the same bits.

use super::{Line, batch, line_of, portable};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use crate::instruction_path::instruction_path;

instruction_path!();

impl Path {
    /// Whether all bits of `hash` are set in its line of `lines`.
    ///
    /// # Panics
    ///
    /// If there is no line.
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

    /// Sets each of `answers` to whether its hash is in its line of `lines`.
    pub(crate) fn contains_all(
        self,
        lines: &[Line],
        probes: u8,
        hashes: &[u64],
        answers: &mut [bool],
    ) {
        match self {
            Self::Portable => batch::test_all(lines, hashes, answers, |line, hash| {
                portable::contains(line, hash, probes)
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.contains_all(lines, probes, hashes, answers),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.contains_all(lines, probes, hashes, answers),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(neon) => neon.contains_all(lines, probes, hashes, answers),
        }
    }

    /// Sets the bits of `hashes` in their lines of `lines`.
    pub(crate) fn insert_all(self, lines: &mut [Line], probes: u8, hashes: &[u64]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.insert_all(lines, probes, hashes),
            _ => {
                batch::insert_all(lines, hashes, |line, hash| portable::insert(line, hash, probes));
            }
        }
    }
}
