//! Locks, atomics and threads of everything that several threads of a store share.
//!
//! They are those of `parking_lot` and `std`. In unit tests with the feature `shuttle` they are
//! those of [shuttle](https://docs.rs/shuttle), which runs one thread at a time and decides at each
//! of these operations which one: a schedule that fails comes back with its seed. Outside of
//! shuttle's runner they panic, so that only the tests of `commit::tests` can run then.
//!
//! Shuttle takes every atomic operation for sequentially consistent, and never lets a wait time
//! out. What a weaker ordering allows must be argued where it is used.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use self::free::{Condvar, Mutex, MutexGuard, RwLock, ThreadLocal, atomic, thread};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use self::scheduled::{Condvar, Mutex, MutexGuard, RwLock, ThreadLocal, atomic, thread};

#[cfg(not(all(test, feature = "shuttle")))]
mod free {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::{sync::atomic, thread};
    pub(crate) use thread_local::ThreadLocal;
}

/// Shuttle's locks in the shape of `parking_lot`'s: without poisoning, and a wait borrows its guard.
#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use std::{
        ops::{Deref, DerefMut},
        sync::{LockResult, OnceLock, PoisonError},
        time::Duration,
    };

    use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use shuttle::{sync::atomic, thread};

    /// As `parking_lot::Mutex`.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// As `parking_lot::MutexGuard`.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        /// `None` only while [`Condvar::wait`] has it.
        inner: Option<shuttle::sync::MutexGuard<'a, T>>,
    }

    /// As `parking_lot::Condvar`.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    /// As `parking_lot::RwLock`.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { inner: Some(despite_poison(self.0.lock())) }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.inner.as_ref().expect("nobody looks during a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().expect("nobody looks during a wait")
        }
    }

    impl Condvar {
        pub(crate) const fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.inner.take().expect("one wait at a time");
            guard.inner = Some(despite_poison(self.0.wait(inner)));
        }

        /// Never times out.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            self.wait(guard);
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            despite_poison(self.0.read())
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            despite_poison(self.0.write())
        }
    }

    /// As `thread_local::ThreadLocal`: shuttle's threads are one of the system.
    #[derive(Debug)]
    pub(crate) struct ThreadLocal<T>([OnceLock<(thread::ThreadId, T)>; THREADS_MAX]);

    /// Most threads that use one [`ThreadLocal`].
    const THREADS_MAX: usize = 32;

    impl<T> ThreadLocal<T> {
        pub(crate) const fn new() -> Self {
            Self([const { OnceLock::new() }; THREADS_MAX])
        }

        pub(crate) fn get_or(&self, create: impl FnOnce() -> T) -> &T {
            if let Some(value) = self.get() {
                return value;
            }
            let own = thread::current().id();
            // Before the entry is taken: another thread that shuttle ran meanwhile would wait for it for ever.
            let created = (own, create());
            let free = self.0.iter().find(|entry| entry.get().is_none()).expect("few threads");
            &free.get_or_init(|| created).1
        }

        pub(crate) fn get(&self) -> Option<&T> {
            let own = thread::current().id();
            self.entries().find(|(id, _)| *id == own).map(|(_, value)| value)
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
            self.entries().map(|(_, value)| value)
        }

        fn entries(&self) -> impl Iterator<Item = &(thread::ThreadId, T)> {
            self.0.iter().filter_map(OnceLock::get)
        }
    }

    fn despite_poison<G>(locked: LockResult<G>) -> G {
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}
