//! Pages of the system.

pub(super) use imp::{Map, has_pages};

/// Bytes of a page. A system with other pages has none for blocks: a block of 4 KiB would waste
/// most of a larger one.
pub(super) const PAGE_BYTES: usize = 4096;

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::ptr::NonNull;

    use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

    use super::PAGE_BYTES;

    /// Whether the system has pages of [`PAGE_BYTES`] and takes single ones back.
    pub(crate) fn has_pages() -> bool {
        rustix::param::page_size() == PAGE_BYTES
    }

    /// Memory that becomes resident page by page, when it is written.
    pub(crate) struct Map {
        first: NonNull<u8>,
        /// Raw: no reference to bytes that others write.
        map: MmapRaw,
    }

    // SAFETY: it owns its memory, and gives out nothing but addresses.
    unsafe impl Send for Map {}

    impl Map {
        /// Maps `bytes` bytes; `None` if the system refuses.
        pub(crate) fn new(bytes: usize) -> Option<Self> {
            let map = MmapRaw::from(MmapMut::map_anon(bytes).ok()?);
            // A large page would have all of its small ones. A system without large pages refuses.
            let _ = map.advise(Advice::NoHugePage);
            let first = NonNull::new(map.as_mut_ptr())?;
            Some(Self { first, map })
        }

        /// Returns the address of the byte at `offset`.
        pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.map.len());
            // SAFETY: it lies within the map.
            unsafe { self.first.add(offset) }
        }

        /// Returns whole pages to the system. They come again, filled with zeros, when they are
        /// written.
        ///
        /// # Safety
        ///
        /// Nobody uses them.
        pub(crate) unsafe fn give_back(&self, offset: usize, bytes: usize) {
            // SAFETY: nobody uses them: the caller's promise.
            let advised = unsafe {
                self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes)
            };
            // Locked memory (`mlockall`) is refused: it stays resident, and is used again.
            let _ = advised;
        }
    }
}

/// Blocks lie on the heap.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use std::ptr::NonNull;

    pub(crate) fn has_pages() -> bool {
        false
    }

    /// There is none.
    pub(crate) enum Map {}

    impl Map {
        pub(crate) fn new(_: usize) -> Option<Self> {
            None
        }

        pub(crate) fn at(&self, _: usize) -> NonNull<u8> {
            match *self {}
        }

        /// # Safety
        ///
        /// None is needed: there is no map.
        pub(crate) unsafe fn give_back(&self, _: usize, _: usize) {
            match *self {}
        }
    }
}
