//! How this CPU tests and fills lines. All give the same answers and set the same bits.

use super::{Line, batch, line_of, portable};

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};

/// The instructions to use, detected once per filter, not once per question.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path {
    /// The definition.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(Neon),
}

impl Path {
    /// The fastest one of this CPU.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = Avx512::detect() {
                return Self::Avx512(avx512);
            }
            if let Some(avx2) = Avx2::detect() {
                return Self::Avx2(avx2);
            }
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if let Some(neon) = Neon::detect() {
            return Self::Neon(neon);
        }
        Self::Portable
    }

    /// Those that this CPU has, the fastest last.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let portable = [Self::Portable];
        #[cfg(target_arch = "x86_64")]
        let others =
            Avx2::detect().map(Self::Avx2).into_iter().chain(Avx512::detect().map(Self::Avx512));
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        let others = Neon::detect().map(Self::Neon);
        #[cfg(not(any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        )))]
        let others = [];
        portable.into_iter().chain(others).collect()
    }

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
