//! Pages of the system.

pub(super) use imp::{Map, has_pages};

/// Bytes of a page. With other page sizes blocks are on the heap: a block of 4 KiB would waste most
/// of a larger page.
pub(super) const PAGE_BYTES: usize = 4096;

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::ptr::NonNull;

    use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

    use super::PAGE_BYTES;
    #[cfg(test)]
    use super::calls;

    /// Returns `true` if the system has pages of [`PAGE_BYTES`] and takes back single ones.
    pub(crate) fn has_pages() -> bool {
        rustix::param::page_size() == PAGE_BYTES
    }

    /// Memory that becomes resident page by page, when it is written.
    pub(crate) struct Map {
        first: NonNull<u8>,
        /// Raw, because there must be no reference to bytes that other threads write.
        map: MmapRaw,
    }

    // SAFETY: a map owns its memory, and returns only addresses.
    unsafe impl Send for Map {}
    // SAFETY: as above; calls for different pages do not depend on each other.
    unsafe impl Sync for Map {}

    impl Map {
        /// Maps `bytes` bytes; `None` if the system refuses.
        pub(crate) fn new(bytes: usize) -> Option<Self> {
            #[cfg(test)]
            calls::MAPS.with(calls::Calls::make)?;
            let map = MmapRaw::from(MmapMut::map_anon(bytes).ok()?);
            // In a huge page all small pages are resident. Fails on a system without huge pages.
            let _ = map.advise(Advice::NoHugePage);
            let first = NonNull::new(map.as_mut_ptr())?;
            Some(Self { first, map })
        }

        /// Returns the address of the byte at `offset`.
        pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.map.len());
            // SAFETY: the byte lies within the map.
            unsafe { self.first.add(offset) }
        }

        /// Returns whole pages to the system. The next write makes them resident and zeroed.
        ///
        /// Returns `false` if the system refuses: with `EINVAL` if memory is locked (`mlockall`).
        /// The pages then stay resident and usable.
        ///
        /// # Safety
        ///
        /// No content lies in the pages.
        pub(crate) unsafe fn give_back(&self, offset: usize, bytes: usize) -> bool {
            #[cfg(test)]
            if calls::GIVE_BACKS.with(calls::Calls::make).is_none() {
                return false;
            }
            // SAFETY: the caller guarantees that no content lies in the pages.
            let advised = unsafe {
                self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes)
            };
            advised.is_ok()
        }
    }

    #[cfg(test)]
    impl Drop for Map {
        fn drop(&mut self) {
            calls::UNMAPS.with(calls::Calls::make);
        }
    }
}

/// Counts the calls of a thread in tests, and refuses them on demand.
#[cfg(all(test, target_os = "linux", not(miri)))]
pub(super) mod calls {
    use std::cell::{Cell, RefCell};

    thread_local! {
        pub(crate) static MAPS: Calls = Calls::default();
        pub(crate) static GIVE_BACKS: Calls = Calls::default();
        pub(crate) static UNMAPS: Calls = Calls::default();
    }

    /// Calls of one kind.
    #[derive(Default)]
    pub(crate) struct Calls {
        count: Cell<usize>,
        is_refused: Cell<bool>,
        before_each: RefCell<Option<Box<dyn Fn()>>>,
    }

    impl Calls {
        /// Counts a call. Returns `None` if the call must fail.
        pub(super) fn make(&self) -> Option<()> {
            self.count.set(self.count.get() + 1);
            if let Some(before) = &*self.before_each.borrow() {
                before();
            }
            (!self.is_refused.get()).then_some(())
        }

        /// Returns and resets the number of calls.
        pub(crate) fn counted(&self) -> usize {
            self.count.take()
        }

        /// Runs `before` before each call that `run` makes.
        pub(crate) fn run_with(&self, before: impl Fn() + 'static, run: impl FnOnce()) {
            *self.before_each.borrow_mut() = Some(Box::new(before));
            run();
            *self.before_each.borrow_mut() = None;
        }

        /// Makes calls fail from now on, or succeed.
        pub(crate) fn refuse(&self, is_refused: bool) {
            self.is_refused.set(is_refused);
        }
    }
}

/// Blocks are on the heap.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use std::ptr::NonNull;

    pub(crate) fn has_pages() -> bool {
        false
    }

    /// Uninhabited: there is no map.
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
        /// None: there is no map.
        pub(crate) unsafe fn give_back(&self, _: usize, _: usize) -> bool {
            match *self {}
        }
    }
}
