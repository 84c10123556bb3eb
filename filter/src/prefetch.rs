//! Memory prefetch.

/// Prefetches the cache line at `address`, which may be invalid.
#[inline(always)]
pub fn prefetch(address: usize) {
    prefetch_at(core::ptr::without_provenance::<u8>(address));
}

/// Prefetches the cache line at `address`, which may be invalid.
#[inline(always)]
pub(crate) fn prefetch_at<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = address; // No stable intrinsic.
}
