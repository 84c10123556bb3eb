//! Memory maps of the system, in huge pages if available.

use core::ptr::NonNull;

use super::{CHUNK_BYTES, pages::PageBytes};

/// A map of a multiple of [`CHUNK_BYTES`], with that alignment. Unmapped on drop.
pub(super) struct Chunk {
    first: NonNull<u8>,
    bytes: usize,
    pages: Pages,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// Small, until huge ones are requested.
    Small,
    /// Huge ones were requested.
    Huge,
    /// Small, because some were released. A huge page would make the released ones resident again.
    Released,
}

/// Returns the size of a page that can be released; none if only whole chunks can.
pub(super) fn page_bytes() -> PageBytes {
    // Otherwise a page could span two chunks.
    let divides = |bytes: &usize| bytes.is_power_of_two() && *bytes <= CHUNK_BYTES;
    PageBytes::new(memory::page_bytes().filter(divides))
}

// SAFETY: a chunk owns its memory and exposes only addresses.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Maps `bytes` bytes, a multiple of [`CHUNK_BYTES`], in small pages; `None` if the system is
    /// out of memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES));
        let first = memory::map(bytes)?;
        Some(Self { first, bytes, pages: Pages::Small })
    }

    /// Requests huge pages, which the system uses for pages not written yet.
    pub(super) fn advise_huge(&mut self) {
        memory::advise_huge(self.first, self.bytes);
        self.pages = Pages::Huge;
    }

    /// Returns `true` if the pages are small and may become huge ones later.
    pub(super) fn is_small(&self) -> bool {
        self.pages == Pages::Small
    }

    /// Releases `bytes` bytes of pages from `offset` to the system. Their content is lost, and they
    /// are zero when they are written again. Returns `false` if the system refuses.
    ///
    /// The rest of a huge page becomes small pages. Linux counts the released part as free at once,
    /// but reuses it only when it is short of memory and splits the page.
    ///
    /// # Safety
    ///
    /// The range must be whole pages in which nothing is allocated.
    pub(super) unsafe fn release_pages_at(&mut self, offset: usize, bytes: usize) -> bool {
        assert!(offset + bytes <= self.bytes);
        if self.pages != Pages::Released {
            // Otherwise the system could fill the gap to form a huge page again.
            memory::advise_no_huge(self.first, self.bytes);
            self.pages = Pages::Released;
        }
        // SAFETY: within the chunk; the caller ensures that the pages are unused.
        unsafe { memory::release_pages(self.at(offset), bytes) }
    }

    /// Requests huge pages and moves the content of small ones there. Concurrent readers wait.
    pub(super) fn use_huge_pages(&mut self) {
        self.advise_huge();
        memory::collapse_to_huge(self.first, self.bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes);
        // SAFETY: the offset is within the chunk.
        unsafe { self.first.add(offset) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `map` returned this address for this size, and all allocations in it were freed.
        unsafe { memory::unmap(self.first, self.bytes) }
    }
}

/// Memory directly from the system, because an allocator may keep freed memory.
#[cfg(all(target_os = "linux", not(miri)))]
mod memory {
    use core::ptr::{self, NonNull};

    use rustix::{
        mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
        param::page_size,
    };

    use super::super::CHUNK_BYTES;

    /// Maps more than requested, then unmaps both sides of the aligned part.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let mapped_bytes = bytes.checked_add(CHUNK_BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE) };
        let mapped = mapped.ok()?.cast::<u8>();
        let before = mapped.addr().next_multiple_of(CHUNK_BYTES) - mapped.addr();
        let first = mapped.wrapping_add(before);
        for (start, bytes) in [(mapped, before), (first.wrapping_add(bytes), CHUNK_BYTES - before)]
        {
            if bytes > 0 {
                // SAFETY: within the new mapping, which is still private to this function.
                let unmapped = unsafe { munmap(start.cast(), bytes) };
                // On failure it stays mapped, but is never written and so not resident.
                let _ = unmapped;
            }
        }
        NonNull::new(first)
    }

    pub(super) fn advise_huge(first: NonNull<u8>, bytes: usize) {
        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        // Systems without huge pages return an error.
        let _ = advised;
    }

    pub(super) fn collapse_to_huge(first: NonNull<u8>, bytes: usize) {
        /// From `linux/mman.h`, the same on all architectures; `rustix` does not define it.
        const MADV_COLLAPSE: libc::c_int = 25;

        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { libc::madvise(first.as_ptr().cast(), bytes, MADV_COLLAPSE) };
        // Before Linux 6.1, which lacks this call, khugepaged collapses the pages later.
        let _ = advised;
    }

    pub(super) fn page_bytes() -> Option<usize> {
        Some(page_size())
    }

    pub(super) fn advise_no_huge(first: NonNull<u8>, bytes: usize) {
        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        // Systems without huge pages return an error.
        let _ = advised;
    }

    /// Releases whole pages of a mapping that [`map`] returned.
    ///
    /// # Safety
    ///
    /// Nothing is allocated in them: their bytes become zero.
    pub(super) unsafe fn release_pages(first: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: within the mapping; the caller ensures that the pages are unused.
        unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
    }

    /// # Safety
    ///
    /// [`map`] returned `first` for `bytes`, and the memory is not used afterwards.
    pub(super) unsafe fn unmap(first: NonNull<u8>, bytes: usize) {
        // SAFETY: a mapping of this module; the caller ensures that it is unused.
        let unmapped = unsafe { munmap(first.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a chunk failed");
    }
}

/// Memory from the allocator.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod memory {
    use std::{
        alloc::{self, Layout},
        ptr::NonNull,
    };

    use super::super::CHUNK_BYTES;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES).ok()?;
        // SAFETY: a chunk is never empty.
        NonNull::new(unsafe { alloc::alloc(layout) })
    }

    pub(super) fn advise_huge(_: NonNull<u8>, _: usize) {}

    pub(super) fn collapse_to_huge(_: NonNull<u8>, _: usize) {}

    pub(super) fn page_bytes() -> Option<usize> {
        None
    }

    pub(super) fn advise_no_huge(_: NonNull<u8>, _: usize) {}

    /// # Safety
    ///
    /// None required: the pages are kept.
    pub(super) unsafe fn release_pages(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// # Safety
    ///
    /// [`map`] returned `first` for `bytes`, and the memory is not used afterwards.
    pub(super) unsafe fn unmap(first: NonNull<u8>, bytes: usize) {
        let layout =
            Layout::from_size_align(bytes, CHUNK_BYTES).expect("the layout was valid for `map`");
        // SAFETY: `map` allocated it with this layout.
        unsafe { alloc::dealloc(first.as_ptr(), layout) }
    }
}
