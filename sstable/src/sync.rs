//! Lock and shared pointer of index slots.
//!
//! They are those of `parking_lot` and `arc-swap`. In unit tests with the feature `shuttle`,
//! [shuttle](https://docs.rs/shuttle) schedules each of their operations, and outside of its runner
//! they panic: only the tests named `schedules` can run then.
//!
//! Each operation of the shared pointer is one atomic step there. The safety of `arc-swap` between
//! the load of an address and its reference count is not tested. Shuttle assumes sequential
//! consistency.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use self::free::{ArcSwapOption, Guard, Mutex};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use self::scheduled::{ArcSwapOption, Guard, Mutex};

#[cfg(not(all(test, feature = "shuttle")))]
mod free {
    pub(crate) use arc_swap::{ArcSwapOption, Guard};
    pub(crate) use parking_lot::Mutex;
}

#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use std::{
        mem,
        ops::Deref,
        sync::{Arc, PoisonError},
    };

    use shuttle::sync::{
        MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    /// As `parking_lot::Mutex`.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// As `arc_swap::ArcSwapOption`.
    #[derive(Debug)]
    pub(crate) struct ArcSwapOption<T> {
        /// Locked within one step only.
        pointer: parking_lot::Mutex<Option<Arc<T>>>,
        step: AtomicBool,
    }

    impl<T> Default for ArcSwapOption<T> {
        fn default() -> Self {
            Self { pointer: parking_lot::Mutex::default(), step: AtomicBool::default() }
        }
    }

    impl<T> ArcSwapOption<T> {
        /// Yields to the scheduler before each operation.
        fn step(&self) {
            self.step.load(SeqCst);
        }

        pub(crate) fn load(&self) -> Guard<Option<Arc<T>>> {
            self.step();
            Guard(self.pointer.lock().clone())
        }

        pub(crate) fn store(&self, pointer: Option<Arc<T>>) {
            self.step();
            let before = mem::replace(&mut *self.pointer.lock(), pointer);
            drop(before); // Unlocked: the drop may take other locks.
        }

        pub(crate) fn compare_and_swap(&self, current: &Arc<T>, new: Option<Arc<T>>) {
            self.step();
            let mut pointer = self.pointer.lock();
            if pointer.as_ref().is_some_and(|found| Arc::ptr_eq(found, current)) {
                let before = mem::replace(&mut *pointer, new);
                drop(pointer);
                drop(before);
            }
        }
    }

    /// As `arc_swap::Guard`.
    #[derive(Debug)]
    pub(crate) struct Guard<T>(T);

    impl<T> Guard<T> {
        pub(crate) fn into_inner(guard: Self) -> T {
            guard.0
        }
    }

    impl<T> Deref for Guard<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }
}
