//! The links by which threads that insert and read meet.
//!
//! They are atomics of `std`. In unit tests with the feature `shuttle` another thread may go on
//! before each of their operations, as [shuttle](https://docs.rs/shuttle) decides, and outside of
//! its runner they panic: only the tests named `schedules` can run then.
//!
//! Shuttle's own do not fit into a node: they are larger than a pointer. Counters of a list are no
//! steps: each of their operations stands beside one of a link, so that other orders of them show
//! nothing more.
//!
//! All memory is taken for sequentially consistent there. What a weaker ordering allows must be
//! argued where it is used.

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use self::scheduled::AtomicPtr;
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::atomic::AtomicPtr;

#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use std::{
        fmt,
        sync::atomic::{AtomicPtr as Pointer, Ordering},
    };

    use shuttle::sync::atomic::AtomicBool;

    /// As `std::sync::atomic::AtomicPtr`.
    #[repr(transparent)]
    pub(crate) struct AtomicPtr<T>(Pointer<T>);

    impl<T> fmt::Debug for AtomicPtr<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self(Pointer::default())
        }
    }

    impl<T> AtomicPtr<T> {
        pub(crate) fn load(&self, ordering: Ordering) -> *mut T {
            step();
            self.0.load(ordering)
        }

        pub(crate) fn store(&self, pointer: *mut T, ordering: Ordering) {
            step();
            self.0.store(pointer, ordering);
        }

        pub(crate) fn compare_exchange(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            step();
            self.0.compare_exchange(current, new, success, failure)
        }
    }

    /// Another thread may go on here.
    fn step() {
        AtomicBool::new(false).load(Ordering::SeqCst);
    }
}
