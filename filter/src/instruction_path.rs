//! Selection of the instruction set at run time.

/// Defines the enum `Path`: portable code, or one of the SIMD types `Avx2`, `Avx512` and `Neon` in
/// scope. A value of such a type proves that this CPU has the instructions.
macro_rules! instruction_path {
    () => {
        /// Instruction set, detected once per filter. All give the same results.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Path {
            /// The reference implementation.
            Portable,
            #[cfg(target_arch = "x86_64")]
            Avx2(Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512(Avx512),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Neon(Neon),
        }

        impl Path {
            /// Returns the fastest path of this CPU.
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

            /// Returns all paths of this CPU.
            #[cfg(test)]
            pub(crate) fn all() -> alloc::vec::Vec<Self> {
                let mut all = alloc::vec![Self::Portable];
                #[cfg(target_arch = "x86_64")]
                {
                    all.extend(Avx2::detect().map(Self::Avx2));
                    all.extend(Avx512::detect().map(Self::Avx512));
                }
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                all.extend(Neon::detect().map(Self::Neon));
                all
            }
        }
    };
}

pub(crate) use instruction_path;
