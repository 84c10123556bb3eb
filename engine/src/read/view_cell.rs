//! The cell that has the present view: lookups borrow it without a locked instruction.
//!
//! Each thread has a reader slot of its own, in which it notes the view that it looks at (a hazard pointer:
//! Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004). A view
//! that was replaced is retired, and freed once no slot names it.
//!
//! # Why no view is freed under a reader
//!
//! | reader                                      | writer                                    |
//! |---------------------------------------------|-------------------------------------------|
//! | 1. note the present view in the slot        | 1. put another view in place              |
//! | 2. light barrier                            | 2. heavy barrier                          |
//! | 3. is it still the present one? else again  | 3. free what is retired and in no slot    |
//!
//! One of the two barriers is first. If it is that of the reader, the writer finds the slot. If it is that of
//! the writer, the reader finds the other view, and notes that one.
//!
//! # Why each view is freed
//!
//! As soon as its last reader is done: the memory of old filters is waited for. A reader empties its slot,
//! passes a light barrier, and looks for views to free if its own is not the present one any more. So either
//! it sees that its view is retired, or who retires it finds the slot empty. A reader that had to begin again
//! looks, too, once the slot names another view: who replaced the one before may have found that there.
//!
//! If the system refuses the heavy barrier, nothing is freed then: it is tried again with the next one.

use std::{
    fmt,
    ops::Deref,
    ptr::{self, NonNull},
    sync::Arc,
};

use crate::{
    barriers::Barriers,
    sync::{
        Mutex, ThreadLocal,
        atomic::{
            AtomicPtr, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

/// What a thread looks at; null if at nothing. Two lines, as processors fetch them in pairs: no other
/// thread writes there.
#[repr(align(128))]
struct Slot<T>(AtomicPtr<T>);

impl<T> Slot<T> {
    fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// A pointer that is read often and replaced seldom.
pub(crate) struct ViewCell<T> {
    /// Of [`Arc::into_raw`], with a reference count.
    present: AtomicPtr<T>,
    barriers: Barriers,
    slots: ThreadLocal<Slot<T>>,
    /// Threads that have got a slot since their memory was told of.
    new_slots: AtomicUsize,
    /// Held while the present view is replaced. Those that were, and are perhaps still read.
    retired: Mutex<Vec<Arc<T>>>,
}

/// A borrowed view.
pub(crate) struct ViewGuard<'c, T> {
    cell: &'c ViewCell<T>,
    /// Not to be sent to another thread: only its own may write to the slot.
    view: NonNull<T>,
    /// Names the view; `None` if the guard has a reference count instead.
    slot: Option<&'c Slot<T>>,
}

impl<T> ViewCell<T> {
    pub(crate) fn new(view: Arc<T>) -> Self {
        Self::with_barriers(view, Barriers::detect())
    }

    fn with_barriers(view: Arc<T>, barriers: Barriers) -> Self {
        Self {
            present: AtomicPtr::new(Arc::into_raw(view).cast_mut()),
            barriers,
            slots: ThreadLocal::new(),
            new_slots: AtomicUsize::new(0),
            retired: Mutex::new(Vec::new()),
        }
    }

    /// Borrows the present view. Whatever is loaded from memory afterwards is no older than the view.
    ///
    /// A thread that has one already, as a closure within `get_with`, gets a reference count.
    #[inline]
    pub(crate) fn load(&self) -> ViewGuard<'_, T> {
        let slot = self.slots.get_or(|| self.new_slot());
        if !slot.0.load(Relaxed).is_null() {
            return self.load_counted();
        }
        let noted = self.present.load(Relaxed);
        let Some(view) = self.note(slot, noted) else { return self.load_again(slot) };
        ViewGuard { cell: self, view, slot: Some(slot) }
    }

    #[cold]
    fn new_slot(&self) -> Slot<T> {
        self.new_slots.fetch_add(1, Relaxed);
        Slot::empty()
    }

    /// Bytes of the slots that threads have got since the last call: a slot with its mark that it is in use, and as
    /// much that is not in use yet.
    pub(crate) fn take_new_slots_bytes(&self) -> usize {
        self.new_slots.swap(0, Relaxed) * 4 * size_of::<Slot<T>>()
    }

    /// Notes a view in the slot. Whether it is still the present one, and so is kept.
    #[inline]
    fn note(&self, slot: &Slot<T>, view: *mut T) -> Option<NonNull<T>> {
        // Release: who finds this view in the slot, and not the last one, knows that that was let go.
        slot.0.store(view, Release);
        self.barriers.light();
        // The loaded one: what was at this address before may be gone.
        let present = self.present.load(Acquire);
        NonNull::new(present).filter(|_| present == view)
    }

    /// As [`load`](Self::load), after the view that was noted was replaced. Who did that may have found it in
    /// the slot, and left it to this thread.
    #[cold]
    fn load_again<'c>(&'c self, slot: &'c Slot<T>) -> ViewGuard<'c, T> {
        loop {
            if let Some(view) = self.note(slot, self.present.load(Relaxed)) {
                // Before anything that could panic: it empties the slot.
                let guard = ViewGuard { cell: self, view, slot: Some(slot) };
                self.free_unread();
                return guard;
            }
        }
    }

    #[cold]
    fn load_counted(&self) -> ViewGuard<'_, T> {
        let _no_change = self.retired.lock();
        let present = self.present.load(Acquire);
        // SAFETY: it is of `Arc::into_raw`, and nobody takes the count of the cell while the lock is held.
        unsafe { Arc::increment_strong_count(present) };
        let view = NonNull::new(present).expect("there always is a view");
        ViewGuard { cell: self, view, slot: None }
    }

    /// Puts `view` in place. The one before is freed as soon as nobody reads it.
    pub(crate) fn store(&self, view: Arc<T>) {
        let view = Arc::into_raw(view).cast_mut();
        let mut retired = self.retired.lock();
        let before = self.present.swap(view, SeqCst);
        // SAFETY: it is of `Arc::into_raw`, and nobody else takes it from the cell.
        retired.push(unsafe { Arc::from_raw(before) });
        let unread = self.take_unread(&mut retired);
        drop(retired);
        drop(unread); // It may be long: without the lock.
    }

    #[cold]
    fn free_unread(&self) {
        let unread = self.take_unread(&mut self.retired.lock());
        drop(unread);
    }

    /// Takes out the retired views that no slot names.
    fn take_unread(&self, retired: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
        // Nothing to free: of many readers that outlive a view one passes the barrier.
        if retired.is_empty() || !self.barriers.heavy() {
            return Vec::new(); // Later, if it was refused.
        }
        let mut read = Vec::new();
        for slot in self.slots.iter() {
            // Acquire: what readers did comes before the view is freed.
            read.push(slot.0.load(Acquire).cast_const());
        }
        retired.extract_if(.., |view| !read.contains(&Arc::as_ptr(view))).collect()
    }
}

impl<T> Drop for ViewCell<T> {
    fn drop(&mut self) {
        // SAFETY: it is of `Arc::into_raw`, and nobody uses the cell any more.
        drop(unsafe { Arc::from_raw(self.present.load(Acquire)) });
    }
}

impl<T> Deref for ViewGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: its slot, or its count, keeps the view: see the module. Nobody has it
        // mutably meanwhile.
        unsafe { self.view.as_ref() }
    }
}

impl<T> Drop for ViewGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(slot) = self.slot else {
            // SAFETY: the guard has a count of what is of `Arc::into_raw`.
            unsafe { Arc::decrement_strong_count(self.view.as_ptr()) };
            return;
        };
        slot.0.store(ptr::null_mut(), Release);
        self.cell.barriers.light();
        if self.cell.present.load(Relaxed) != self.view.as_ptr() {
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
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
    };

    use super::*;

    /// Every word the same, until it is freed.
    struct View<'a> {
        words: [AtomicUsize; 8],
        /// How many views are not freed.
        live: &'a AtomicUsize,
    }

    impl<'a> View<'a> {
        fn new(number: usize, live: &'a AtomicUsize) -> Arc<Self> {
            live.fetch_add(1, SeqCst);
            Arc::new(Self { words: std::array::from_fn(|_| AtomicUsize::new(number)), live })
        }

        /// Its number, if it is whole.
        fn number(&self) -> usize {
            let number = self.words[0].load(Relaxed);
            assert!(self.words.iter().all(|word| word.load(Relaxed) == number && number > 0));
            number
        }
    }

    impl Drop for View<'_> {
        fn drop(&mut self) {
            self.words.iter().for_each(|word| word.store(0, Relaxed));
            self.live.fetch_sub(1, SeqCst);
        }
    }

    /// Real threads and real barriers; schedules are those of `commit::tests`. `SIEVE_LONG=1` takes a
    /// hundred times as many views.
    #[test]
    fn readers_see_whole_views_that_never_grow_older() {
        for barriers in [Barriers::detect(), Barriers::SYMMETRIC] {
            read_while_views_change(barriers);
        }
    }

    fn read_while_views_change(barriers: Barriers) {
        let many = if std::env::var_os("SIEVE_LONG").is_some() { 100 } else { 1 };
        let last = many * if cfg!(miri) { 50 } else { 3_000 };
        let live = &AtomicUsize::new(0);
        let cell = &ViewCell::with_barriers(View::new(1, live), barriers);
        let is_done = &AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..3 {
                scope.spawn(move || {
                    let mut seen = 0;
                    while !is_done.load(SeqCst) {
                        let view = cell.load();
                        let number = view.number();
                        assert!(number >= seen, "{number} after {seen}");
                        seen = number;
                        if number % 4 == reader {
                            assert!(cell.load().number() >= number, "a second view is no older");
                            thread::yield_now();
                        }
                        assert_eq!(view.number(), number);
                    }
                });
            }
            for number in 2..=last {
                cell.store(View::new(number, live));
            }
            is_done.store(true, SeqCst);
        });
        assert_eq!(cell.load().number(), last);
        assert_eq!(live.load(SeqCst), 1, "{barriers:?}: none is kept that nobody reads");
    }
}
