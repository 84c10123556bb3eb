//! Long arrays in pages of the system, which return to it when the array is dropped.
//!
//! glibc gives each thread an arena, and keeps in it up to twice the bytes of the longest array
//! that any thread has freed ("dynamic mmap threshold", mallopt(3)). So threads that build filters
//! would keep megabytes for ever.

use core::{alloc::Layout, ptr::NonNull};

use allocator_api2::{
    alloc::{AllocError, Allocator, Global},
    vec::Vec,
};

/// A [`Vec`](alloc::vec::Vec) whose elements lie in [`SystemPages`].
pub type PageVec<T> = Vec<T, SystemPages>;

/// Returns so many zeros.
pub(crate) fn zeros<T: From<u8> + Copy>(count: usize) -> PageVec<T> {
    let mut zeros = PageVec::with_capacity_in(count, SystemPages);
    zeros.resize(count, T::from(0));
    zeros
}

/// Arrays of fewer bytes lie on the heap: 128 KiB, from which on glibc maps by default.
const PAGES_BYTES_MIN: usize = 128 << 10;

/// Maps arrays of 128 KiB or more from the system; shorter ones lie on the heap, as do all of them
/// but on Linux.
///
/// Zeroed arrays take no memory until they are written. A longer array moves without a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SystemPages;

impl SystemPages {
    /// Returns whether memory of this layout is mapped. Decides alone, also when it is freed.
    const fn maps(layout: Layout) -> bool {
        cfg!(all(feature = "std", target_os = "linux", not(miri)))
            && layout.size() >= PAGES_BYTES_MIN
            && layout.align() <= PAGE_ALIGN
    }
}

/// Pages of any system begin at multiples of these bytes.
const PAGE_ALIGN: usize = 4 << 10;

// SAFETY: memory stays until it is given back, and `maps` says for each layout whose it is.
unsafe impl Allocator for SystemPages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if Self::maps(layout) { system::map(layout.size()) } else { Global.allocate(layout) }
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if Self::maps(layout) { system::map(layout.size()) } else { Global.allocate_zeroed(layout) }
    }

    unsafe fn deallocate(&self, first: NonNull<u8>, layout: Layout) {
        if Self::maps(layout) {
            // SAFETY: it was mapped with as many bytes, and the caller gives it up.
            unsafe { system::unmap(first, layout.size()) }
        } else {
            // SAFETY: it came from there, with the same layout.
            unsafe { Global.deallocate(first, layout) }
        }
    }

    unsafe fn grow(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.resize(first, from, to) }
    }

    unsafe fn shrink(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.resize(first, from, to) }
    }
}

impl SystemPages {
    /// Changes the length of memory, which may move.
    ///
    /// # Safety
    ///
    /// As [`Allocator::grow`] and [`Allocator::shrink`] say.
    unsafe fn resize(
        &self,
        first: NonNull<u8>,
        from: Layout,
        to: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        match (Self::maps(from), Self::maps(to)) {
            // SAFETY: it was mapped with as many bytes, and the caller has no pointer into it.
            (true, true) => unsafe { system::remap(first, from.size(), to.size()) },
            // SAFETY: it came from there, with the same layout.
            (false, false) if to.size() >= from.size() => unsafe { Global.grow(first, from, to) },
            // SAFETY: the same.
            (false, false) => unsafe { Global.shrink(first, from, to) },
            _ => {
                let moved = self.allocate(to)?;
                let bytes = from.size().min(to.size());
                // SAFETY: both have as many bytes, and they are different memory.
                unsafe { first.copy_to_nonoverlapping(moved.cast(), bytes) };
                // SAFETY: the caller gives it up.
                unsafe { self.deallocate(first, from) };
                Ok(moved)
            }
        }
    }
}

/// Mappings of the system, which are zeros at first.
#[cfg(all(feature = "std", target_os = "linux", not(miri)))]
mod system {
    use core::ptr::{self, NonNull};

    use allocator_api2::alloc::AllocError;
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

    pub(super) fn map(bytes: usize) -> Result<NonNull<[u8]>, AllocError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the system likes.
        let first = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        slice(first, bytes)
    }

    /// # Safety
    ///
    /// `first` was mapped with `from` bytes, and nobody uses the old place afterwards.
    pub(super) unsafe fn remap(
        first: NonNull<u8>,
        from: usize,
        to: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        let moved = unsafe { mremap(first.as_ptr().cast(), from, to, MremapFlags::MAYMOVE) };
        slice(moved, to)
    }

    /// # Safety
    ///
    /// `first` was mapped with `bytes` bytes, and nobody uses it any more.
    pub(super) unsafe fn unmap(first: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        let unmapped = unsafe { munmap(first.as_ptr().cast(), bytes) };
        // Fails only where that splits a mapping and there are too many: it stays then.
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

/// Never asked.
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

    /// A change of an array.
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

        /// The vector of the standard library is the oracle.
        #[test]
        fn arrays_are_what_a_vec_would_be(changes in vec(change(), 0..20)) {
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
    fn more_than_there_is_is_an_error() {
        let mut pages = PageVec::<u8>::new_in(SystemPages);
        assert!(pages.try_reserve_exact(1 << 62).is_err());
        assert!(pages.is_empty());
    }
}
