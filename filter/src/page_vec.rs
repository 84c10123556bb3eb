//! Long arrays in memory maps, which return to the system when the array is dropped.
//!
//! glibc's per-thread arenas keep up to twice the size of the longest freed array ("dynamic mmap
//! threshold", mallopt(3)). Threads that build filters would keep megabytes resident.

use core::{alloc::Layout, ptr::NonNull};

use allocator_api2::{
    alloc::{AllocError, Allocator, Global},
    vec::Vec,
};

/// A [`Vec`](alloc::vec::Vec) whose elements are in [`SystemPages`].
pub type PageVec<T> = Vec<T, SystemPages>;

/// Returns `count` zeros.
pub(crate) fn zeros<T: From<u8> + Copy>(count: usize) -> PageVec<T> {
    let mut zeros = PageVec::with_capacity_in(count, SystemPages);
    zeros.resize(count, T::from(0));
    zeros
}

/// Smaller arrays are on the heap. 128 KiB is glibc's default threshold for maps.
const PAGES_BYTES_MIN: usize = 128 << 10;

/// An allocator that maps arrays of 128 KiB or more from the system on Linux, and uses the heap
/// otherwise.
///
/// Zeroed arrays use no memory until they are written. A growing array moves without a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SystemPages;

impl SystemPages {
    /// Returns `true` if memory of this layout is mapped. Depends on nothing else, so that
    /// allocation and deallocation agree.
    const fn maps(layout: Layout) -> bool {
        cfg!(all(feature = "std", target_os = "linux", not(miri)))
            && layout.size() >= PAGES_BYTES_MIN
            && layout.align() <= PAGE_ALIGN
    }
}

/// Minimum page size of all systems.
const PAGE_ALIGN: usize = 4 << 10;

// SAFETY: memory stays valid until it is deallocated, and `maps` names the owner of each layout.
unsafe impl Allocator for SystemPages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if Self::maps(layout) { system::map(layout.size()) } else { Global.allocate(layout) }
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if Self::maps(layout) { system::map(layout.size()) } else { Global.allocate_zeroed(layout) }
    }

    unsafe fn deallocate(&self, first: NonNull<u8>, layout: Layout) {
        if Self::maps(layout) {
            // SAFETY: the memory was mapped with this size, and the caller no longer uses it.
            unsafe { system::unmap(first, layout.size()) }
        } else {
            // SAFETY: the heap allocated the memory with this layout.
            unsafe { Global.deallocate(first, layout) }
        }
    }

    unsafe fn grow(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller upholds the contract of `grow`.
        unsafe { self.resize(first, from, to) }
    }

    unsafe fn shrink(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller upholds the contract of `shrink`.
        unsafe { self.resize(first, from, to) }
    }
}

impl SystemPages {
    /// Changes the length of memory, which may move.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::grow`] and [`Allocator::shrink`].
    unsafe fn resize(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        match (Self::maps(from), Self::maps(to)) {
            // SAFETY: the memory was mapped with this size, and the caller has no pointer into it.
            (true, true) => unsafe { system::remap(first, from.size(), to.size()) },
            // SAFETY: the heap allocated the memory with this layout.
            (false, false) if to.size() >= from.size() => unsafe { Global.grow(first, from, to) },
            // SAFETY: as above.
            (false, false) => unsafe { Global.shrink(first, from, to) },
            _ => {
                let moved = self.allocate(to)?;
                let bytes = from.size().min(to.size());
                // SAFETY: both have at least `bytes` bytes and do not overlap.
                unsafe { first.copy_to_nonoverlapping(moved.cast(), bytes) };
                // SAFETY: the caller no longer uses the memory.
                unsafe { self.deallocate(first, from) };
                Ok(moved)
            }
        }
    }
}

/// Anonymous memory maps, initially zero.
#[cfg(all(feature = "std", target_os = "linux", not(miri)))]
mod system {
    use core::ptr::{self, NonNull};

    use allocator_api2::alloc::AllocError;
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

    pub(super) fn map(bytes: usize) -> Result<NonNull<[u8]>, AllocError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let first = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        slice(first, bytes)
    }

    /// # Safety
    ///
    /// `first` was mapped with `from` bytes, and the old address is not used afterwards.
    pub(super) unsafe fn remap(
        first: NonNull<u8>,
        from: usize,
        to: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: upheld by the caller.
        let moved = unsafe { mremap(first.as_ptr().cast(), from, to, MremapFlags::MAYMOVE) };
        slice(moved, to)
    }

    /// # Safety
    ///
    /// `first` was mapped with `bytes` bytes and is not used afterwards.
    pub(super) unsafe fn unmap(first: NonNull<u8>, bytes: usize) {
        // SAFETY: upheld by the caller.
        let unmapped = unsafe { munmap(first.as_ptr().cast(), bytes) };
        // Fails only if this splits a mapping and the process has too many. The memory then stays
        // mapped.
        let _ = unmapped;
    }

    fn slice(
        first: rustix::io::Result<*mut core::ffi::c_void>,
        bytes: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let first = NonNull::new(first.map_err(|_| AllocError)?.cast()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(first, bytes))
    }
}

/// Unreachable: `maps` returns `false`. Unsafe only to match the functions of Linux: no call has a
/// condition, since none touches memory.
#[cfg(not(all(feature = "std", target_os = "linux", not(miri))))]
mod system {
    use core::ptr::NonNull;

    use allocator_api2::alloc::AllocError;

    pub(super) fn map(_: usize) -> Result<NonNull<[u8]>, AllocError> {
        Err(AllocError)
    }

    pub(super) unsafe fn remap(
        _: NonNull<u8>,
        _: usize,
        _: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        Err(AllocError)
    }

    pub(super) unsafe fn unmap(_: NonNull<u8>, _: usize) {}
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Change {
        Push(u64),
        Resize(usize),
        ReserveExact(usize),
        ShrinkToFit,
        Clone,
    }

    fn change() -> impl Strategy<Value = Change> {
        const WORDS: usize = PAGES_BYTES_MIN / 8;
        prop_oneof![
            any::<u64>().prop_map(Change::Push),
            (0..3 * WORDS).prop_map(Change::Resize),
            (WORDS - 2..WORDS + 2).prop_map(Change::Resize),
            (0..2 * WORDS).prop_map(Change::ReserveExact),
            Just(Change::ShrinkToFit),
            Just(Change::Clone),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

        /// Compares with the vector of the standard library.
        #[test]
        fn arrays_equal_a_std_vec(changes in vec(change(), 0..20)) {
            let mut pages = PageVec::new_in(SystemPages);
            let mut oracle = std::vec::Vec::new();
            for (number, change) in (0..).zip(changes) {
                match change {
                    Change::Push(value) => {
                        pages.push(value);
                        oracle.push(value);
                    }
                    Change::Resize(len) => {
                        pages.resize(len, number);
                        oracle.resize(len, number);
                    }
                    Change::ReserveExact(more) => pages.reserve_exact(more),
                    Change::ShrinkToFit => pages.shrink_to_fit(),
                    Change::Clone => pages = pages.clone(),
                }
                prop_assert!(pages[..] == oracle[..], "after {change:?}");
            }
        }
    }

    #[test]
    fn zeroed_arrays_are_zero() {
        for words in [0, 100, PAGES_BYTES_MIN / 8 - 1, PAGES_BYTES_MIN / 8, PAGES_BYTES_MIN] {
            let zeroed = zeros::<u64>(words);
            assert_eq!(zeroed.len(), words);
            assert!(zeroed.iter().all(|&word| word == 0));
        }
    }

    #[test]
    fn an_array_larger_than_memory_is_an_error() {
        let mut pages = PageVec::<u8>::new_in(SystemPages);
        assert!(pages.try_reserve_exact(1 << 62).is_err());
        assert!(pages.is_empty());
    }
}
