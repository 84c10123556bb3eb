//! What a thread allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static WATCHING: Watching = Watching;

fn note(bytes: usize) {
    // During the end of a thread there is nothing to tell and nobody to tell it.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|all| all.set(all.get() + bytes));
    note_live(taken(bytes));
}

/// What glibc takes for an allocation: 8 bytes for itself, then a multiple of 16.
fn taken(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16) as isize
}

fn note_live(bytes: isize) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
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
        note_live(-taken(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note_live(-taken(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `run` and tells the largest allocation of this thread meanwhile, in bytes.
pub(crate) fn largest_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    let result = run();
    (result, LARGEST.get())
}

/// Runs `run` and tells the number of allocations of this thread meanwhile.
pub(crate) fn count_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = COUNT.get();
    let result = run();
    (result, COUNT.get() - before)
}

/// Runs `run` and tells the bytes that this thread allocates meanwhile.
pub(crate) fn bytes_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let result = run();
    (result, BYTES.get() - before)
}

/// Bytes that this thread has allocated more than freed, with what the allocator takes for itself.
pub(crate) fn live_bytes() -> isize {
    LIVE_BYTES.get()
}
