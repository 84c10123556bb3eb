//! Bytes on the heap, counted by the allocator while a measurement asks for them.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

/// Off for measurements of CPU time: each count takes a few nanoseconds.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// Negative if earlier allocations were freed.
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

/// Counts from 0, until the end of the process.
pub(crate) fn begin_counting() {
    LIVE_BYTES.store(0, Relaxed);
    PEAK_BYTES.store(0, Relaxed);
    IS_COUNTING.store(true, Relaxed);
}

/// Returns the most bytes that were allocated at a time since [`begin_counting`].
pub(crate) fn peak_bytes() -> u64 {
    PEAK_BYTES.load(Relaxed).max(0) as u64
}

/// Adds `more` bytes, which may be negative.
fn count(more: i64) {
    if IS_COUNTING.load(Relaxed) {
        let live = LIVE_BYTES.fetch_add(more, Relaxed) + more;
        if more > 0 {
            PEAK_BYTES.fetch_max(live, Relaxed);
        }
    }
}

#[derive(Debug)]
struct Counter;

#[global_allocator]
static COUNTER: Counter = Counter;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as i64 - layout.size() as i64);
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_kept_when_memory_is_freed() {
        begin_counting();
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let kept = std::hint::black_box(vec![1_u8; 1 << 20]);
        assert!((64 << 20..80 << 20).contains(&peak_bytes()), "{} bytes", peak_bytes());
        drop(kept);
    }
}
