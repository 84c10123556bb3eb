//! How this CPU asks a filter and solves its equations. All give the same answers.

use alloc::vec::Vec;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
pub(crate) use super::{avx2::Avx2, avx512::Avx512};

/// The instructions to use, detected once per filter.
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
        Self::all().pop().expect("the portable one is always there")
    }

    /// Those that this CPU has, the fastest last.
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
}
