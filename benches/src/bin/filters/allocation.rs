//! Bytes that are allocated now, counted by the allocator itself.
//!
//! What a structure says of its size is not what it takes: this counts it for all alike.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Wraps: only differences are used.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// What `make` makes, and the bytes that it keeps allocated.
pub(crate) fn bytes_of<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.load(Relaxed);
    let made = make();
    (made, BYTES.load(Relaxed).wrapping_sub(before))
}

#[derive(Debug)]
struct Counter;

#[global_allocator]
static COUNTER: Counter = Counter;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        BYTES.fetch_add(bytes.wrapping_sub(layout.size()), Relaxed);
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests allocate meanwhile, so only large numbers are compared, and roughly.
    #[test]
    fn what_is_kept_is_counted() {
        let (kept, bytes) = bytes_of(|| {
            drop(std::hint::black_box(vec![1_u8; 90 << 20]));
            let mut grown = vec![1_u8; 10 << 20];
            grown.reserve_exact(30 << 20);
            grown
        });
        assert!((39 << 20..42 << 20).contains(&bytes), "{bytes}");
        drop(kept);
    }
}
