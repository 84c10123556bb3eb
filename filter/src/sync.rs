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
