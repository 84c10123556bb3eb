//! Counts the allocations of a thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn note(bytes: usize) {
    // Fails while the thread exits; such allocations do not matter.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|all| all.set(all.get() + bytes));
    note_live(taken(bytes));
}

/// Memory of an allocation in glibc: a header of 8 bytes, rounded up to 16.
fn taken(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16) as isize
}

fn note_live(bytes: isize) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        note_live(-taken(layout.size()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note_live(-taken(layout.size()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `run` and returns the largest allocation of this thread meanwhile, in bytes.
pub(crate) fn largest_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    let result = run();
    (result, LARGEST.get())
}

/// Runs `run` and returns the number of allocations of this thread meanwhile.
pub(crate) fn count_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = COUNT.get();
    let result = run();
    (result, COUNT.get() - before)
}

/// Runs `run` and returns the bytes that this thread allocates meanwhile.
pub(crate) fn bytes_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let result = run();
    (result, BYTES.get() - before)
}

/// Returns the live bytes of this thread, the overhead of the allocator included.
pub(crate) fn live_bytes() -> isize {
    LIVE_BYTES.get()
}
