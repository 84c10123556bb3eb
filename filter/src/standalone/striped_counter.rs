//! A counter that many threads add to without waiting for each other.

use alloc::boxed::Box;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Stripes of a counter. More threads share them.
const STRIPES: usize = 16;

/// On a line of its own: a neighbour's writes would take it from the cache. Two lines, since
/// processors load them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A sum. Each thread adds to one stripe of it.
///
/// Why: a counter that all threads add to is a line that goes from processor to processor at each
/// insertion.
#[derive(Debug)]
pub(super) struct StripedCounter(Box<[Stripe]>);

impl StripedCounter {
    pub(super) fn with(value: u64) -> Self {
        let counter = Self((0..STRIPES).map(|_| Stripe::default()).collect());
        counter.0[0].0.store(value, Relaxed);
        counter
    }

    #[inline]
    pub(super) fn increment(&self) {
        self.0[thread_number() % STRIPES].0.fetch_add(1, Relaxed);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub(super) fn sum(&self) -> u64 {
        // Wraps around as each stripe does: a saved count may be anything.
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0.load(Relaxed)))
    }
}

/// A number that differs from thread to thread: 0, 1, 2, ... in the order of their first calls.
#[cfg(feature = "std")]
#[inline]
pub(super) fn thread_number() -> usize {
    use core::sync::atomic::AtomicUsize; // Not shuttle's: it outlives a schedule.

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread that is about to end has lost its number.
    NUMBER.try_with(|&number| number).unwrap_or_default()
}

/// A number that mostly differs from thread to thread: where its stack is, in pages, mixed.
#[cfg(not(feature = "std"))]
#[inline]
pub(super) fn thread_number() -> usize {
    let mark = 0_u8;
    let page = ((&raw const mark).addr() >> 12) as u64;
    // The upper half of a product depends on all bits of the page.
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}
