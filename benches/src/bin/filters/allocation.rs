//! Bytes that a thread has allocated and not freed, counted by the allocator.
//!
//! Structures report their size by different rules; this counts all of them alike.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// Const, and without a destructor: reading it allocates nothing. Wraps: only differences
    /// count.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Returns the result of `make`, and the bytes that this thread keeps allocated for it.
pub(crate) fn bytes_of<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let made = make();
    (made, BYTES.get().wrapping_sub(before))
}

/// Adds `more` to the count. Wraps, to subtract.
fn count(more: usize) {
    // A terminating thread has no thread locals any more.
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_add(more)));
}

#[derive(Debug)]
struct Counter;

#[global_allocator]
static COUNTER: Counter = Counter;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes.wrapping_sub(layout.size()));
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count(0_usize.wrapping_sub(layout.size()));
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_allocations_are_counted() {
        let (kept, bytes) = bytes_of(|| {
            drop(std::hint::black_box(vec![1_u8; 9 << 20]));
            let mut grown = vec![1_u8; 1 << 20];
            grown.reserve_exact(3 << 20);
            grown
        });
        assert_eq!(bytes, 4 << 20);
        drop(kept);
    }
}
