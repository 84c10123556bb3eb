//! A cell with the current view, which lookups borrow without a locked instruction.
//!
//! Each thread has a slot, into which it writes the view that it reads (a hazard pointer: Michael,
//! "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004). A
//! replaced view is retired, and freed once it is in no slot.
//!
//! # Why no view is freed under a reader
//!
//! | reader                                      | writer                                    |
//! |---------------------------------------------|-------------------------------------------|
//! | 1. write the current view into the slot     | 1. replace the view                       |
//! | 2. light barrier                            | 2. heavy barrier                          |
//! | 3. retry unless it is still the current one | 3. free retired views that are in no slot |
//!
//! One of the two barriers is first. If it is that of the reader, the writer finds the slot. If it
//! is that of the writer, the reader finds the new view, and retries.
//!
//! # Why not `arc-swap`
//!
//! A load and its drop take 3 ns and no locked instruction here, and 9 ns and two such instructions
//! with `arc_swap::ArcSwap::load`. A count under a lock takes 16 ns (1 thread). The 6 ns are 9 % of
//! a miss of 67 ns.
//!
//! # Which barriers
//!
//! A mark in the pointer to a view selects the barrier of readers. A *fenced* view is written into
//! the slot with a fence; the writer then needs a fence only. For other views readers have a
//! barrier for the compiler alone, and the writer needs a heavy barrier.
//!
//! The system may refuse heavy barriers later, as under a seccomp filter. From then on each new
//! view is fenced. At most two unfenced views are left then: the replaced one and its successor.
//! Each is freed when a heavy barrier succeeds after all, or when it can be in no slot:
//!
//! 1. A reader that loads a fenced view sets the flag of its slot. It never loads an unfenced one
//!    after that, because `present` does not go back. A thread that sees the flag also sees that
//!    the slot was cleared before.
//! 2. A new slot passes a fence before its first load. The writer passes one after the replacement
//!    by a fenced view and before it reads the slots. Either it finds the slot, or the reader loads
//!    a fenced view.
//! 3. A slot that a thread inherits from one that ended has its flag; the hand-over orders the
//!    loads.
//!
//! A thread that never reads again keeps these two views until the cell is dropped, and no others.
//!
//! # Why each view is freed
//!
//! A view is freed as soon as its last reader is done: other threads wait for the memory of old
//! filters. A reader clears its slot, passes a light barrier, and frees views if its own was
//! replaced. So either the reader sees that its view is retired, or the thread that retires it
//! finds the slot empty. A reader that retried also frees views, once its slot has another view:
//! the writer may have found the former one there.

use std::{
    fmt,
    ops::Deref,
    ptr::{self, NonNull},
    sync::Arc,
};

use crate::{
    barriers::{Barriers, light},
    sync::{
        Mutex, ThreadLocal,
        atomic::{
            AtomicBool, AtomicPtr, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

/// Mark of a fenced view: the lowest bit, which is 0 in the address of a view.
const FENCED: usize = 1;

fn is_fenced<T>(marked: *mut T) -> bool {
    marked.addr() & FENCED != 0
}

/// Returns the pointer without its mark.
fn unmarked<T>(marked: *mut T) -> *mut T {
    marked.map_addr(|address| address & !FENCED)
}

/// Slot of a thread. Has two cache lines of its own, because processors fetch them in pairs.
#[repr(align(128))]
struct Slot<T> {
    /// The borrowed view, with its mark; null if there is none.
    view: AtomicPtr<T>,
    /// The thread has loaded a fenced view, so it never loads an unfenced one.
    has_fenced: AtomicBool,
}

impl<T> Slot<T> {
    fn empty() -> Self {
        Self { view: AtomicPtr::new(ptr::null_mut()), has_fenced: AtomicBool::new(false) }
    }
}

/// A pointer that is read often and replaced rarely.
pub(crate) struct ViewCell<T> {
    /// Pointer from [`Arc::into_raw`], with a reference count and a mark.
    present: AtomicPtr<T>,
    barriers: Barriers,
    slots: ThreadLocal<Slot<T>>,
    /// Slots whose memory is not yet charged.
    new_slots: AtomicUsize,
    /// Locked while the current view is replaced.
    retired: Mutex<Retired<T>>,
}

/// Replaced views that may still be borrowed.
struct Retired<T> {
    views: Vec<RetiredView<T>>,
    /// The next view is a fenced one.
    is_fenced: bool,
}

struct RetiredView<T> {
    view: Arc<T>,
    is_fenced: bool,
}

/// A borrowed view.
pub(crate) struct ViewGuard<'c, T> {
    cell: &'c ViewCell<T>,
    /// Makes the guard `!Send`: only its own thread may write to the slot.
    view: NonNull<T>,
    is_fenced: bool,
    /// Slot that holds the view; `None` if the guard holds a reference count instead.
    slot: Option<&'c Slot<T>>,
}

impl<T> ViewCell<T> {
    pub(crate) fn new(view: Arc<T>) -> Self {
        Self::with_barriers(view, Barriers::detect())
    }

    pub(crate) fn with_barriers(view: Arc<T>, barriers: Barriers) -> Self {
        const { assert!(align_of::<T>() > FENCED, "the mark needs a bit of the address") };
        let is_fenced = barriers.is_symmetric();
        Self {
            present: AtomicPtr::new(Self::marked(view, is_fenced)),
            barriers,
            slots: ThreadLocal::new(),
            new_slots: AtomicUsize::new(0),
            retired: Mutex::new(Retired { views: Vec::new(), is_fenced }),
        }
    }

    /// Returns the pointer of a view, with its mark.
    fn marked(view: Arc<T>, is_fenced: bool) -> *mut T {
        let mark = if is_fenced { FENCED } else { 0 };
        Arc::into_raw(view).cast_mut().map_addr(|address| address | mark)
    }

    /// Borrows the current view. Later loads from memory are no older than the view.
    ///
    /// A thread that already has one, as a closure within `get_with`, takes a reference count.
    #[inline]
    pub(crate) fn load(&self) -> ViewGuard<'_, T> {
        let slot = self.slots.get().unwrap_or_else(|| self.new_slot());
        if !slot.view.load(Relaxed).is_null() {
            return self.load_counted();
        }
        let loaded = self.present.load(Relaxed);
        if is_fenced(loaded) && !slot.has_fenced.load(Relaxed) {
            self.leave_unfenced(slot);
        }
        self.borrow(slot, loaded).unwrap_or_else(|| self.load_again(slot))
    }

    #[cold]
    fn new_slot(&self) -> &Slot<T> {
        self.new_slots.fetch_add(1, Relaxed);
        let slot = self.slots.get_or(Slot::empty);
        light(true); // See the module.
        slot
    }

    /// Sets the flag of this slot, which is empty, after a load of a fenced view.
    #[cold]
    fn leave_unfenced(&self, slot: &Slot<T>) {
        debug_assert!(slot.view.load(Relaxed).is_null(), "the slot has an unfenced view");
        debug_assert!(!slot.has_fenced.load(Relaxed), "the flag is set once");
        // Release: a thread that sees the flag sees that the slot was cleared before.
        slot.has_fenced.store(true, Release);
        self.free_unread();
    }

    /// Returns the bytes of the slots created since the last call, each with its flag, and as many
    /// spare bytes.
    pub(crate) fn take_new_slots_bytes(&self) -> usize {
        self.new_slots.swap(0, Relaxed) * 4 * size_of::<Slot<T>>()
    }

    /// Writes a view into the slot. Returns `None` if it is no longer the current view, so is not
    /// kept.
    #[inline]
    fn borrow<'c>(&'c self, slot: &'c Slot<T>, written: *mut T) -> Option<ViewGuard<'c, T>> {
        // Release: a thread that finds this view in the slot sees that the last one was released.
        slot.view.store(written, Release);
        let is_fenced = is_fenced(written);
        light(is_fenced);
        // Uses the loaded pointer: the previous view at this address may be freed.
        let present = self.present.load(Acquire);
        let view = NonNull::new(unmarked(present)).filter(|_| present == written)?;
        Some(ViewGuard { cell: self, view, is_fenced, slot: Some(slot) })
    }

    /// As [`load`](Self::load), after the view in the slot was replaced. The writer may have found
    /// it there, and left the free to this thread.
    #[cold]
    fn load_again<'c>(&'c self, slot: &'c Slot<T>) -> ViewGuard<'c, T> {
        loop {
            if let Some(guard) = self.borrow(slot, self.present.load(Relaxed)) {
                // A panic clears the slot.
                self.free_unread();
                return guard;
            }
        }
    }

    /// As [`load`](Self::load), for threads that read rarely. A thread without a slot gets none,
    /// because it would stay until the cell is dropped. The thread pays for a short lock and a
    /// count instead.
    pub(crate) fn load_seldom(&self) -> ViewGuard<'_, T> {
        if self.slots.get().is_some() { self.load() } else { self.load_counted() }
    }

    #[cold]
    fn load_counted(&self) -> ViewGuard<'_, T> {
        let _no_change = self.retired.lock();
        let present = unmarked(self.present.load(Acquire));
        // SAFETY: the pointer is from `Arc::into_raw`, and the cell keeps its count while the lock
        // is held.
        unsafe { Arc::increment_strong_count(present) };
        let view = NonNull::new(present).expect("the cell always has a view");
        ViewGuard { cell: self, view, is_fenced: false, slot: None }
    }

    /// Replaces the view. The previous view is freed as soon as no thread borrows it.
    pub(crate) fn store(&self, view: Arc<T>) {
        let mut retired = self.retired.lock();
        let before = self.present.swap(Self::marked(view, retired.is_fenced), SeqCst);
        let is_fenced = is_fenced(before);
        debug_assert!(!unmarked(before).is_null(), "the cell always has a view");
        debug_assert!(!is_fenced || retired.is_fenced, "no unfenced view follows a fenced one");
        // SAFETY: the pointer is from `Arc::into_raw`, and only this swap takes it from the cell.
        let view = unsafe { Arc::from_raw(unmarked(before)) };
        retired.views.push(RetiredView { view, is_fenced });
        let unread = self.take_unread(&mut retired);
        drop(retired);
        drop(unread); // It may be long: without the lock.
    }

    #[cold]
    fn free_unread(&self) {
        let unread = self.take_unread(&mut self.retired.lock());
        drop(unread);
    }

    /// Removes the retired views that are in no slot.
    fn take_unread(&self, retired: &mut Retired<T>) -> Vec<RetiredView<T>> {
        // Of many readers that outlive a view, only one executes the barrier.
        if retired.views.is_empty() {
            return Vec::new();
        }
        let passed = if retired.views.iter().all(|retired| retired.is_fenced) {
            light(true);
            true
        } else {
            self.barriers.heavy()
        };
        retired.is_fenced |= !passed;
        let mut have_left = passed;
        let mut read = Vec::new();
        if !passed {
            have_left = self.slots.iter().all(|slot| slot.has_fenced.load(Acquire));
        }
        for slot in self.slots.iter() {
            // Acquire: accesses of readers happen before the view is freed.
            read.push(unmarked(slot.view.load(Acquire)).cast_const());
        }
        let is_unread = |retired: &mut RetiredView<T>| {
            (have_left || retired.is_fenced) && !read.contains(&Arc::as_ptr(&retired.view))
        };
        retired.views.extract_if(.., is_unread).collect()
    }
}

impl<T> Drop for ViewCell<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer is from `Arc::into_raw`, and the cell has no more users.
        drop(unsafe { Arc::from_raw(unmarked(self.present.load(Acquire))) });
    }
}

impl<T> Deref for ViewGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot, or the count, keeps the view: see the module. No mutable reference to
        // the view exists.
        unsafe { self.view.as_ref() }
    }
}

impl<T> Drop for ViewGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(slot) = self.slot else {
            // SAFETY: the guard has a count of a view from `Arc::into_raw`.
            unsafe { Arc::decrement_strong_count(self.view.as_ptr()) };
            return;
        };
        slot.view.store(ptr::null_mut(), Release);
        light(self.is_fenced);
        if unmarked(self.cell.present.load(Relaxed)) != self.view.as_ptr() {
            self.cell.free_unread();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ViewCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ViewCell").field(&*self.load()).finish()
    }
}

#[cfg(test)]
mod tests;
