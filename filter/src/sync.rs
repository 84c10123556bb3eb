//! Atomics of shared state.
//!
//! The atomics are those of `core`. In unit tests with the feature `shuttle` they are those of
//! [shuttle](https://docs.rs/shuttle), which runs one thread at a time and schedules at each atomic
//! operation. Outside of shuttle's runner they panic, so only tests named `schedules` can run with
//! the feature.
//!
//! Shuttle assumes sequential consistency. Weaker orderings are justified where they are used.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use core::sync::atomic;
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::atomic;

/// Returns a number that identifies the shuttle thread.
#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn thread_number() -> usize {
    shuttle::current::me().into()
}

/// Returns a number that identifies the thread: 0, 1, 2, ... in the order of first calls.
#[cfg(all(feature = "std", not(all(test, feature = "shuttle"))))]
#[inline]
pub(crate) fn thread_number() -> usize {
    use atomic::{AtomicUsize, Ordering::Relaxed};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread that is exiting has lost its number.
    NUMBER.try_with(|&number| number).unwrap_or_default()
}

/// Returns a number that mostly identifies the thread: a hash of its stack's page.
#[cfg(all(not(feature = "std"), not(all(test, feature = "shuttle"))))]
#[inline]
pub(crate) fn thread_number() -> usize {
    let mark = 0_u8;
    let page = ((&raw const mark).addr() >> 12) as u64;
    // The upper half of the product depends on all bits of the page.
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}
