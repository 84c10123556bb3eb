//! Locks, atomics and threads shared by the threads of a store.
//!
//! They are those of `std`. In unit tests with the feature `shuttle` they are those of
//! [shuttle](https://docs.rs/shuttle), which runs one thread at a time and schedules at each of
//! these operations: a failing schedule is reported with its seed. Outside of shuttle's runner they
//! panic, so only the tests of `commit::tests` can run then. Shuttle treats atomic operations as
//! sequentially consistent, and waits never time out.
//!
//! Locks of `parking_lot` are not used: they queue waiting threads in a table of the process. A
//! fork copies the table with threads that the child does not have. Threads of the child reuse
//! their memory, the queues break, and a notification is lost: 1 of 20 daemons that opened a store
//! hung.

use std::{
    ops::{Deref, DerefMut},
    sync::{LockResult, PoisonError, TryLockError},
    time::Duration,
};

use self::atomic::{AtomicUsize, Ordering::Relaxed};
pub(crate) use self::base::{ThreadLocal, atomic, thread};
#[cfg(not(all(test, feature = "shuttle")))]
use self::free as base;
#[cfg(all(test, feature = "shuttle"))]
use self::scheduled as base;

#[cfg(not(all(test, feature = "shuttle")))]
mod free {
    pub(crate) use std::{
        sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
        thread,
    };
    pub(crate) use thread_local::ThreadLocal;

    use std::{sync::LockResult, time::Duration};

    pub(super) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<MutexGuard<'a, T>> {
        match condvar.wait_timeout(guard, timeout) {
            Ok((guard, _)) => Ok(guard),
            Err(poisoned) => Ok(poisoned.into_inner().0),
        }
    }
}

/// A lock without poisoning: panics leave the protected data intact.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(base::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    /// `None` only during [`Condvar::wait`].
    inner: Option<base::MutexGuard<'a, T>>,
}

/// A condition variable whose wait borrows its guard.
///
/// The state that threads wait for must change under their lock, before the notification.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    condvar: base::Condvar,
    /// Number of waiting threads: std's condition variable makes a system call for each
    /// notification.
    waiters: AtomicUsize,
}

/// A lock for one writer or many readers, without poisoning.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(base::RwLock<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(base::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: Some(despite_poison(self.0.lock())) }
    }

    /// Returns `None` if the lock is held.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(inner) => Some(MutexGuard { inner: Some(inner) }),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(MutexGuard { inner: Some(poisoned.into_inner()) })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("a wait borrows the guard")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("a wait borrows the guard")
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self { condvar: base::Condvar::new(), waiters: AtomicUsize::new(0) }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.count_waiter(|condvar| {
            let inner = guard.inner.take().expect("one wait at a time");
            guard.inner = Some(despite_poison(condvar.wait(inner)));
        });
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        self.count_waiter(|condvar| {
            let inner = guard.inner.take().expect("one wait at a time");
            guard.inner = Some(despite_poison(base::wait_for(condvar, inner, timeout)));
        });
    }

    /// Counts the thread, under the lock that `wait` releases.
    fn count_waiter(&self, wait: impl FnOnce(&base::Condvar)) {
        // Relaxed: a thread that changes the state under the lock later sees the count.
        self.waiters.fetch_add(1, Relaxed);
        wait(&self.condvar);
        self.waiters.fetch_sub(1, Relaxed);
    }

    pub(crate) fn notify_one(&self) {
        if self.waiters.load(Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}

impl<T> Mutex<T> {
    /// Waits with `guard` of this lock for a notification of `condvar`, for at most `timeout`.
    /// Under shuttle, where waits never time out, waits for one step of other threads.
    pub(crate) fn wait_briefly<'a>(
        &'a self,
        mut guard: MutexGuard<'a, T>,
        condvar: &Condvar,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        if cfg!(all(test, feature = "shuttle")) {
            drop(guard);
            thread::yield_now();
            return self.lock();
        }
        condvar.wait_for(&mut guard, timeout);
        guard
    }
}

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(base::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> base::RwLockReadGuard<'_, T> {
        despite_poison(self.0.read())
    }

    pub(crate) fn write(&self) -> base::RwLockWriteGuard<'_, T> {
        despite_poison(self.0.write())
    }
}

fn despite_poison<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Shuttle's locks, and types that shuttle lacks.
#[cfg(all(test, feature = "shuttle"))]
mod scheduled {
    use std::{
        sync::{LockResult, OnceLock},
        time::Duration,
    };

    pub(crate) use shuttle::{
        sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
        thread,
    };

    /// Never times out.
    pub(super) fn wait_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> LockResult<MutexGuard<'a, T>> {
        condvar.wait(guard)
    }

    /// As `thread_local::ThreadLocal`: shuttle's threads are one of the system.
    #[derive(Debug)]
    pub(crate) struct ThreadLocal<T>([OnceLock<(thread::ThreadId, T)>; THREADS_MAX]);

    /// Maximum number of threads that use one [`ThreadLocal`].
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
            // Created before the entry is taken: another thread that shuttle ran meanwhile would
            // wait for the entry forever.
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
}
