//! A counting allocator, and a lock for the tests that use it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Counts allocated bytes and their peak.
struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FREED_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn grow(bytes: usize) {
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
    PEAK_BYTES.fetch_max(live, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; `realloc` by default is
// made of the others, so that old and new memory are counted together.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        FREED_BYTES.set(FREED_BYTES.get() + layout.size());
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocated bytes.
pub(crate) fn live_bytes() -> usize {
    LIVE_BYTES.load(Relaxed)
}

/// Returns the bytes that this thread has freed.
pub(crate) fn freed_here() -> usize {
    FREED_BYTES.get()
}

/// Returns the peak of allocated bytes since the last [`forget_peak`].
pub(crate) fn peak_bytes() -> usize {
    PEAK_BYTES.load(Relaxed)
}

/// Resets the peak. Returns the allocated bytes.
pub(crate) fn forget_peak() -> usize {
    let live = live_bytes();
    PEAK_BYTES.store(live, Relaxed);
    live
}

/// Serialises the tests, because the allocator counts all threads.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
