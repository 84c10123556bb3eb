//! The list's links, as atomics that tests can schedule.
//!
//! The links are the atomics of `std`. In unit tests with the feature `shuttle`,
//! [shuttle](https://docs.rs/shuttle) may switch threads before each operation on a link. Outside
//! of its runner these links panic, so only tests named `schedules` can run with the feature.
//!
//! Shuttle's own atomics are larger than a pointer and do not fit into a node. The list's counters
//! are plain atomics. Each operation on a counter is next to an operation on a link, so more
//! schedules would find nothing new.
//!
//! Shuttle assumes sequential consistency. Weaker orderings are justified where they are used.

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

    /// A point at which shuttle may switch threads.
    fn step() {
        AtomicBool::new(false).load(Ordering::SeqCst);
    }
}
