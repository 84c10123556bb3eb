//! Lock and shared pointer of index slots.
//!
//! Both are those of `std` and `arc-swap`. In unit tests with the feature `shuttle`,
//! [shuttle](https://docs.rs/shuttle) schedules each of their operations. Outside of its runner
//! they panic, so only the tests named `schedules` can run with the feature. Locks of `parking_lot`
//! are not used: notifications can get lost after a fork, because waiting threads are in a table of
//! the process.
//!
//! Each operation of the shared pointer is one atomic step there. The safety of `arc-swap` between
//! the load of an address and its reference count is not tested. Shuttle assumes sequential
//! consistency.

use std::sync::{LockResult, PoisonError, TryLockError};

pub(crate) use self::base::{ArcSwapOption, Guard, MutexGuard};
#[cfg(not(all(test, feature = "shuttle")))]
use self::free as base;
#[cfg(all(test, feature = "shuttle"))]
use self::scheduled as base;

#[cfg(not(all(test, feature = "shuttle")))]
mod free {
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use arc_swap::{ArcSwapOption, Guard};
}

/// A lock without poisoning: panics leave the protected data consistent.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(base::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(base::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        despite_poison(self.0.lock())
    }

    /// Returns `None` if the lock is held.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn despite_poison<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use std::{mem, ops::Deref, sync::Arc};

    use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    use super::despite_poison;

    /// As `arc_swap::ArcSwapOption`.
    #[derive(Debug)]
    pub(crate) struct ArcSwapOption<T> {
        /// Locked within one step only.
        pointer: std::sync::Mutex<Option<Arc<T>>>,
        step: AtomicBool,
    }

    impl<T> Default for ArcSwapOption<T> {
        fn default() -> Self {
            Self { pointer: std::sync::Mutex::default(), step: AtomicBool::default() }
        }
    }

    impl<T> ArcSwapOption<T> {
        /// Yields to the scheduler before each operation.
        fn step(&self) {
            self.step.load(SeqCst);
        }

        pub(crate) fn load(&self) -> Guard<Option<Arc<T>>> {
            self.step();
            Guard(despite_poison(self.pointer.lock()).clone())
        }

        pub(crate) fn store(&self, pointer: Option<Arc<T>>) {
            self.step();
            let before = mem::replace(&mut *despite_poison(self.pointer.lock()), pointer);
            drop(before); // Unlocked: the drop may take other locks.
        }

        pub(crate) fn compare_and_swap(&self, current: &Arc<T>, new: Option<Arc<T>>) {
            self.step();
            let mut pointer = despite_poison(self.pointer.lock());
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
