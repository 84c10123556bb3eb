//! Asks the processor for memory that is read soon.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Asks for the cache line at `address`, without waiting for it. Nothing need be there: an address
/// is a guess, and a wrong one costs what a right one would have saved.
#[inline]
pub fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that a program can see, and ignores what is not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the same.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = address;
}
