//! The atomics of what several threads share.
//!
//! They are those of `core`. In unit tests with the feature `shuttle` they are those of
//! [shuttle](https://docs.rs/shuttle), which runs one thread at a time and decides at each of their
//! operations which one. Outside of shuttle's runner they panic, so that only the tests named
//! `schedules` can run then.
//!
//! Shuttle takes every atomic operation for sequentially consistent. What a weaker ordering allows
//! must be argued where it is used.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use core::sync::atomic;
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::atomic;

/// A number that differs from thread to thread of shuttle's.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn thread_number() -> usize {
    shuttle::current::me().into()
}

/// A number that differs from thread to thread: 0, 1, 2, ... in the order of their first calls.
#[cfg(all(feature = "std", not(all(test, feature = "shuttle"))))]
#[inline]
pub(crate) fn thread_number() -> usize {
    use atomic::{AtomicUsize, Ordering::Relaxed};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread that is about to end has lost its number.
    NUMBER.try_with(|&number| number).unwrap_or_default()
}

/// A number that mostly differs from thread to thread: where its stack is, in pages, mixed.
#[cfg(all(not(feature = "std"), not(all(test, feature = "shuttle"))))]
#[inline]
pub(crate) fn thread_number() -> usize {
    let mark = 0_u8;
    let page = ((&raw const mark).addr() >> 12) as u64;
    // The upper half of a product depends on all bits of the page.
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}
