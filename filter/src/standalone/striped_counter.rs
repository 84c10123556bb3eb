//! A counter that threads increment without contention.

use alloc::boxed::Box;

use crate::sync::{
    atomic::{AtomicU64, Ordering::Relaxed},
    thread_number,
};

/// Stripes of a counter. More threads share them.
const STRIPES: usize = 16;

/// Aligned to two cache lines, because CPUs prefetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A sum with one addend per stripe. Each thread increments one stripe.
///
/// The line of a single counter would move between cores at each insertion.
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
        // Wraps around as each stripe does: a saved count is arbitrary.
        self.0.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.0.load(Relaxed)))
    }
}
