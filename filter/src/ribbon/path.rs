//! Selection of the SIMD path for builds and probes.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
pub(crate) use super::{avx2::Avx2, avx512::Avx512};
use crate::instruction_path::instruction_path;

instruction_path!();
