//! Bytes that a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Watching;

thread_local! {
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static WATCHING: Watching = Watching;

fn note(bytes: usize) {
    // During thread exit the counter is gone.
    let _ = TOTAL.try_with(|total| total.set(total.get().saturating_add(bytes)));
}

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `run` and returns the bytes that this thread allocated meanwhile, freed ones included.
pub(crate) fn total_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = TOTAL.get();
    let result = run();
    (result, TOTAL.get() - before)
}
