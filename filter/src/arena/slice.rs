//! The array that a filter owns, in an arena or on the heap.

use core::{
    fmt,
    mem::{self, MaybeUninit},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use super::{ALIGNMENT, FilterArena};
use crate::{
    memory,
    page_vec::{PageVec, SystemPages},
};

/// A `Box<[T]>` with its elements in an arena. Access costs the same: pointer and length.
///
/// Elements are never dropped, so `T` must not need it.
pub(crate) struct Slice<T> {
    first: NonNull<T>,
    len: usize,
    arena: FilterArena,
}

// SAFETY: a slice owns its elements, as a box does; the arena has a lock.
unsafe impl<T: Send> Send for Slice<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Slice<T> {}

impl<T: Copy> Slice<T> {
    /// Creates `len` copies of `value` in `arena`.
    ///
    /// # Panics
    ///
    /// If the heap is out of memory or the size overflows.
    pub(crate) fn filled(value: T, len: usize, arena: &FilterArena) -> Self {
        Self::collected(core::iter::repeat_n(value, len), arena)
    }

    /// Collects `values` in `arena`.
    ///
    /// # Panics
    ///
    /// As [`filled`](Self::filled), and if there are fewer values than their reported length.
    pub(crate) fn collected(values: impl ExactSizeIterator<Item = T>, arena: &FilterArena) -> Self {
        Self::placed(values, arena)
    }
}

impl<T> Slice<T> {
    fn placed(values: impl ExactSizeIterator<Item = T>, arena: &FilterArena) -> Self {
        let mut builder = SliceBuilder::new(values.len(), arena);
        builder.extend(values);
        builder.finish()
    }

    pub(crate) fn arena(&self) -> &FilterArena {
        &self.arena
    }

    /// Returns the bytes of the slice if the arena counts them, otherwise 0.
    pub(crate) fn arena_bytes(&self) -> usize {
        if self.arena.counts() { size_of_val(&**self) } else { 0 }
    }
}

/// A [`Slice`] that is filled from its start. It cannot be read before all elements are written.
pub(crate) struct SliceBuilder<T> {
    slice: Slice<T>,
    written: usize,
}

impl<T> SliceBuilder<T> {
    /// Allocates room for `len` elements in `arena`.
    ///
    /// # Panics
    ///
    /// As [`Slice::filled`].
    pub(crate) fn new(len: usize, arena: &FilterArena) -> Self {
        const { assert!(align_of::<T>() <= ALIGNMENT && !mem::needs_drop::<T>()) }
        let arena = arena.clone();
        let bytes = len.checked_mul(size_of::<T>()).expect("the size of the array overflows");
        let first = arena.allocate(bytes).map(NonNull::cast).unwrap_or_else(|| {
            let mut room = PageVec::<MaybeUninit<T>>::with_capacity_in(len, SystemPages);
            memory::advise(room.spare_capacity_mut());
            let (first, ..) = room.into_raw_parts_with_alloc();
            NonNull::new(first).expect("not null").cast()
        });
        Self { slice: Slice { first, len, arena }, written: 0 }
    }

    /// Writes the next elements.
    ///
    /// # Panics
    ///
    /// If they exceed the length.
    pub(crate) fn extend(&mut self, new: impl ExactSizeIterator<Item = T>) {
        let Self { slice, written } = self;
        assert!(new.len() <= slice.len - *written, "the builder has room");
        let mut count = 0;
        for (index, value) in (*written..slice.len).zip(new) {
            // SAFETY: the slice has room for `len` elements.
            let element = unsafe { slice.first.add(index) };
            // SAFETY: the element is owned, aligned, and has nothing to drop.
            unsafe { element.write(value) }
            count += 1;
        }
        *written += count;
    }

    /// Returns the slice.
    ///
    /// # Panics
    ///
    /// If elements are missing.
    pub(crate) fn finish(self) -> Slice<T> {
        assert_eq!(self.written, self.slice.len, "all elements must be written");
        self.slice
    }
}

impl<T> Drop for Slice<T> {
    fn drop(&mut self) {
        if self.arena.deallocate(self.first.cast(), self.len * size_of::<T>()) {
            return;
        }
        let first = self.first.cast::<MaybeUninit<T>>().as_ptr();
        // SAFETY: what is not in a chunk is the buffer of a vector that `SliceBuilder::new` leaked.
        drop(unsafe { PageVec::from_raw_parts_in(first, 0, self.len, SystemPages) });
    }
}

impl<T> Deref for Slice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` owned elements, all written before `SliceBuilder::finish` returned the
        // slice.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Slice<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// Clones into the same arena.
impl<T: Clone> Clone for Slice<T> {
    fn clone(&self) -> Self {
        Self::placed(self.iter().cloned(), &self.arena)
    }
}

impl<T: PartialEq> PartialEq for Slice<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Slice<T> {}

impl<T: fmt::Debug> fmt::Debug for Slice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
