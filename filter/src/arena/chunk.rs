//! Memory from the system, in large pages where it grants them.

use core::ptr::NonNull;

use super::{CHUNK_BYTES, pages::PageBytes};

/// Memory of a multiple of [`CHUNK_BYTES`], at one. Back to the system when it is dropped.
pub(super) struct Chunk {
    first: NonNull<u8>,
    bytes: usize,
    pages: Pages,
}

/// The pages of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// Small, until large ones are asked for.
    Small,
    /// Large ones were asked for.
    Large,
    /// Small, because some of them were given back. So it stays: a large page would have all of
    /// them again.
    Single,
}

/// Of the pages that the system takes back; none where it takes back whole chunks only.
pub(super) fn page_bytes() -> PageBytes {
    // Else one could lie in two chunks.
    let divides = |bytes: &usize| bytes.is_power_of_two() && *bytes <= CHUNK_BYTES;
    PageBytes::new(memory::page_bytes().filter(divides))
}

// SAFETY: it owns its memory, and gives out nothing but addresses.
unsafe impl Send for Chunk {}

impl Chunk {
    /// A chunk of `bytes` bytes, a multiple of [`CHUNK_BYTES`], in small pages; `None` if the
    /// system has no more.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES));
        let first = memory::take(bytes)?;
        Some(Self { first, bytes, pages: Pages::Small })
    }

    /// Asks the system for large pages: for those that were not written to yet.
    pub(super) fn ask_large(&mut self) {
        memory::ask_large(self.first, self.bytes);
        self.pages = Pages::Large;
    }

    /// Whether its pages are small ones for a while only.
    pub(super) fn is_small(&self) -> bool {
        self.pages == Pages::Small
    }

    /// Gives pages back to the system, `bytes` from `offset` on: what was in them is lost, and they
    /// come again, filled with zeros, when they are written to. Whether the system has taken them.
    ///
    /// Of a large page the rest stays where it is, and is small pages from then on. The system
    /// counts what was given back as free at once, but uses it again when it is short of memory and
    /// splits the page.
    ///
    /// # Safety
    ///
    /// Nobody has a piece in them, and they are whole pages.
    pub(super) unsafe fn give_back_pages(&mut self, offset: usize, bytes: usize) -> bool {
        assert!(offset + bytes <= self.bytes);
        if self.pages != Pages::Single {
            // Else the system could fill the gap, to make the page large again.
            memory::refuse_large(self.first, self.bytes);
            self.pages = Pages::Single;
        }
        // SAFETY: within the chunk, and nobody uses them: the caller's promise.
        unsafe { memory::give_back_pages(self.at(offset), bytes) }
    }

    /// Asks for large pages, and has the system move there what was written to small ones. Who
    /// reads it meanwhile waits.
    pub(super) fn make_large(&mut self) {
        self.ask_large();
        memory::move_to_large(self.first, self.bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes);
        // SAFETY: it lies within the chunk.
        unsafe { self.first.add(offset) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `take` gave it, for so many bytes, and whoever had a piece has given it back.
        unsafe { memory::give_back(self.first, self.bytes) }
    }
}

/// Straight from the system: what an allocator is given back it may keep.
#[cfg(all(target_os = "linux", not(miri)))]
mod memory {
    use core::ptr::{self, NonNull};

    use rustix::{
        mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
        param::page_size,
    };

    use super::super::CHUNK_BYTES;

    /// Maps more than asked for, and unmaps what lies before and behind the aligned part.
    pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
        let mapped_bytes = bytes.checked_add(CHUNK_BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the system likes.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE) };
        let mapped = mapped.ok()?.cast::<u8>();
        let before = mapped.addr().next_multiple_of(CHUNK_BYTES) - mapped.addr();
        let first = mapped.wrapping_add(before);
        for (start, bytes) in [(mapped, before), (first.wrapping_add(bytes), CHUNK_BYTES - before)]
        {
            if bytes > 0 {
                // SAFETY: within the new mapping, and nobody has it.
                let unmapped = unsafe { munmap(start.cast(), bytes) };
                // What stays mapped is never written, and so takes no memory.
                let _ = unmapped;
            }
        }
        NonNull::new(first)
    }

    /// Of a mapping that [`take`] returned.
    pub(super) fn ask_large(first: NonNull<u8>, bytes: usize) {
        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        // A system without large pages refuses: all is as before then.
        let _ = advised;
    }

    /// Of a mapping that [`take`] returned, for which large pages were asked.
    pub(super) fn move_to_large(first: NonNull<u8>, bytes: usize) {
        /// Of Linux's `linux/mman.h`, the same on all processors; `rustix` has no name for it.
        const MADV_COLLAPSE: libc::c_int = 25;

        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { libc::madvise(first.as_ptr().cast(), bytes, MADV_COLLAPSE) };
        // Before Linux 6.1 a thread of the system finds it some time later.
        let _ = advised;
    }

    pub(super) fn page_bytes() -> Option<usize> {
        Some(page_size())
    }

    /// Of a mapping that [`take`] returned.
    pub(super) fn refuse_large(first: NonNull<u8>, bytes: usize) {
        // SAFETY: within the mapping, and the advice changes no byte.
        let advised = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        // A system without large pages refuses: none comes then.
        let _ = advised;
    }

    /// Whole pages of a mapping that [`take`] returned.
    ///
    /// # Safety
    ///
    /// Nobody uses them: their bytes become zeros.
    pub(super) unsafe fn give_back_pages(first: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: within the mapping, and nobody uses them: the caller's promise.
        unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
    }

    /// # Safety
    ///
    /// [`take`] returned `first` for `bytes`, and nobody uses them any more.
    pub(super) unsafe fn give_back(first: NonNull<u8>, bytes: usize) {
        // SAFETY: a mapping of ours, which nobody uses: the caller's promise.
        let unmapped = unsafe { munmap(first.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours");
    }
}

/// From the allocator.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod memory {
    use std::{
        alloc::{self, Layout},
        ptr::NonNull,
    };

    use super::super::CHUNK_BYTES;

    pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES).ok()?;
        // SAFETY: a chunk is never empty.
        NonNull::new(unsafe { alloc::alloc(layout) })
    }

    pub(super) fn ask_large(_: NonNull<u8>, _: usize) {}

    pub(super) fn move_to_large(_: NonNull<u8>, _: usize) {}

    pub(super) fn page_bytes() -> Option<usize> {
        None
    }

    pub(super) fn refuse_large(_: NonNull<u8>, _: usize) {}

    /// # Safety
    ///
    /// None is needed: it keeps them.
    pub(super) unsafe fn give_back_pages(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// # Safety
    ///
    /// [`take`] returned `first` for `bytes`, and nobody uses them any more.
    pub(super) unsafe fn give_back(first: NonNull<u8>, bytes: usize) {
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES).expect("it was one before");
        // SAFETY: `take` has allocated it with this layout: the caller's promise.
        unsafe { alloc::dealloc(first.as_ptr(), layout) }
    }
}
