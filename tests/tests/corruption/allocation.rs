//! Largest single allocation and number of allocations of a thread.
//!
//! Counted per thread, so that parallel tests do not disturb each other. A store without workers
//! runs on its caller's thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// Const and without a destructor: access does not allocate.
    static LARGEST_BYTES: Cell<usize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Resets the counters of this thread.
pub(crate) fn reset_largest() {
    LARGEST_BYTES.set(0);
}

/// Returns the largest single allocation of this thread since [`reset_largest`], in bytes.
pub(crate) fn largest_bytes() -> usize {
    LARGEST_BYTES.get()
}

/// Runs `run`. Returns its result and the number of allocations of this thread.
pub(crate) fn count_in<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = COUNT.get();
    let result = run();
    (result, COUNT.get() - before)
}

#[derive(Debug)]
struct Recorder;

#[global_allocator]
static RECORDER: Recorder = Recorder;

fn record(bytes: usize) {
    // A thread that is ending has no thread locals.
    let _ = LARGEST_BYTES.try_with(|largest| largest.set(largest.get().max(bytes)));
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        record(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        record(bytes);
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[test]
fn largest_allocation_of_a_thread_is_measured() {
    reset_largest();
    drop(std::hint::black_box(Vec::<u8>::with_capacity(3 << 20)));
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    assert_eq!(largest_bytes(), 3 << 20);
    let other = std::thread::spawn(|| drop(std::hint::black_box(vec![1_u8; 9 << 20])));
    other.join().unwrap();
    assert_eq!(largest_bytes(), 3 << 20, "of another thread");
    let mut grown = vec![1_u8; 1 << 20];
    grown.reserve_exact(4 << 20);
    assert_eq!(largest_bytes(), 5 << 20, "reallocated");
}
