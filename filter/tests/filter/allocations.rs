//! What a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Watching;

thread_local! {
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static WATCHING: Watching = Watching;

fn note(bytes: usize) {
    // During the end of a thread there is nothing to tell and nobody to tell it.
    let _ = TOTAL.try_with(|total| total.set(total.get().saturating_add(bytes)));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `run` and tells how many bytes this thread asked for meanwhile, those that it gave back
/// included.
pub(crate) fn total_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = TOTAL.get();
    let result = run();
    (result, TOTAL.get() - before)
}
