//! Wakes tasks of callers.

use std::{
    panic::{self, AssertUnwindSafe},
    task::Waker,
};

/// Wakes all tasks, even if some wakers panic: the executor of one task must not harm the store, or
/// other tasks. The caller holds no lock.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}
